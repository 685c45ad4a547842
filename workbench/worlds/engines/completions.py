"""Prefix cache instead of a session: engines that keep no rows between calls are sent what a row has so far as its prompt.

Such an engine finds the keys and values of that prompt in its prefix cache, or computes them again; what it computed is
counted, not assumed. A fork is a second prompt that begins alike, a rewound row a shorter one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from workbench.worlds.engines import NEVER, Engine, Request, Segments, Session, Until


class Prompt(NamedTuple):
    """Continue tokens by at most limit more, with the draws of stream key (uint64) from position on.

    forced: the first token whatever its draw, -1 for none.
    """

    tokens: tuple[int, ...]
    key: int
    position: int
    limit: int
    forced: int = -1


class Completion(NamedTuple):
    """What one prompt was continued by: tokens (T,) int32, logp and entropy (T,) float32, finish "stop", "length", or ""
    where it paused or was broken off. cached: tokens of the prompt that were not computed. top: (ids, logp), each (m,), of
    the likeliest first tokens at temperature 1, where wanted."""

    tokens: np.ndarray
    logp: np.ndarray
    entropy: np.ndarray
    finish: str
    cached: int
    top: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def empty(cls, cached: int = 0) -> Completion:
        """Of no tokens."""
        return cls(np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.float32), "", cached)


class CompletionEngine(Engine):
    """An engine from one method, `complete`."""

    lacks = frozenset({"hidden"})

    def complete(
        self,
        prompts: Sequence[Prompt],
        *,
        temperature: float,
        stop: Collection[int],
        until: Until = NEVER,
        top: int = 0,
    ) -> list[Completion]:
        """One completion of each prompt, in their order. top: how many likely first tokens to report."""
        raise NotImplementedError

    def open(self, request: Request) -> CompletionSession:
        """See `Engine.open`. Nothing is computed before the first `advance`."""
        return CompletionSession(self, request)

    def generate(self, request: Request) -> Segments:
        """See `Engine.generate`. A row that was broken off has finish "aborted"."""
        began, request = time.perf_counter(), request.distinct()
        assert request.limit is not None and request.position is not None
        columns = (c.tolist() for c in (request.owner, request.keys, request.position, request.limit))
        prompts = [Prompt(tuple(request.prefixes[o]), k, p, m) for o, k, p, m in zip(*columns, strict=True)]
        made = self.complete(prompts, temperature=request.temperature, stop=request.stop) if prompts else []
        finish = np.array([one.finish or "aborted" for one in made], dtype=object)
        return Segments.of(made, finish, *counted(prompts, made), time.perf_counter() - began)


class PathSession(Session):
    """The part of a session without a cache of its own that is about rows alone.

    paths: the tokens of each row, prefix and generated; place (B,) int64: where in its stream it is."""

    def __init__(self, request: Request) -> None:
        request = request.distinct()
        super().__init__(request)
        assert request.position is not None
        self.paths, self.place = [tuple(request.prefixes[o]) for o in request.owner], request.position

    def rewind(self, row: int, tokens: int, last: int | None) -> None:
        """See `Session.rewind`."""
        if tokens < 1:
            return
        path = self.paths[row][:-tokens]
        if last is not None and path[-1] != last:
            raise ValueError(f"the token before those taken back is {path[-1]}, not {last}")
        self.paths[row] = path
        self.place[row] -= tokens

    def _select(self, rows: np.ndarray) -> None:
        self.paths = [self.paths[r] for r in rows]
        self.keys, self.place = self.keys[rows], self.place[rows]


class CompletionSession(PathSession):
    """See `workbench.worlds.engines.Session`."""

    def __init__(self, engine: CompletionEngine, request: Request) -> None:
        super().__init__(request)
        self.engine = engine

    def advance(self, limit: np.ndarray, until: Until = NEVER) -> Segments:
        """See `Session.advance`. prefilled counts all tokens of the prompts that no cache had, generated ones too."""
        began = time.perf_counter()
        prompts = self._prompts(self._limits(limit))
        going = [q for q in prompts if q.limit]
        self._forced = {}
        stop = frozenset(self.stops.tolist())
        more = self.engine.complete(going, temperature=self.temperature, stop=stop, until=until) if going else []
        made = iter(more)
        rows = [next(made) if q.limit else Completion.empty(len(q.tokens)) for q in prompts]
        prefilled, decoded = self._count(prompts, rows)
        self.paths = [path + tuple(r.tokens.tolist()) for path, r in zip(self.paths, rows, strict=True)]
        self.place = self.place + np.array([len(r.tokens) for r in rows], np.int64)
        finish = np.array(["stop" if r.finish == "stop" else "" for r in rows], dtype=object)
        self._select(np.flatnonzero(finish == ""))
        return Segments.of(rows, finish, prefilled, decoded, time.perf_counter() - began)

    def top(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Session.top`. One more token of each row is computed and thrown away."""
        prompts = self._prompts(np.ones(len(self), np.int64))
        made = self.engine.complete(prompts, temperature=1.0, stop=(), top=m)
        self._count(prompts, made)
        tops = [r.top for r in made if r.top is not None]
        if len(tops) != len(made):
            raise RuntimeError("the engine left out the likeliest tokens that it was asked for")
        return np.array([ids for ids, _ in tops], np.int32), np.array([logp for _, logp in tops], np.float32)

    def hidden(self) -> np.ndarray:
        """Raises NotImplementedError: such engines hand out no hidden states."""
        raise NotImplementedError(f"{type(self.engine).__name__} gives no hidden states; use engine='transformers'")

    def _prompts(self, limit: np.ndarray) -> list[Prompt]:
        columns = zip(self.paths, self.keys.tolist(), self.place.tolist(), limit.tolist(), strict=True)
        return [Prompt(path, k, p, m, self._forced.get(i, -1)) for i, (path, k, p, m) in enumerate(columns)]

    def _count(self, prompts: Sequence[Prompt], made: Sequence[Completion]) -> tuple[int, int]:
        prefilled, decoded = counted(prompts, made)
        self.prefilled += prefilled
        self.decoded += decoded
        return prefilled, decoded


def counted(prompts: Sequence[Prompt], made: Sequence[Completion]) -> tuple[int, int]:
    """Prompt tokens computed, and tokens fed back: all that were made but the last of each."""
    prefilled = sum(len(q.tokens) - r.cached for q, r in zip(prompts, made, strict=True))
    return prefilled, sum(max(len(r.tokens) - 1, 0) for r in made)
