"""NudgeRL's copies in a live world: what is trained is the likelihood of a hinted answer under the plain prompt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from workbench.methods.grpo import Grpo
from workbench.methods.nudgerl import Nudgerl, distill_loss
from workbench.pipeline import Pipeline, run
from workbench.store import Store, Writer
from workbench.types import Budget
from workbench.worlds.live import LiveWorld

from .conftest import toy_model, toy_tokenizer


@pytest.fixture
def world(task):
    """Two strategies a prompt."""
    plans = np.full(len(task.pool), "1\n22", dtype=object)
    task.pool = replace(task.pool, extra={"strategies": plans})
    return LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=0.0)


def test_copies_stand_under_the_plain_prompt(world, tmp_path):
    _, step = next(run(Pipeline(Grpo(), Nudgerl(p_drop=0.3)), world, Budget(prompts=3, rollouts=24), steps=1, seed=4))
    r = step.rollouts
    copies = r.take(r.ask < 0)
    hinted = r.take((r.ask >= 0) & np.isin(r.prompt, copies.prompt))
    assert len(copies) == len(hinted) == 24
    lines = world._lines(copies)
    plain = [world.prefix(world.pool, int(p)) for p in copies.prompt]
    assert [lines.prefixes[o] for o in lines.owner] == plain
    own = world.score(hinted, frozenset({"current"})).current
    other = world.score(copies, frozenset({"current"})).current
    moved = hinted.context != ""
    assert other.take(~moved).values == pytest.approx(own.take(~moved).values, abs=1e-5)
    assert np.abs(other.take(moved).values - own.take(moved).values).max() > 0.01
    with Writer(tmp_path, {}, world.pool, run="a") as writer:
        writer.append(step)
    with Store.open(tmp_path) as store:
        assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True]
        origins = store.sql("SELECT origin, count(*) AS n FROM rollouts GROUP BY origin ORDER BY origin").to_pylist()
    assert origins == [{"origin": "foreign", "n": 24}, {"origin": "generated", "n": 24}]


def test_the_gradient_of_a_copy_is_that_of_the_distillation():
    """Ratio 1: the surrogate's slope in logp is -A, as that of -A logp."""
    logp = torch.log(torch.tensor([[0.5, 0.25], [0.9, 0.1]])).requires_grad_()
    advantage, mask = torch.tensor([[2.0], [-1.0]]).expand(2, 2), torch.ones(2, 2)
    ratio = (logp - logp.detach()).exp()
    (-(ratio * advantage).mean(1).mean()).backward()
    base = distill_loss(advantage[:, 0].numpy(), logp.detach().numpy(), mask.numpy())
    for i, j in ((0, 0), (1, 1)):
        moved = logp.detach().numpy().copy()
        moved[i, j] += 1e-3
        slope = (distill_loss(advantage[:, 0].numpy(), moved, mask.numpy()) - base) / 1e-3
        assert float(logp.grad[i, j]) == pytest.approx(slope, rel=1e-3)
