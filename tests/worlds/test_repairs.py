"""SCOPE where a task judges steps: failing rollouts go on from before their first wrong step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from workbench.methods.branchgrpo import Branchgrpo
from workbench.methods.grpo import Grpo
from workbench.methods.scope import Scope
from workbench.numerics.forks import nodes_of
from workbench.pipeline import Pipeline, run
from workbench.stages import Card, Checkpoint, Method
from workbench.types import Budget, Cut, Ragged
from workbench.worlds.live.world import LiveWorld

from .conftest import ALPHABET, ToyTask, toy_model, toy_tokenizer
from .scripted_engine import ScriptedEngine, table_script

A, B, C, EQUALS = (ALPHABET.index(c) for c in "abc=")


@dataclass
class StepTask(ToyTask):
    """Every character is a step; "c" is a wrong one, and whoever wrote it has failed."""

    offers = frozenset({"prm"})

    def score(self, rollouts, pool):
        """Right without "c"."""
        right = np.array(["c" not in t for t in rollouts.text], float)
        scores = Ragged.of([[0.1 if c == "c" else 0.9 for c in t] for t in rollouts.text], float)
        lengths = Ragged.of([[1] * len(t) for t in rollouts.text], np.int64)
        extra = {**rollouts.extra, "step_scores": scores, "step_lengths": lengths}
        return rollouts.with_(reward=right, correct=right, extra=extra)


@pytest.fixture
def world(task):
    """After "=", "a", then "b" or "c", then "a" and the end."""
    made = LiveWorld(StepTask(task.pool, task.evaluation), (toy_model(), toy_tokenizer()), seed=3, lr=1e-2)
    tree = {(EQUALS,): {A: 1.0}, (EQUALS, A): {B: 0.5, C: 0.5}, (B,): {A: 1.0}, (C,): {A: 1.0}}
    made.engine = ScriptedEngine(table_script(tree, stop=0))
    return made


def test_repairs_take_the_place_of_what_they_repaired(world):
    pipeline = Pipeline(Grpo(), Scope(max_repairs=2))
    won = 0
    for _, step in run(pipeline, world, Budget(prompts=3, rollouts=12), steps=3, seed=4):
        r = step.rollouts
        row = {i: k for k, i in enumerate(r.id)}
        repairs = np.flatnonzero([c.startswith("repair:") for c in r.context])
        assert len(repairs) == sum(
            min(2, int((r.plain & (r.prompt == p) & (r.correct == 0)).sum())) for p in step.prompts
        )
        for k in repairs:
            parent = row[r.context[k][7:]]
            assert r.parent[k] == r.id[parent]
            assert r.fork_at[k] == 1  # "a" is kept
            assert r.correct[parent] == 0
            good = r.correct[k] == 1
            won += good
            assert step.advantage.keep[k] == good
            assert step.fate_reason[k if not good else parent] == ("repair_failed" if not good else "repaired")
        assert step.evidence(12)[2].sum() == 12  # repairs tell nothing of difficulty
        assert "skipped" not in step.update
        nodes_of(r)
    assert won > 3


class Cuts(Method):
    """Cuts every other rollout after its first token."""

    card = Card("cuts", "Cuts", source="ours")
    checkpoint = Checkpoint(every=1)

    def prune(self, state, frontier, rng) -> Cut:
        """By turns."""
        b = len(frontier)
        out = (frontier.n_tokens == 1) & (frontier.branch % 4 == 3)
        return Cut((~out).astype(np.int64), np.where(out, "cut", ""), np.ones(b))


def test_rollouts_cut_by_another_method_leave_the_others_to_be_repaired(world):
    pipeline = Pipeline(Grpo(), Cuts(), Scope(max_repairs=2))
    for _, step in run(pipeline, world, Budget(prompts=3, rollouts=12), steps=2, seed=4):
        r = step.rollouts
        assert (r.finish == "pruned").any()
        scores = r.extra["step_scores"]
        assert (scores.lengths == np.where(r.finish == "pruned", 0, [len(t) for t in r.text])).all()
        assert any(c.startswith("repair:") for c in r.context)


def test_where_no_step_was_judged_nothing_is_repaired(world):
    world.task.score = lambda rollouts, pool: ToyTask.score(world.task, rollouts, pool)
    for _, step in run(Pipeline(Grpo(), Scope()), world, Budget(prompts=3, rollouts=12), steps=1):
        assert len(step.rollouts) == 12 and not step.rollouts.context.any()


def test_without_scores_of_steps_it_says_what_is_missing(task):
    plain = LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3)
    with pytest.raises(ValueError, match="Scope needs prm, which LiveWorld does not offer"):
        Pipeline(Grpo(), Scope()).check(plain)


def test_a_repair_may_begin_before_its_parent_forked(world):
    """The wrong step lies in what a branch had from its parent: that is whom the repair forked from, as a tree."""
    earlier = 0
    for _, step in run(
        Pipeline(Grpo(), Branchgrpo(forks=1, every=2), Scope(max_repairs=2)), world, Budget(3, 12), steps=3, seed=4
    ):
        r = step.rollouts
        row = {i: k for k, i in enumerate(r.id)}
        nodes = nodes_of(r)
        at = {i: k for k, i in enumerate(nodes["node_id"])}
        for k in np.flatnonzero(np.array(nodes["row"]) >= 0):
            whole, path = 0, k
            while nodes["parent_id"][path] is not None:
                whole, path = whole + nodes["n_tokens"][path], at[nodes["parent_id"][path]]
            assert whole == r.length[nodes["row"][k]]
        repairs = np.flatnonzero([c.startswith("repair:") for c in r.context])
        earlier += sum(r.fork_at[k] < r.fork_at[row[r.parent[k]]] for k in repairs)
        assert np.isfinite(step.update["loss"])
    assert earlier > 0
