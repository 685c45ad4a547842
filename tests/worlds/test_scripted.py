"""The engine that follows a script: it draws, pauses, forks and counts as an engine with a model does."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.worlds.engines import Request, Until
from workbench.worlds.engines.draws import streams

from .scripted_engine import ScriptedEngine, table_script

TREE = {(9,): {1: 0.5, 2: 0.5}, (1,): {3: 1.0}, (2,): {3: 0.25, 4: 0.75}, (1, 3): {4: 1.0}}
ENGINE = ScriptedEngine(table_script(TREE, stop=0))
PREFIXES = [[5, 9], [9]]


def generated(n: int = 200):
    return ENGINE.generate(
        Request.of_groups(
            PREFIXES, np.array([n, n]), np.array([6, 6]), streams(0, [f"r{i}" for i in range(2 * n)]), stop=[0]
        )
    )


def test_answers_are_those_of_the_script_with_its_probabilities():
    made = generated()
    answers = {tuple(row.tolist()) for row in made.tokens.rows()}
    assert answers == {(1, 3, 4, 0), (2, 3, 0), (2, 4, 0)}
    first = made.tokens.values[made.tokens.offsets[:-1]]
    assert abs((first == 1).mean() - 0.5) < 0.1
    by_answer = {tuple(t.tolist()): logp for t, logp in zip(made.tokens.rows(), made.logp.rows(), strict=True)}
    assert by_answer[2, 4, 0] == pytest.approx(np.log([0.5, 0.75, 1.0]))
    assert made.entropy.row(0)[0] == pytest.approx(np.log(2))


def test_counts_are_those_of_a_cache():
    made = generated(10)
    assert made.prefilled == 3
    assert made.decoded == made.tokens.lengths.sum() - 20  # the token that stops is never fed back


def test_segments_are_the_uninterrupted_answers():
    whole, keys = generated(20), streams(0, [f"r{i}" for i in range(40)])
    session = ENGINE.open(Request(PREFIXES, np.repeat([0, 1], 20), keys, stop=[0]))
    parts: list[list[int]] = [[] for _ in range(40)]
    rows = np.arange(40)
    while len(rows):
        made = session.advance(np.ones(len(rows), np.int64))
        for i, row in enumerate(rows):
            parts[row] += made.tokens.row(i).tolist()
        rows = rows[made.finish == ""]
    assert parts == [row.tolist() for row in whole.tokens.rows()]


def test_a_fork_computes_nothing_and_a_row_taken_back_goes_on_as_before():
    session = ENGINE.open(Request([[9]], np.array([0]), streams(0, ["a"]), stop=[0]))
    first = session.advance(np.array([2])).tokens.row(0).tolist()
    counts = session.prefilled, session.decoded
    session.keep(np.array([0, 0]), streams(0, ["a", "a"]))
    assert (session.prefilled, session.decoded) == counts
    session.rewind(1, 1, first[0])
    again = session.advance(np.array([1, 1]))
    assert again.tokens.row(1).tolist() == first[1:]


def test_forced_and_likeliest_tokens():
    session = ENGINE.open(Request([[9], [2]], np.array([0, 1]), streams(0, ["a", "b"]), stop=[0]))
    ids, logp = session.top(3)
    assert ids.tolist() == [[1, 2, -1], [4, 3, -1]]
    assert logp[1] == pytest.approx([np.log(0.75), np.log(0.25), -np.inf])
    session.force(1, 3)
    made = session.advance(np.array([1, 1]))
    assert made.tokens.row(1).tolist() == [3]
    assert made.logp.row(1) == pytest.approx([np.log(0.25)])


def test_pauses_at_markers_and_where_it_was_undecided():
    keys = streams(0, ["a"])
    at_marker = ENGINE.open(Request([[1]], np.array([0]), keys, stop=[0])).advance(np.array([6]), Until(frozenset({3})))
    assert at_marker.tokens.values.tolist() == [3]
    unsure = ENGINE.open(Request([[9]], np.array([0]), keys, stop=[0])).advance(np.array([6]), Until(entropy=0.6))
    assert unsure.tokens.lengths.tolist() == [1]
    assert unsure.finish.tolist() == [""]


def test_greedy_takes_the_likeliest():
    made = ENGINE.generate(
        Request.of_groups([[2]], np.array([1]), np.array([6]), streams(0, ["a"]), temperature=0, stop=[0])
    )
    assert made.tokens.values.tolist() == [4, 0]
