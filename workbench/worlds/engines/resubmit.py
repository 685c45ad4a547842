"""Sessions on engines that keep no rows between calls: what a row has so far is sent again as its prompt.

Such an engine finds the keys and values of that prompt in its prefix cache, or computes them again; what it computed is
counted, not assumed. A fork is a second prompt that begins alike, a rewound row a shorter one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from workbench.types import Ragged
from workbench.worlds.engines import NEVER, Segments, Until
from workbench.worlds.engines.paths import PathSession, check


class Request(NamedTuple):
    """Continue prompt by at most limit tokens, with the draws of stream key (uint64) from position on.

    forced: the first token whatever its draw, -1 for none.
    """

    prompt: tuple[int, ...]
    key: int
    position: int
    limit: int
    forced: int = -1


class Reply(NamedTuple):
    """What one request made: tokens (T,) int32, logp and entropy (T,) float32, finish "stop", "length", or "" where it
    paused or was broken off. cached: tokens of its prompt that were not computed. top: (ids, logp), each (m,), of the
    likeliest first tokens at temperature 1, where asked for."""

    tokens: np.ndarray
    logp: np.ndarray
    entropy: np.ndarray
    finish: str
    cached: int
    top: tuple[np.ndarray, np.ndarray] | None = None


class Resubmitting:
    """`SegmentEngine` from one method, `ask`."""

    lacks: frozenset[str] = frozenset({"hidden"})
    """Of what a live world offers, what this engine cannot give."""

    copy_of: object = None

    def ask(
        self,
        requests: Sequence[Request],
        *,
        temperature: float,
        stop: Collection[int],
        until: Until = NEVER,
        top: int = 0,
    ) -> list[Reply]:
        """One reply to each request, in their order. top: how many likely first tokens to report."""
        raise NotImplementedError

    def open(
        self,
        prefixes: Sequence[Sequence[int]],
        owner: np.ndarray,
        keys: np.ndarray,
        *,
        position: np.ndarray | None = None,
        temperature: float = 1.0,
        stop: Collection[int] = (),
    ) -> ResubmittedSession:
        """See `SegmentEngine.open`. Nothing is computed before the first `advance`."""
        return ResubmittedSession(self, prefixes, owner, keys, position, temperature, stop)

    def generate(
        self,
        prefixes: Sequence[Sequence[int]],
        n: np.ndarray,
        max_tokens: np.ndarray,
        keys: np.ndarray,
        *,
        position: np.ndarray | None = None,
        temperature: float = 1.0,
        stop: Collection[int] = (),
    ) -> Segments:
        """See `Engine.generate`. A row that was broken off has finish "aborted"."""
        began, n = time.perf_counter(), np.asarray(n, np.int64)
        prompts = _prompts(prefixes)
        owner = np.repeat(np.arange(len(prompts)), n)
        limit = np.repeat(np.asarray(max_tokens, np.int64), n)
        if len(limit) and limit.min() < 1:
            raise ValueError(f"max_tokens must be at least 1, not {limit.min()}")
        first = np.zeros(len(owner), np.int64) if position is None else np.asarray(position, np.int64)
        requests = [
            Request(prompts[o], int(k), int(p), int(m)) for o, k, p, m in zip(owner, keys, first, limit, strict=True)
        ]
        replies = self.ask(requests, temperature=temperature, stop=stop) if requests else []
        finish = np.array([r.finish or "aborted" for r in replies], dtype=object)
        return _segments(replies, finish, *counted(requests, replies), time.perf_counter() - began)


class ResubmittedSession(PathSession):
    """See `workbench.worlds.engines.Session`."""

    def __init__(self, engine: Resubmitting, prefixes, owner, keys, position, temperature, stop) -> None:
        if not len(prefixes):
            raise ValueError("a session needs prefixes, each with one token at least")
        super().__init__(_prompts(prefixes), owner, keys, position)
        self.engine, self.temperature, self.stops = engine, temperature, frozenset(stop)

    def advance(self, limit: np.ndarray, until: Until = NEVER) -> Segments:
        """See `Session.advance`. prefilled counts all tokens of the prompts that no cache had, generated ones too."""
        began = time.perf_counter()
        limit = np.asarray(limit, np.int64)
        check(limit, self._forced)
        requests = self._requests(limit)
        going = [q for q in requests if q.limit]
        self._forced = {}
        made = iter(self.engine.ask(going, temperature=self.temperature, stop=self.stops, until=until) if going else ())
        replies = [next(made) if q.limit else _waiting(q) for q in requests]
        prefilled, decoded = self._count(requests, replies)
        self.paths = [path + tuple(r.tokens.tolist()) for path, r in zip(self.paths, replies, strict=True)]
        self.place = self.place + np.array([len(r.tokens) for r in replies], np.int64)
        finish = np.array(["stop" if r.finish == "stop" else "" for r in replies], dtype=object)
        self._select(np.flatnonzero(finish == ""))
        return _segments(replies, finish, prefilled, decoded, time.perf_counter() - began)

    def top(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Session.top`. One more token of each row is computed and thrown away."""
        requests = self._requests(np.ones(len(self), np.int64))
        replies = self.engine.ask(requests, temperature=1.0, stop=(), top=m)
        self._count(requests, replies)
        tops = [r.top for r in replies if r.top is not None]
        if len(tops) != len(replies):
            raise RuntimeError("the engine left out the likeliest tokens that it was asked for")
        return np.array([ids for ids, _ in tops], np.int32), np.array([logp for _, logp in tops], np.float32)

    def hidden(self) -> np.ndarray:
        """Raises NotImplementedError: such engines hand out no hidden states."""
        raise NotImplementedError(f"{type(self.engine).__name__} gives no hidden states; use engine='transformers'")

    def _requests(self, limit: np.ndarray) -> list[Request]:
        columns = zip(self.paths, self.keys.tolist(), self.place.tolist(), np.asarray(limit).tolist(), strict=True)
        return [Request(path, k, p, m, self._forced.get(i, -1)) for i, (path, k, p, m) in enumerate(columns)]

    def _count(self, requests: Sequence[Request], replies: Sequence[Reply]) -> tuple[int, int]:
        prefilled, decoded = counted(requests, replies)
        self.prefilled += prefilled
        self.decoded += decoded
        return prefilled, decoded


def counted(requests: Sequence[Request], replies: Sequence[Reply]) -> tuple[int, int]:
    """Prompt tokens computed, and tokens fed back: all that were made but the last of each."""
    prefilled = sum(len(q.prompt) - r.cached for q, r in zip(requests, replies, strict=True))
    return prefilled, sum(max(len(r.tokens) - 1, 0) for r in replies)


def _waiting(request: Request) -> Reply:
    """What a row makes that waits."""
    none = np.empty(0, np.float32)
    return Reply(np.empty(0, np.int32), none, none, "", len(request.prompt))


def _prompts(prefixes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    prompts = [tuple(int(t) for t in p) for p in prefixes]
    if not all(prompts):
        raise ValueError("a prefix without tokens cannot be continued; a prompt has at least one token")
    return prompts


def _segments(replies: Sequence[Reply], finish: np.ndarray, prefilled: int, decoded: int, seconds: float) -> Segments:
    columns = (
        Ragged.of([r.tokens for r in replies], np.int32),
        Ragged.of([r.logp for r in replies], np.float32),
        Ragged.of([r.entropy for r in replies], np.float32),
    )
    return Segments(*columns, finish, prefilled, decoded, seconds)
