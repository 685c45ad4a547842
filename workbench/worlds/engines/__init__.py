"""Sampling engines: one interface to generate tokens, so that no method, world or loop knows which engine runs.

An engine is asked for segments: any prefix, any number of continuations of it, up to a number of tokens each. A fresh
rollout is a segment from its prompt; a fork, a resumed or a hinted rollout is a segment from a longer prefix. An engine is
one file NAME_engine.py in this folder with one subclass of `Engine`, and nothing else; `choice` finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from workbench.types import Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Segments(NamedTuple):
    """What was generated: R rows, in the order of the request.

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

    @classmethod
    def of(
        cls, rows: Sequence[tuple], finish: np.ndarray, prefilled: int = 0, decoded: int = 0, seconds: float = 0.0
    ) -> Segments:
        """From one (tokens, logp, entropy, ...) a row, each of them (T,)."""
        dtypes = (np.int32, np.float32, np.float32)
        tokens, logp, entropy = (Ragged.of([row[k] for row in rows], dtype) for k, dtype in enumerate(dtypes))
        return cls(tokens, logp, entropy, finish, prefilled, decoded, seconds)

    @classmethod
    def concat(cls, parts: Sequence[Segments]) -> Segments:
        """The rows of all parts, made at the same time: counts are summed, seconds are the slowest one's."""
        tokens, logp, entropy = (Ragged.concat([getattr(part, name) for part in parts]) for name in cls._fields[:3])
        finish = np.concatenate([part.finish for part in parts])
        prefilled, decoded = sum(part.prefilled for part in parts), sum(part.decoded for part in parts)
        return cls(tokens, logp, entropy, finish, prefilled, decoded, max(part.seconds for part in parts))


NO_SEGMENTS = Segments.of([], np.empty(0, object))
"""Of no rows."""


class Until(NamedTuple):
    """Where a row pauses before its limit: after one of the marker tokens, or where the last token's entropy exceeded
    `entropy` nats."""

    markers: frozenset[int] = frozenset()
    entropy: float | None = None


NEVER = Until()


class Request(NamedTuple):
    """What an engine is asked to generate: R rows, each of which continues one of P prefixes.

    prefixes: P token lists, each with one token at least; equal ones are computed once, and one that no row continues is
    not computed. owner (R,) int64: the prefix of each row. keys (R,) uint64: one random stream per row. limit (R,) int64:
    tokens that a row makes at most; a session does not read it, since every `advance` has its own. position (R,) int64:
    where in its stream a row starts, the number of tokens it has generated before (None: 0), so that a resumed row draws
    what it would have drawn uninterrupted. temperature 0 takes the likeliest token, and its statistics are those of
    temperature 1. stop: token ids that end a row, kept as its last token. on_end: called with the number of a row and its
    tokens (T,) int32 as soon as it has ended, while others are still generated, by engines that know of it then.
    """

    prefixes: Sequence[Sequence[int]]
    owner: np.ndarray
    keys: np.ndarray
    limit: np.ndarray | None = None
    position: np.ndarray | None = None
    temperature: float = 1.0
    stop: Collection[int] = ()
    on_end: Callable[[int, np.ndarray], None] | None = None

    @classmethod
    def of_groups(
        cls, prefixes: Sequence[Sequence[int]], n: np.ndarray, limit: np.ndarray, keys: np.ndarray, **more
    ) -> Request:
        """Groups of n (P,) rows of at most limit (P,) tokens, one group behind the other; more: the other fields."""
        return cls(prefixes, np.repeat(np.arange(len(prefixes)), n), keys, np.repeat(limit, n), **more)

    def distinct(self) -> Request:
        """The same rows over the distinct prefixes that they continue, as tuples, with arrays in every column.

        Without rows all distinct prefixes are kept. ValueError for a prefix without tokens and for a limit below 1."""
        prefixes = [tuple(map(int, prefix)) for prefix in self.prefixes]
        if not prefixes or not all(prefixes):
            raise ValueError(
                "a request needs prefixes, each with one token at least: there is nothing else to continue"
            )
        owner = np.asarray(self.owner, np.int64)
        used = np.unique(owner) if len(owner) else np.arange(len(prefixes))
        place: dict[tuple[int, ...], int] = {}
        number = {int(i): place.setdefault(prefixes[i], len(place)) for i in used}
        position = np.zeros(len(owner), np.int64) if self.position is None else np.array(self.position, np.int64)
        limit = None if self.limit is None else np.asarray(self.limit, np.int64)
        if limit is not None and np.min(limit, initial=1) < 1:
            raise ValueError(f"the limit of a row must be at least 1, not {limit.min()}")
        owner = np.array([number[i] for i in owner.tolist()], np.int64)
        keys, stop = np.asarray(self.keys, np.uint64), sorted(self.stop)
        return self._replace(prefixes=list(place), owner=owner, keys=keys, limit=limit, position=position, stop=stop)


