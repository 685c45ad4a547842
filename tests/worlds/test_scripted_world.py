"""A live world whose engine follows a script: which texts a tree holds is known beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.stages import Branch, Checkpoint, Prune
from workbench.types import Cut, Fork, Plan

from .conftest import ALPHABET
from .scripted_engine import ScriptedEngine, table_script

A, B, ONE, TWO, EQUALS = (ALPHABET.index(c) for c in "ab12=")


@pytest.fixture
def scripted(world):
    """After the prompt's "=", always "a" then "1" or "2" evenly, then "b", then the end."""
    tree = {(EQUALS,): {A: 1.0}, (A,): {ONE: 0.5, TWO: 0.5}, (ONE,): {B: 1.0}, (TWO,): {B: 1.0}}
    world.engine = ScriptedEngine(table_script(tree, stop=0))
    return world


def test_a_forced_fork_holds_the_other_text(scripted):
    def branch(frontier):
        b = len(frontier)
        undecided = frontier.extra["top_logp"][:, 1] > -1
        other = np.where(undecided, frontier.extra["top_tokens"][:, 1], -1)
        return Fork(np.where(undecided, 2, 1), np.full(b, -1), other)

    rows = scripted.sample(Plan([0, 1], [1, 1], step=1), Branch(branch, Checkpoint(every=1, top=2)))
    assert rows.parent.tolist() == ["", "1:q2:0", "", "1:q3:0"]
    assert rows.fork_at.tolist() == [-1, 1, -1, 1]
    assert set(rows.text[[0, 2]]) <= {"a1b", "a2b"}
    assert rows.text[[1, 3]].tolist() == ["a2b", "a2b"]  # of equals, the lower id is the likeliest
    assert rows.logp.row(1) == pytest.approx([0, np.log(0.5), 0, 0])
    assert rows.finish.tolist() == ["stop"] * 4


def test_the_tail_shows_what_was_written_since_the_last_look(scripted):
    tails = []

    def prune(frontier):
        tails.append(frontier.tail.tolist())
        go = frontier.tail != "2"
        reason = np.where(go, "", "two").astype(object)
        return Cut(go.astype(np.int64), reason, np.ones(len(frontier)))

    rows = scripted.sample(Plan([0], [20], step=1), None, Prune(prune, Checkpoint(every=1, text=True)))
    cut = rows.finish == "pruned"
    assert tails[0] == ["a"] * 20
    assert sorted(set(tails[1])) == ["1", "2"]
    assert set(rows.text[cut]) == {"a2"}
    assert set(rows.text[~cut]) == {"a1b"}
    assert set(rows.extra["cut_reason"][cut]) == {"two"}
    assert np.isnan(rows.reward[cut]).all()
    assert np.isfinite(rows.reward[~cut]).all()
