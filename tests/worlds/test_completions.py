"""Sessions that send their rows again: what they make is what a session that keeps its rows makes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.types import Plan, Rollouts
from workbench.worlds.engines import NEVER, Request, Until
from workbench.worlds.engines.completions import Completion, CompletionEngine
from workbench.worlds.engines.draws import streams
from workbench.worlds.live.growth import GrowingRow, Growth

from .conftest import pool_of
from .scripted_engine import ScriptedEngine

STOP, MARK = 0, 5
PREFIXES = [[9, 8, 7], [9, 8], [4]]


def script(path):
    """Three or four tokens may follow; which and how likely depends on the last two and the length."""
    shift = sum(path[-2:]) + len(path)
    weights = {(shift * k) % 7 + 1: 1.0 + (shift + k) % 4 for k in range(1, 5)}
    weights[STOP] = 0.4
    total = sum(weights.values())
    return {token: w / total for token, w in weights.items()}


class Again(CompletionEngine):
    """Answers each request in a scripted session of its own; the prompts seen before are its prefix cache."""

    def __init__(self):
        self.seen, self.asked = set(), 0

    def complete(self, prompts, *, temperature, stop, until=NEVER, top=0):
        return [self._one(q, temperature, stop, until, top) for q in prompts]

    def _one(self, q, temperature, stop, until, top):
        self.asked += 1
        known = max((n for n in range(len(q.tokens)) if q.tokens[:n] in self.seen), default=0)
        self.seen |= {q.tokens[:n] for n in range(len(q.tokens) + 1)}
        session = ScriptedEngine(script).open(
            Request([q.tokens], np.zeros(1, int), np.array([q.key], np.uint64), position=np.array([q.position]),
            temperature=temperature, stop=stop,
        ))  # fmt: skip
        likely = session.top(top) if top else None
        if q.forced >= 0:
            session.force(0, q.forced)
        made = session.advance(np.array([q.limit]), until)
        finish = made.finish[0] or ("length" if len(made.tokens.values) == q.limit else "")
        columns = made.tokens.values, made.logp.values, made.entropy.values
        return Completion(*columns, finish, known, None if likely is None else (likely[0][0], likely[1][0]))


def same(a, b):
    for mine, theirs in zip((a.tokens, a.logp, a.entropy), (b.tokens, b.logp, b.entropy), strict=True):
        assert mine.offsets.tolist() == theirs.offsets.tolist()
        assert mine.values.tolist() == pytest.approx(theirs.values.tolist())
    assert a.finish.tolist() == b.finish.tolist()


@given(st.integers(0, 1000), st.data())
@settings(max_examples=60, deadline=None)
def test_it_makes_what_a_session_with_its_own_rows_makes(seed, data):
    owner, keys = np.array([0, 1, 1, 2]), streams(seed, "abcd")
    more = {"stop": [STOP], "temperature": data.draw(st.sampled_from([0.0, 0.6, 1.0])), "position": np.arange(4)}
    one, two = (engine.open(Request(PREFIXES, owner, keys, **more)) for engine in (ScriptedEngine(script), Again()))
    forced = False
    for turn in range(4):
        if not len(one):
            break
        limit = np.array(data.draw(st.lists(st.integers(0, 5), min_size=len(one), max_size=len(one))))
        limit[0] = max(limit[0], forced)  # 0 waits, which a forced token does not
        until = data.draw(st.sampled_from([NEVER, Until(frozenset({MARK})), Until(entropy=1.3)]))
        made = one.advance(limit, until)
        same(two.advance(limit, until), made)
        assert len(one) == len(two)
        if not len(one):
            break
        rows = np.array(data.draw(st.lists(st.integers(0, len(one) - 1), min_size=1, max_size=5)))
        fresh = streams(seed, [f"{turn}:{i}" for i in range(len(rows))])
        for session in (one, two):
            session.keep(rows, fresh)
        if forced := data.draw(st.booleans()):
            for session in (one, two):
                session.force(0, 3)
        assert one.top(2)[0].tolist() == two.top(2)[0].tolist()


def test_a_rewound_row_goes_on_from_where_it_was():
    keys = streams(0, "ab")
    session = Again().open(Request(PREFIXES, np.array([0, 0]), keys))
    whole = session.advance(np.array([6, 6]))
    session.rewind(1, 3, int(whole.tokens.row(1)[2]))
    again = session.advance(np.array([1, 3]))
    assert again.tokens.row(1).tolist() == whole.tokens.row(1)[3:].tolist()
    with pytest.raises(ValueError, match="is 8, not 4"):
        Again().open(Request([[9, 8, 7]], np.array([0]), keys[:1])).rewind(0, 1, 4)


def test_what_no_cache_had_is_counted_once():
    engine = Again()
    session = engine.open(Request(PREFIXES[:1], np.zeros(3, int), streams(0, "abc")))
    session.advance(np.array([4, 4, 4]))
    # the fake cache never knows the last token of a prompt: three tokens for the first row, one for each of the others
    assert (session.prefilled, session.decoded) == (3 + 1 + 1, 9)
    session.keep(np.array([0, 0]), streams(0, "xy"))
    session.advance(np.array([1, 1]))
    # tokens made and fed one by one are no prompts that this cache has seen
    assert (session.prefilled, session.decoded) == (5 + 4 + 1, 9)


def test_whole_answers_are_those_of_the_engine_that_keeps_rows():
    n, limit, keys = np.array([2, 0, 3]), np.array([6, 6, 9]), streams(1, "abcde")
    want = ScriptedEngine(script).generate(Request.of_groups(PREFIXES, n, limit, keys, stop=[STOP]))
    same(Again().generate(Request.of_groups(PREFIXES, n, limit, keys, stop=[STOP])), want)
    assert Again().generate(Request.of_groups(PREFIXES, np.zeros(3, int), limit, keys[:0])).finish.tolist() == []


def test_a_row_broken_off_says_so():
    class Broken(Again):
        """Gives back what it has after the first row."""

        def _one(self, q, *rest):
            reply = super()._one(q, *rest)
            return reply if self.asked == 1 else reply._replace(tokens=reply.tokens[:1], finish="")

    made = Broken().generate(Request.of_groups([[1]], np.array([2]), np.array([3]), streams(0, "ab")))
    assert made.finish.tolist() == ["length", "aborted"]


def test_a_rollout_whose_segment_was_broken_off_before_its_first_token_goes_on():
    class Stalls(Again):
        """Answers the first request with nothing."""

        def _one(self, q, *rest):
            reply = super()._one(q, *rest)
            return reply if self.asked > 1 else Completion.empty()

    rows = Rollouts.of_plan(Plan(np.array([0]), np.array([1]), step=1), pool_of(range(2, 4)))
    session = Stalls().open(Request([[1]], np.array([0]), streams(0, "a")))
    growth = Growth(
        session, [GrowingRow(0, "a", 3)], rows, seed=0, branch=None, prune=None, decode=lambda made: [""] * len(made)
    )
    growth.run()
    assert len(growth.branches[0].tokens) == 3
    assert growth.branches[0].finish == "length"


def test_what_cannot_be_done_is_refused():
    engine = Again()
    session = engine.open(Request(PREFIXES, np.array([0]), streams(0, "a")))
    with pytest.raises(NotImplementedError, match="Again gives no hidden states"):
        session.hidden()
    with pytest.raises(ValueError, match="no fewer than 0 tokens, not -1"):
        session.advance(np.array([-1]))
    session.force(0, 3)
    with pytest.raises(ValueError, match="row 0 cannot wait: a token was forced on it"):
        session.advance(np.array([0]))
    with pytest.raises(ValueError, match="forced tokens wait"):
        session.keep(np.array([0]), streams(0, "a"))
    with pytest.raises(ValueError, match="needs prefixes"):
        engine.open(Request([], np.array([], int), streams(0, "")))
    with pytest.raises(ValueError, match="one token at least"):
        engine.generate(Request.of_groups([[]], np.array([1]), np.array([1]), streams(0, "a")))
    with pytest.raises(ValueError, match="limit of a row must be at least 1, not 0"):
        engine.generate(Request.of_groups([[1]], np.array([1]), np.array([0]), streams(0, "a")))
