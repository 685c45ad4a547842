"""An engine without a model: what comes next is a function of the path. For tests of growth, pruning and resuming.

It answers as a transformers engine would: the same draws at the same positions give the same tokens, statistics are
those of the distribution, and prefilled and decoded count what a cache would have had to compute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from workbench.worlds.engines import NEVER, Engine, Request, Segments, Until
from workbench.worlds.engines.completions import PathSession
from workbench.worlds.engines.draws import uniform

Script = Callable[[tuple[int, ...]], Mapping[int, float]]
"""What may follow a path (prefix and generated tokens): token id -> probability, summing to 1."""


def table_script(tree: Mapping[tuple[int, ...], Mapping[int, float]], stop: int) -> Script:
    """A script from a table: the longest entry that the path ends with speaks; where none does, the answer stops."""

    def script(path: tuple[int, ...]) -> Mapping[int, float]:
        for start in range(len(path) + 1):
            if path[start:] in tree:
                return tree[path[start:]]
        return {stop: 1.0}

    return script


class ScriptedEngine(Engine):
    """Continues prefixes as a script says. It has no weights, so `sync` does nothing."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def open(self, request: Request) -> ScriptedSession:
        """See `Engine.open`."""
        return ScriptedSession(self.script, request)

    def generate(self, request: Request) -> Segments:
        """See `Engine.generate`."""
        session, limit = self.open(request), request.distinct().limit
        made = session.advance(limit)
        for row, tokens in enumerate(made.tokens.rows() if request.on_end is not None else ()):
            request.on_end(row, tokens)
        finish = np.where(made.finish == "", "length", made.finish).astype(object)
        return made._replace(finish=finish, prefilled=session.prefilled, decoded=session.decoded)


class ScriptedSession(PathSession):
    """See `workbench.worlds.engines.Session`."""

    def __init__(self, script: Script, request: Request) -> None:
        super().__init__(request)
        self.script = script
        self.prefilled = sum(map(len, request.distinct().prefixes))

    def advance(self, limit: np.ndarray, until: Until = NEVER) -> Segments:
        """See `Session.advance`."""
        began, decoded = time.perf_counter(), self.decoded
        limit = self._limits(limit)
        made = [self._segment(i, int(n), until) for i, n in enumerate(limit)]
        finish = np.array([stopped for _, stopped in made], dtype=object)
        self._select(np.flatnonzero(finish == ""))
        columns = [tuple(zip(*row, strict=True)) or ((), (), ()) for row, _ in made]
        return Segments.of(columns, finish, 0, self.decoded - decoded, time.perf_counter() - began)

    def rewind(self, row: int, tokens: int, last: int | None) -> None:
        """See `Session.rewind`."""
        super().rewind(row, tokens, last)
        if tokens > 0 and last is not None:
            self.decoded += 1  # fed again for the distribution after it, as a model has to

    def top(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Session.top`. Where fewer than m tokens are possible, the rest are -1 at -inf."""
        ids = np.full((len(self), m), -1, np.int32)
        logp = np.full((len(self), m), -np.inf, np.float32)
        for i, path in enumerate(self.paths):
            ranked = sorted(self.script(path).items(), key=lambda item: (-item[1], item[0]))[:m]
            for k, (token, p) in enumerate(ranked):
                ids[i, k], logp[i, k] = token, np.log(p)
        return ids, logp

    def hidden(self) -> np.ndarray:
        """(B, 1): the length of each path; a script has no other state. See `Session.hidden`."""
        return np.array([len(path) for path in self.paths], np.float32).reshape(-1, 1)

    def _segment(self, row: int, limit: int, until: Until) -> tuple[list[tuple[int, float, float]], str]:
        made: list[tuple[int, float, float]] = []
        while len(made) < limit:
            token, logp, entropy = self._next(row)
            made.append((token, logp, entropy))
            self.paths[row] += (token,)
            self.place[row] += 1
            if token in self.stops:
                return made, "stop"
            self.decoded += 1
            if token in until.markers or (until.entropy is not None and entropy > until.entropy):
                break
        return made, ""

    def _next(self, row: int) -> tuple[int, float, float]:
        """The token where the cumulative probability, in order of token id, passes the draw."""
        following = sorted((t, p) for t, p in self.script(self.paths[row]).items() if p > 0)
        ids, p = np.array([t for t, _ in following]), np.array([p for _, p in following], float)
        weight = p ** (1 / (self.temperature or 1.0))
        p = weight / weight.sum()
        draw = float(uniform(self.keys[row : row + 1], self.place[row : row + 1])[0])
        k = int(p.argmax()) if self.temperature == 0 else int(np.searchsorted(p.cumsum(), draw * p.sum(), side="right"))
        k = min(k, len(p) - 1)
        if row in self._forced:
            token = self._forced.pop(row)
            found = np.flatnonzero(ids == token)
            return token, float(np.log(p[found[0]])) if len(found) else -np.inf, float(-(p * np.log(p)).sum())
        return int(ids[k]), float(np.log(p[k])), float(-(p * np.log(p)).sum())
