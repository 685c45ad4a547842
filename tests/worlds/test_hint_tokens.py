"""ADHint trains hint tokens: they stand in the rows as the formula says, and the gradient is that of exactly those tokens."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from workbench.methods.adhint import Adhint, entropy_gate
from workbench.methods.branchgrpo import Branchgrpo
from workbench.methods.grpo import Grpo
from workbench.numerics.roles import HINT, OWN, hint_lengths, without_hints
from workbench.pipeline import Pipeline, run
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.store import Store, Writer
from workbench.types import Budget, Plan, Resume
from workbench.worlds.live.world import LiveWorld

from .conftest import forward, step_of, toy_model, toy_tokenizer

BUDGET = Budget(prompts=4, rollouts=32)


@pytest.fixture
def world(task):
    """References of five words, one character each; the last prompt has none."""
    text = np.array([f"{a} b 3 d e" for a in range(len(task.pool))], dtype=object)
    text[-1] = ""
    task.pool = replace(task.pool, extra={"reference": text})
    return LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=0.0)


def test_rows_show_the_tokens_of_their_hints(world):
    r = step_of(world, BUDGET, Grpo(), Adhint()).rollouts
    lead, hinted = hint_lengths(r), r.context != ""
    assert hinted.sum() >= 8
    assert np.array_equal(lead > 0, hinted)
    assert np.array_equal(r.tokens.lengths, lead + r.length)  # length counts what was generated
    for i in np.flatnonzero(hinted):
        words = int(r.context[i].removeprefix("adhint:"))
        told = " ".join(world.pool.extra["reference"][r.prompt[i]].split()[:words]) + " "
        assert world.tokenizer.decode(r.tokens.row(i)[: lead[i]]) == told
        assert r.role.row(i).tolist() == [HINT] * len(told) + [OWN] * r.length[i]
    for i in range(len(r)):
        logp, entropy = forward(world, r, i)
        assert r.logp.row(i) == pytest.approx(logp.detach().numpy(), abs=1e-5)
        assert r.entropy.row(i) == pytest.approx(entropy.detach().numpy(), abs=1e-5)


def test_without_training_them_hints_are_context(world):
    r = step_of(world, BUDGET, Grpo(), Adhint(train_hints=False)).rollouts
    assert r.role is None
    assert np.array_equal(r.tokens.lengths, r.length)
    shown = without_hints(step_of(world, BUDGET, Grpo(), Adhint()).rollouts)
    assert shown.role is None
    for name in ("tokens", "logp", "entropy"):  # nothing else changes: the same draws, the same record of them
        assert getattr(shown, name).values.tolist() == getattr(r, name).values.tolist()


def test_the_advantages_of_hint_tokens_are_masked_and_gated(world):
    step = step_of(world, BUDGET, Grpo(), Adhint())
    r, a, lead = step.rollouts, step.advantage, hint_lengths(step.rollouts)
    signs = set()
    for i in range(len(r)):
        got, n = a.tokens.row(i), lead[i]
        assert got[n:] == pytest.approx(a.value[i])
        own = r.entropy.row(i)[n:].astype(float).mean()
        hint = r.entropy.row(i)[:n].astype(float)
        gate = (np.minimum(hint, own) + 1e-8) / (np.maximum(hint, own) + 1e-8)
        assert got[:n] == pytest.approx(gate * a.value[i] if a.value[i] > 0 else 0 * gate)
        signs.add((bool(n), np.sign(a.value[i])))
    assert {(True, 1.0), (True, -1.0)} <= signs


def test_the_gradient_is_that_of_exactly_those_tokens(world):
    step = step_of(world, BUDGET, Grpo(), Adhint())
    r, a = step.rollouts, step.advantage
    caught = []

    def caught_step(tally):
        caught.extend(p.grad.clone() for p in world.policy.parameters)
        return 0.0, ""

    world.policy._step = caught_step
    world.policy.update(world._lines(r), a, partial(Grpo().loss, ()))
    rows, lead = np.flatnonzero(a.keep), hint_lengths(r)
    explicit = torch.zeros(())
    for i in rows:
        credit = np.full(lead[i] + r.length[i], a.value[i])
        if a.value[i] < 0:
            credit[: lead[i]] = 0
        credit *= entropy_gate(r.entropy.row(i), int(lead[i]))
        explicit = explicit - (torch.tensor(credit) * forward(world, r, i)[0]).mean() / len(rows)
    expected = torch.autograd.grad(explicit, world.policy.parameters)
    for got, want in zip(caught, expected, strict=True):
        assert torch.allclose(got, want, atol=1e-4)
    assert max(float(g.abs().max()) for g in expected) > 0.01


def test_the_store_keeps_what_was_trained(world, tmp_path):
    pipeline = Pipeline(Grpo(), Adhint())
    steps = list(run(pipeline, world, BUDGET, steps=2, seed=4))
    with Writer(tmp_path, {}, world.pool, run="a") as writer:
        for _, step in steps:
            writer.append(step)
    with Store.open(tmp_path) as store:
        back = list(store.steps("a", world.pool))
        assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True]
        spent = sum(row["generated"] for row in store.ask("savings_by_group").to_pylist())
    for (_, step), kept in zip(steps, back, strict=True):
        for name in ("tokens", "logp", "entropy", "role"):
            assert getattr(kept.rollouts, name).values.tolist() == getattr(step.rollouts, name).values.tolist()
        assert kept.advantage.tokens.values.tolist() == step.advantage.tokens.values.tolist()
        assert kept.advantage.tokens.offsets.tolist() == step.rollouts.tokens.offsets.tolist()
    assert spent == sum(int(step.rollouts.length.sum()) for _, step in steps)
    folded = pipeline.fold(world.pool, back)["adhint"]
    for mine, live in zip(folded[1:], steps[-1][0]["adhint"][1:], strict=True):
        assert np.array_equal(mine, live, equal_nan=True)


def test_rows_that_hold_their_hints_are_read_by_any_world(world, task):
    r = step_of(world, BUDGET, Grpo(), Adhint()).rollouts
    other = LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=0.0)
    assert other.score(r, frozenset({"current"})).current.values == pytest.approx(r.logp.values, abs=1e-5)
    with pytest.raises(ValueError, match="were not started from the plain prompt"):
        other.score(without_hints(r), frozenset({"current"}))


def test_hinted_rollouts_may_fork(world, tmp_path):
    with Writer(tmp_path, {}, world.pool, run="a") as writer:
        for _, step in run(Pipeline(Grpo(), Adhint(), Branchgrpo(every=2)), world, BUDGET, steps=2, seed=4):
            r, a, lead = step.rollouts, step.advantage, hint_lengths(step.rollouts)
            assert a.tokens.lengths.tolist() == r.tokens.lengths.tolist()
            assert ((r.parent != "") & (lead > 0)).any()
            assert np.isfinite(step.update["loss"])
            writer.append(step)
    rows = np.arange(len(r)).tolist()
    asked = {"node": r.id.tolist(), "row": rows, "first": [0] * len(r), "last": r.length.tolist(), "cut": [99] * len(r)}
    with Store.open(tmp_path) as store:
        told = {s["row"]: s for s in store.ask("page_segments", step=step.step, **asked).to_pylist()}
    for i in rows:  # segments count from the first token that was generated
        assert told[i]["tokens"] == r.tokens.row(i)[lead[i] :].tolist()
        assert told[i]["credit"] == pytest.approx(a.tokens.row(i)[lead[i] :].mean())


def test_hinted_rollouts_may_be_carried(world):
    step = step_of(world, BUDGET, Grpo(), Adhint())
    r, lead = step.rollouts, hint_lengths(step.rollouts)
    i = int(np.flatnonzero(lead)[0])
    rows = np.arange(len(r)) == i
    world.update(r, step.advantage.drop(rows, "carried"), partial(Grpo().loss, ()), [])
    left = world._starts.unfinished[r.id[i]]
    assert left.trail.tokens.tolist() == r.tokens.row(i)[lead[i] :].tolist()
    start = np.empty(1, dtype=object)
    start[0] = Resume(r.id[i])
    plan = Plan([r.prompt[i]], [1], start=start, context=r.context[[i]], max_tokens=np.array([9]), step=2)
    resumed = world.score(world.sample(plan), Adhint().needs)
    assert hint_lengths(resumed).tolist() == [lead[i]]
    assert resumed.tokens.row(0)[: len(r.tokens.row(i))].tolist() == r.tokens.row(i).tolist()


def test_a_method_that_comes_in_later_reads_rows_without_hints(world, tmp_path):
    """EPO's history is of what was sampled, whether it watched from the start or folds the record."""
    experiment = Experiment(
        model="tiny", pipeline="grpo + adhint", budget=BUDGET, store=str(tmp_path), eval_every=0, checkpoint_every=0
    )
    with Run(experiment, world=world) as made:
        steps = [made.step(), made.step()]
        made.swap("grpo + adhint + epo")
        folded = made.state.states["epo"]
    assert all(hint_lengths(step.rollouts).any() for step in steps)
    means = [without_hints(step.rollouts).entropy.values.mean() for step in steps]
    assert folded.total / folded.n == pytest.approx(np.mean(means))
