"""Segments: pausing, forking and going back change nothing of what is drawn, and cost no prefix twice."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.worlds.engines import Request, Session, Until
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.graph_engine import GraphEngine
from workbench.worlds.engines.transformers_engine import TransformersEngine

from .conftest import toy_model
from .test_engine import LIMIT, NAMES, PREFIXES, N, run

OWNER = np.repeat(np.arange(5), N)


@pytest.fixture(params=[TransformersEngine, GraphEngine])
def opened(request):
    """Opens a session of an engine."""

    def open_(owner=OWNER, names=NAMES, **options) -> Session:
        return request.param(toy_model()).open(Request(PREFIXES, owner, streams(0, names), stop=[0, 1], **options))

    return open_


def grown(session: Session, limit: np.ndarray, every: int) -> tuple[list[list[int]], list[list[float]]]:
    """Tokens and log-probabilities of all rows, made in segments of `every`."""
    tokens: list[list[int]] = [[] for _ in limit]
    logp: list[list[float]] = [[] for _ in limit]
    rows = np.arange(len(limit))
    while len(rows):
        left = limit[rows] - [len(tokens[r]) for r in rows]
        made = session.advance(np.minimum(left, every))
        for i, r in enumerate(rows):
            tokens[r] += made.tokens.row(i).tolist()
            logp[r] += made.logp.row(i).tolist()
        rows = rows[made.finish == ""]
        on = np.flatnonzero([len(tokens[r]) < limit[r] for r in rows])
        session.keep(on, session.keys[on])
        rows = rows[on]
    return tokens, logp


@pytest.mark.parametrize("every", [1, 2, 3, 100])
def test_segments_are_the_uninterrupted_rollouts_token_for_token(every, opened):
    whole = run()
    limit = np.repeat(LIMIT, N)
    session = opened()
    tokens, logp = grown(session, limit, every)
    assert tokens == [row.tolist() for row in whole.tokens.rows()]
    assert np.concatenate(logp) == pytest.approx(whole.logp.values, abs=1e-5)
    assert session.prefilled == 3 + 8 + 4 + 5  # every prefix that has rows once, however often it pauses


def test_forks_share_what_stands_before_them_and_draw_on_their_own(opened):
    session = opened(np.array([1]), ["root"])
    first = session.advance(np.array([4]))
    names = ["root", "root/4.1", "root/4.2"]
    session.keep(np.zeros(3, np.int64), streams(0, names))
    session.top(1)
    assert (session.prefilled, session.decoded) == (8, 4)  # every token once for all three
    rest = session.advance(np.full(3, 5))
    prefix = PREFIXES[1] + first.tokens.row(0).tolist()
    alone = TransformersEngine(toy_model()).generate(
        Request.of_groups(
            [prefix], np.array([3]), np.array([5]), streams(0, names), position=np.full(3, 4), stop=[0, 1]
        )
    )
    assert [r.tolist() for r in rest.tokens.rows()] == [r.tolist() for r in alone.tokens.rows()]
    assert rest.logp.values == pytest.approx(alone.logp.values, abs=1e-5)
    assert len({tuple(r) for r in rest.tokens.rows()}) > 1


@pytest.mark.parametrize("back", [1, 3, 4])
def test_a_row_taken_back_draws_again_what_it_drew(back, opened):
    session = opened(np.array([1]), ["root"])
    first = session.advance(np.array([4])).tokens.row(0).tolist()
    prefilled = session.prefilled
    session.rewind(0, back, first[-back - 1] if back < 4 else None)
    again = session.advance(np.array([back])).tokens.row(0).tolist()
    assert again == first[-back:]
    assert session.prefilled == prefilled
    assert session.decoded <= 4 + (back < 4) + back


def test_a_forced_token_has_the_probability_it_would_have_had(opened):
    session = opened(np.array([0]), ["root"])
    session.advance(np.array([2]))
    ids, logp = session.top(3)
    session.force(0, int(ids[0, 2]))
    made = session.advance(np.array([1]))
    assert made.tokens.values.tolist() == [ids[0, 2]]
    assert made.logp.values[0] == pytest.approx(logp[0, 2], abs=1e-5)


def test_rows_pause_after_a_marker_or_an_uncertain_token_and_nowhere_else(opened):
    limit = np.repeat(LIMIT, N)
    whole = run()
    for until, wanted in (
        (Until(markers=frozenset({7, 9})), lambda i, t: whole.tokens.row(i)[t] in (7, 9)),
        (Until(entropy=2.0), lambda i, t: whole.entropy.row(i)[t] > 2.0),
    ):
        made = opened().advance(limit, until)
        for i in range(len(limit)):
            full = whole.tokens.row(i)
            stop = next((t + 1 for t in range(len(full)) if wanted(i, t)), len(full))
            assert made.tokens.row(i).tolist() == full[:stop].tolist()


def test_pruned_rows_leave_and_the_others_do_not_notice(opened):
    limit = np.repeat(LIMIT, N)
    whole = run()
    session = opened()
    first = session.advance(np.minimum(limit, 2))
    live = np.flatnonzero((first.finish == "") & (limit > 2))
    places = np.flatnonzero(limit[first.finish == ""] > 2)
    half = np.arange(0, len(places), 2)
    session.keep(places[half], session.keys[places[half]])
    rest = session.advance(limit[live[half]] - 2)
    for i, row in enumerate(live[half]):
        assert rest.tokens.row(i).tolist() == whole.tokens.row(row)[2:].tolist()


def test_rows_that_wait_make_later_what_they_would_have_made(opened):
    limit, whole = np.repeat(LIMIT, N), run()
    session = opened()
    even = np.arange(len(limit)) % 2 == 0
    first = session.advance(np.where(even, np.minimum(limit, 2), 0))
    assert first.tokens.lengths[~even].tolist() == [0] * int((~even).sum())
    here = np.flatnonzero(first.finish == "")
    rest = session.advance(np.where(even, 0, limit)[here])
    for k, row in enumerate(here):
        if not even[row]:
            assert rest.tokens.row(k).tolist() == whole.tokens.row(row).tolist()
            assert rest.logp.row(k) == pytest.approx(whole.logp.row(row), abs=1e-5)


def test_only_what_goes_on_is_fed_and_rows_taken_back_share_a_pass():
    model = toy_model()
    session = TransformersEngine(model).open(Request(PREFIXES, np.arange(3), streams(0, "abc")))
    passes = []
    model.base_model.register_forward_hook(lambda *_: passes.append(1))
    made = session.advance(np.full(3, 4))
    assert (len(passes), made.decoded) == (3, 9)  # nobody has asked what comes after the fourth token
    session.keep(np.array([1, 2]), session.keys[1:])
    for row, tokens in enumerate(made.tokens.take(np.array([1, 2])).rows()):
        session.rewind(row, 2, int(tokens[1]))
    again = session.advance(np.full(2, 2))
    assert again.tokens.values.tolist() == [*made.tokens.row(1)[2:], *made.tokens.row(2)[2:]]
    assert (len(passes), session.decoded) == (5, 9 + 2 + 2)


def test_empty_prefixes_and_negative_limits_are_errors(opened):
    with pytest.raises(ValueError, match="one token at least"):
        TransformersEngine(toy_model()).open(Request([[]], np.array([0]), streams(0, ["a"])))
    with pytest.raises(ValueError, match="no fewer than 0 tokens, not -1"):
        opened().advance(np.full(len(OWNER), -1))
