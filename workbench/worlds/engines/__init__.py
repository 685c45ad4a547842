"""Engines continue token prefixes. One interface, so that no method, world or loop knows which engine runs.

An engine is asked for segments: any prefix, any number of continuations of it, up to a number of tokens each. A fresh
rollout is a segment from its prompt; a fork, a resumed or a hinted rollout is a segment from a longer prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from workbench.types import Ragged


class Segments(NamedTuple):
    """What was generated: R rows, in the order of the prefixes, n of each together.

    tokens (int32), logp and entropy (float32, nats, of the distribution that was sampled; entropy over the full
    vocabulary) have one value per generated token, the stop token included. finish (R,) str: stop or length.
    prefilled: prompt tokens computed, each shared prefix once; decoded: tokens fed back one by one; seconds: wall.
    """

    tokens: Ragged
    logp: Ragged
    entropy: Ragged
    finish: np.ndarray
    prefilled: int
    decoded: int
    seconds: float


NO_SEGMENTS = Segments(*(Ragged.of([], d) for d in (np.int32, np.float32, np.float32)), np.empty(0, object), 0, 0, 0.0)
"""Of no rows."""


def put_together(parts: Sequence[Segments]) -> Segments:
    """The rows of all parts, made at the same time: counts are summed, seconds are the slowest one's."""
    columns = [Ragged.concat([part[k] for part in parts]) for k in range(3)]
    finish = np.concatenate([part.finish for part in parts])
    counts = [sum(getattr(part, name) for part in parts) for name in ("prefilled", "decoded")]
    return Segments(*columns, finish, *counts, max(part.seconds for part in parts))


class Until(NamedTuple):
    """Where a row pauses before its limit: after one of the marker tokens, or where the last token's entropy exceeded
    `entropy` nats."""

    markers: frozenset[int] = frozenset()
    entropy: float | None = None


NEVER = Until()


Ended: TypeAlias = Callable[[int, np.ndarray], None]
"""Told of each row as soon as it has ended: its number, and its tokens (T,) int32, while others are still generated."""


class Engine(Protocol):
    """Something that continues prefixes under the current weights. One with `tells = True` takes `ended=` in generate."""

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
        """Continue prefix i by n[i] rows of at most max_tokens[i] tokens each.

        prefixes: P token lists; n, max_tokens (P,); keys (R,) uint64, R = n.sum(): one random stream per row.
        position (R,): where in its stream a row starts, the number of tokens it has generated before (default 0), so
        that a resumed row draws what it would have drawn uninterrupted. temperature 0 takes the likeliest token, and
        its statistics are those of temperature 1. stop: token ids that end a row, kept as its last token.
        """
        ...

    def sync(self) -> None:
        """Take over the weights of the policy after an update."""
        ...

    def close(self) -> None:
        """Give back what it holds to generate: memory, processes, connections. A second call does nothing."""
        ...


class Session(Protocol):
    """Rows that are generated from checkpoint to checkpoint: keys and values stay, nothing is computed twice.

    Rows stand in an order that `keep` changes; those that ended with a stop token have left it.
    """

    prefilled: int
    """Prefix tokens computed so far, each shared prefix once."""
    decoded: int
    """Tokens fed back one by one so far."""

    def __len__(self) -> int:
        """Rows that can go on."""
        ...

    def advance(self, limit: np.ndarray, until: Until = NEVER) -> Segments:
        """Let row i (B,) make at most limit[i] more tokens; finish is stop, or "" where it paused. A row of limit 0 waits,
        which one with a forced token cannot."""
        ...

    def keep(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """Go on with rows[...] under keys[...]; a row named twice forks without recomputation, one not named is gone."""
        ...

    def rewind(self, row: int, tokens: int, last: int | None) -> None:
        """Take back the last `tokens` of a row; last = the token before them, None where nothing is left of its own."""
        ...

    def force(self, row: int, token: int) -> None:
        """The next token of a row, whatever its draw; its log-probability is that of the sampling distribution."""
        ...

    def top(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """(B, m) int32 ids and float32 log-probabilities at temperature 1 of the likeliest next tokens."""
        ...

    def hidden(self) -> np.ndarray:
        """(B, d) float32: the last layer's state, after its norm, at the last token of each row."""
        ...


class SegmentEngine(Engine, Protocol):
    """An engine that can pause."""

    def open(
        self,
        prefixes: Sequence[Sequence[int]],
        owner: np.ndarray,
        keys: np.ndarray,
        *,
        position: np.ndarray | None = None,
        temperature: float = 1.0,
        stop: Collection[int] = (),
    ) -> Session:
        """Compute the prefixes once; row r (R,) continues prefixes[owner[r]] with stream keys[r] from position[r] on."""
        ...
