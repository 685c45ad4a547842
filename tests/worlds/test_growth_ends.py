"""How a branch may end, what its forks may begin with, and what is remembered of its way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pytest

from workbench.pipeline.fates import fates
from workbench.pipeline.frontier import chosen
from workbench.stages import Branch, Checkpoint, Method, Only, Prune
from workbench.types import Advantage, Cut, Fork, Plan

from .conftest import ALPHABET
from .scripted_engine import ScriptedEngine, table_script

A, B, C, ONE, EQUALS = (ALPHABET.index(c) for c in "abc1=")


@pytest.fixture
def scripted(world):
    """After the prompt's "=", "1", then "a", "b" or "c", then "1", then the end."""
    tree = {(EQUALS,): {ONE: 1.0}, (EQUALS, ONE): {A: 0.6, B: 0.3, C: 0.1}}
    tree |= {(x,): {ONE: 1.0} for x in (A, B, C)}
    world.engine = ScriptedEngine(table_script(tree, stop=0))
    return world


def test_each_fork_begins_with_a_token_of_its_own(scripted):
    def branch(frontier):
        b = len(frontier)
        return Fork(np.where(frontier.n_tokens == 1, 4, 1), np.full(b, -1), frontier.extra["top_tokens"])

    rows = scripted.sample(Plan([0], [1], step=1), Branch(branch, Checkpoint(every=1, top=2)))
    assert rows.text[1:3].tolist() == ["1a1", "1b1"]  # the two likeliest; the third of the new ones is drawn
    assert rows.extra["forced"].tolist() == [False, True, True, False]


def ends_with(scripted, finish):
    def prune(frontier):
        b = len(frontier)
        first = frontier.n_tokens == 1
        half = np.full(b, 0.5)
        stops = (frontier.n_tokens == 2) & (frontier.branch == 0)
        kinds = None if finish is None else np.full(b, finish, dtype=object)
        return Cut((~stops).astype(np.int64), np.where(stops, "told", ""), np.where(first, half, 1.0), finish=kinds)

    return scripted.sample(Plan([0], [2], step=1), None, Prune(prune, Checkpoint(every=1)))


@pytest.mark.parametrize(
    ("finish", "judged", "fate"),
    [(None, False, "pruned"), ("aborted", True, "discarded"), ("stop", True, "trained"), ("carried", False, "carried")],
)
def test_a_cut_says_how_a_rollout_ends(scripted, finish, judged, fate):
    rows = ends_with(scripted, finish)
    assert rows.finish.tolist() == [finish or "pruned", "stop"]
    assert rows.extra["cut_reason"].tolist() == ["told", ""]
    assert np.isfinite(rows.reward).tolist() == [judged, True]
    assert rows.extra["propensity"].tolist() == [0.5, 0.5]
    advantage = Advantage.start(rows)
    if finish == "aborted":
        advantage = advantage.drop(rows.finish == "aborted", "aborted")
    assert fates(rows, advantage)[0].tolist() == [fate, "trained"]


def test_a_finished_rollout_may_wait_for_its_group(scripted):
    rows = scripted.sample(Plan([0], [2], step=1))
    waits = Advantage.start(rows).drop(np.array([True, False]), "carried")
    assert fates(rows, waits)[0].tolist() == ["carried", "trained"]


def test_marks_are_where_a_marker_stood_and_forks_inherit_those_before_them(scripted):
    def branch(frontier):
        b = len(frontier)
        seen.append((frontier.n_prompts, frontier.round, b))
        return Fork(np.where(frontier.n_tokens == 1, 2, 1), np.full(b, -1), np.full(b, -1))

    seen = []
    rows = scripted.sample(
        Plan([0, 1], [1, 1], step=1), Branch(branch, Checkpoint(every=8, markers=("1",), keeps=("marks",)))
    )
    assert [m.tolist() for m in rows.extra["marks"].rows()] == [[1, 3]] * 4
    assert seen == [(2, 0, 2), (2, 0, 4)]
    scripted.score(rows, frozenset({"current"}))  # marks are no column of tokens


def test_of_two_forks_the_first_speaks_where_the_last_does_not():
    alone, one, two = np.array([True, False]), np.array([7, 8]), np.array([[1, 2], [3, 4]])
    assert chosen(alone, one, one + 2).tolist() == [7, 10]
    assert chosen(alone, one, two).tolist() == [[7, 7], [3, 4]]


def test_a_verb_may_hang_on_a_setting():
    class Sometimes(Method):
        markers: tuple[str, ...] = ()
        acts_if: ClassVar[Mapping[str, str]] = {"prune": "markers"}

        def prune(self, state, frontier, rng):
            return "cut"

    class Always(Sometimes):
        markers = ("x",)

    assert Sometimes().verbs == ()
    assert Always().verbs == ("prune",)
    assert Always().prune((), None, None) == "cut"
    with pytest.raises(ValueError, match="prune was asked of it"):
        Only(Sometimes(), "prune")
