"""NudgeRL's distillation in a live world: what was said behind a hint is learned behind the plain prompt."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from tests.vectors.losses import distill_loss
from workbench.methods.grpo import Grpo
from workbench.methods.nudgerl import Nudgerl
from workbench.store import Store, Writer
from workbench.types import Budget, Loss
from workbench.worlds.live.hints import lines_of
from workbench.worlds.live.world import LiveWorld
from workbench.worlds.training.packing import StreamPolicy
from workbench.worlds.training.policy import Policy

from .conftest import forward, step_of, toy_model, toy_tokenizer

BUDGET = Budget(prompts=3, rollouts=24)


@pytest.fixture
def world(task):
    """Two strategies a prompt, but none for the last one."""
    plans = np.full(len(task.pool), "1\n22", dtype=object)
    plans[-1] = ""
    task.pool = replace(task.pool, extra={"strategies": plans})
    return LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=0.0)


def gradient(world, rollouts, advantage, loss, penalties=()):
    """The gradient of an update, all parameters in one vector."""
    caught = []

    def caught_step(tally):
        caught.extend(p.grad.flatten().clone() for p in world.policy.parameters)
        return 0.0, ""

    world.policy._step = caught_step
    world.policy.update(world._lines(rollouts), advantage, loss, penalties, constant=world.max_tokens)
    del world.policy._step
    return torch.cat(caught)


def test_rows_show_what_their_tokens_are_worth_behind_the_plain_prompt(world, tmp_path):
    step = step_of(world, BUDGET, Grpo(), Nudgerl(p_drop=0.3))
    r, plain = step.rollouts, step.rollouts.extra["plain_logp"]
    assert len(r) == 24  # no row but those asked for
    hinted = np.flatnonzero(r.context != "")
    for i in range(len(r)):
        assert plain.row(i) == pytest.approx(forward(world, r, i)[0].detach().numpy(), abs=1e-5)
    moved = np.abs(plain.take(hinted).values - r.logp.take(hinted).values)
    assert moved.max() > 0.01  # the hint matters, so the hinted log-probabilities are another context's
    assert step.update["logp_gap"] < 1e-5  # what is trained in the objective is what was sampled
    with Writer(tmp_path, {}, world.pool, run="a") as writer:
        writer.append(step)
    with Store.open(tmp_path) as store:
        assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True]
        kept = next(iter(store.steps("a", world.pool)))
        assert np.array_equal(kept.rollouts.extra["plain_logp"].values, plain.values)


@pytest.mark.parametrize("reduction", ["seq_mean", "token_mean", "const_len"])
def test_the_distillation_weighs_the_same_beside_any_reduction(world, reduction):
    grpo, nudgerl = Grpo(reduction=reduction), Nudgerl(p_drop=0.3, distill=0.5)
    step = step_of(world, BUDGET, grpo, nudgerl)
    r, a = step.rollouts, step.advantage
    rows = np.flatnonzero(a.keep)
    alone = gradient(world, r, a, partial(grpo.loss, ()))
    together = gradient(world, r, a, partial(grpo.loss, ()), [partial(nudgerl.penalty, ())])
    means = [a.value[i] * forward(world, r, int(i))[0].mean() for i in rows]
    explicit = -0.5 * torch.stack(means).mean()
    wide = max(r.length[rows])
    logp, mask = np.zeros((len(rows), wide)), np.zeros((len(rows), wide))
    for k, i in enumerate(rows):
        n = r.length[i]
        logp[k, :n], mask[k, :n] = forward(world, r, int(i))[0].detach().numpy(), 1
    assert explicit.item() == pytest.approx(0.5 * distill_loss(a.value[rows], logp, mask), rel=1e-5)
    expected = torch.autograd.grad(explicit, world.policy.parameters)
    assert together - alone == pytest.approx(torch.cat([g.flatten() for g in expected]), abs=1e-5)
    assert expected[0].abs().max() > 1e-3


def test_the_log_probabilities_of_the_sampler_do_not_enter_the_distillation(world):
    nudgerl = Nudgerl(p_drop=0.3)
    r, a = (step := step_of(world, BUDGET, Grpo(), nudgerl)).rollouts, step.advantage
    penalties = [partial(nudgerl.penalty, ())]
    unknown = r.with_(logp=r.logp._replace(values=np.full_like(r.logp.values, np.nan)))

    def nothing(batch):
        return Loss(0.0 * batch.logp)

    assert torch.equal(gradient(world, r, a, nothing, penalties), gradient(world, unknown, a, nothing, penalties))


def test_streams_see_the_same(world):
    step = step_of(world, BUDGET, Grpo(), Nudgerl(p_drop=0.3))
    r = step.rollouts
    lines = lines_of(r, world._starts.texts, lambda row, start: world.prefix(world.pool, row, start))
    for policy in (Policy(toy_model(), budget=60), StreamPolicy(toy_model(), budget=60, compile=False)):
        seen = 0
        for sequences in policy.cut(lines, np.arange(len(r))):
            batch = policy.batch(lines, sequences, step.advantage)
            for i, row in enumerate(batch.row.tolist()):
                got = batch.extra["plain_logp"][i, : r.length[row]].detach().numpy()
                assert got == pytest.approx(r.extra["plain_logp"].row(row), abs=1e-5)
                seen += 1
        assert seen == len(r)


def test_without_the_column_it_says_what_to_do(world):
    step = step_of(world, BUDGET, Grpo(), Nudgerl(distill=0.0))
    assert "plain_logp" not in step.rollouts.extra
    with pytest.raises(ValueError, match=r"distill=0"):
        gradient(world, step.rollouts, step.advantage, partial(Grpo().loss, ()), [partial(Nudgerl().penalty, ())])
