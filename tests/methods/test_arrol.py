"""ARRoL at its checkpoint: protection revives rows, and the propensity that is told stays the chance of the draw."""

from __future__ import annotations

import numpy as np

from workbench.methods.arrol import CARD, Arrol, Quality
from workbench.methods.arrol.heads import Head
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld
from workbench.types import Budget, Frontier, Ragged


def test_protected_rows_tell_the_chance_of_the_draw():
    method, b = Arrol(l_detect=2, kappa=0.1, p_max=0.1, warmup=0, protect=2), 4
    head = Quality(Head(np.zeros(4)), np.eye(128, dtype=np.int64)[64], np.eye(128, dtype=np.int64)[64], np.empty(0), 1)
    zeros = np.zeros(b, np.int64)
    flat = Ragged.of([[-1.0, -1.0]] * b, np.float32)
    frontier = Frontier(
        prompt=zeros, group=zeros, branch=np.arange(b), parent=zeros - 1, n_tokens=np.full(b, 2),
        tokens=Ragged.of([[1, 2]] * b, np.int32), logp=flat, entropy=flat, tail=np.full(b, "", dtype=object),
        capacity=8, extra={}, memory={}, born=zeros, n_prompts=1,
    )  # fmt: skip
    for seed in range(20):
        cut = method.prune(head, frontier, np.random.default_rng(seed))
        assert (cut.width > 0).sum() >= 2  # however small the chance
        assert np.allclose(cut.propensity, 0.1)
    assert any("no exact weight" in d for d in CARD.deviations)


def test_scores_are_held_against_outcomes_before_the_head_learns_them():
    pipeline, world = Pipeline(Grpo(), Arrol(l_detect=1)), ScriptedWorld(24, Arrol().needs)
    states, step = next(run(pipeline, world, Budget(prompts=6, rollouts=48), steps=1))
    made, seen = states["arrol"], step.rollouts.plain
    assert np.abs(made.head.outer).sum() > 0  # it has learned
    right = step.rollouts.correct[seen].sum()
    assert (made.pos[64], made.neg[64]) == (right, seen.sum() - right)  # sigmoid(0) of 128 bins: it knew nothing then
    assert made.pos.sum() + made.neg.sum() == seen.sum()