class Session:
    """Rows that are generated from checkpoint to checkpoint: keys and values stay, nothing is computed twice.

    Rows stand in an order that `keep` changes; those that ended with a stop token have left it. keys (B,) uint64: the
    stream of each row. prefilled: prefix tokens computed so far, each shared prefix once; decoded: tokens fed back one by
    one so far.
    """

    def __init__(self, request: Request) -> None:
        self.keys, self.temperature = request.keys, request.temperature
        self.stops = np.asarray(request.stop, np.int64)
        self.prefilled = self.decoded = 0
        self._forced: dict[int, int] = {}

    def __len__(self) -> int:
        """Rows that can go on."""
        return len(self.keys)

    def advance(self, limit: np.ndarray, until: Until = NEVER) -> Segments:
        """Let row i (B,) make at most limit[i] more tokens; finish is stop, or "" where it paused. A row of limit 0 waits,
        which one with a forced token cannot."""
        raise NotImplementedError

    def keep(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """Go on with rows[...] under keys[...]; a row named twice forks without recomputation, one not named is gone."""
        if self._forced:
            raise ValueError("forced tokens wait for their rows; advance before keep")
        self._select(np.asarray(rows, np.int64))
        self.keys = np.asarray(keys, np.uint64)

    def rewind(self, row: int, tokens: int, last: int | None) -> None:
        """Take back the last `tokens` of a row; last = the token before them, None where nothing is left of its own."""
        raise NotImplementedError

    def force(self, row: int, token: int) -> None:
        """The next token of a row, whatever its draw; its log-probability is that of the sampling distribution."""
        self._forced[row] = int(token)

    def top(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """(B, m) int32 ids and float32 log-probabilities at temperature 1 of the likeliest next tokens."""
        raise NotImplementedError

    def hidden(self) -> np.ndarray:
        """(B, d) float32: the last layer's state, after its norm, at the last token of each row."""
        raise NotImplementedError

    def _select(self, rows: np.ndarray) -> None:
        """Go on with these rows, each as it is."""
        raise NotImplementedError

    def _limits(self, limit: np.ndarray) -> np.ndarray:
        """(B,) int64; ValueError where it is below 0, or holds back a row that a token was forced on."""
        limit = np.asarray(limit, np.int64)
        if np.min(limit, initial=0) < 0:
            raise ValueError(f"a row makes no fewer than 0 tokens, not {limit.min()}")
        if held := [row for row in self._forced if limit[row] < 1]:
            raise ValueError(f"row {held[0]} cannot wait: a token was forced on it, so its limit is 1 at least")
        return limit


class Engine:
    """Something that continues prefixes under the current weights. Its settings are the keyword arguments of its class."""

    lacks: ClassVar[frozenset[str]] = frozenset()
    """Of what a live world offers, what this engine cannot give: {"hidden"} for vLLM."""

    pauses: ClassVar[bool] = True
    """Whether it has `open`. A live world lets plain passes over the trained weights make the rows that pause where not."""

    slow_start: ClassVar[bool] = False
    """Whether it takes about a minute to start, as vLLM does: "auto" then measures it for large models alone."""

    copy_of: PreTrainedModel | None = None
    """The trained model where this engine samples from a copy of its weights; None where it shares them."""

    synced: Mapping[str, float] = {}
    """Figures of the last `sync` for the step's record, such as the bytes that were sent."""

    @classmethod
    def obstacle(cls, trained: PreTrainedModel) -> str:
        """Why it cannot sample for this model here, "" where nothing speaks against it."""
        return ""

    @classmethod
    def of(cls, name: str, trained: PreTrainedModel, dtype: str, **settings) -> Engine:
        """An engine over a model's weights in a dtype; name: as it was asked for, for a server its address."""
        raise NotImplementedError

    def generate(self, request: Request) -> Segments:
        """Whole rows, to a stop token or to their limit; ValueError for a request without limit or prefix."""
        raise NotImplementedError

    def open(self, request: Request) -> Session:
        """Compute the prefixes once, for rows that pause, fork and go on."""
        raise NotImplementedError

    def apart(self) -> Engine:
        """An engine whose weights change at `sync` alone: this one, or another where it shares the policy's."""
        return self

    def sync(self) -> None:
        """Take over the weights of the policy after an update."""

    def rest(self) -> None:
        """Give the device's memory to the update; the next `sync` or generation takes it again."""

    def close(self) -> None:
        """Give back what it holds to generate: memory, processes, connections. A second call does nothing."""
