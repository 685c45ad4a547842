"""Pauses: where a rollout stops for a while so that methods branch or prune it. `Checkpoint` is where one method wants that,
`Pauses` where several do; saved weights are `runs/checkpoints.py`.

Places are numbers of tokens on the path of a rollout, so that a resumed one, or a fork, pauses where any other does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

NOWHERE = 1 << 30
"""Tokens to a place that never comes."""

MARKS = "marks"
"""Among what a checkpoint keeps: the numbers of tokens after which one of its markers stood, ragged int32; no scratch."""


class Checkpoint(NamedTuple):
    """Where rollouts pause for branch and prune: at every multiple of `every` tokens (0 = not by count), at the places `at`,
    after a token that holds one of the markers, and where entropy exceeds `entropy` nats. top: likeliest next tokens shown at
    a checkpoint, as frontier.extra["top_tokens"] and ["top_logp"] (B, top). hidden: as ["hidden"] (B, d) float32, the last
    layer's states. text: what was written since the last pause, as frontier.tail. keeps: names in the methods' scratch per
    branch that its row keeps, in `extra`, ragged float32: what `observe` learns from; or MARKS."""

    every: int = 16
    at: tuple[int, ...] = ()
    markers: tuple[str, ...] = ()
    entropy: float | None = None
    top: int = 0
    hidden: bool = False
    text: bool = False
    keeps: tuple[str, ...] = ()

    def counted(self, n: np.ndarray) -> np.ndarray:
        """(B,) bool: paths of n (B,) tokens that pause here by their length."""
        here = np.isin(n, self.at)
        return here | (n % self.every == 0) if self.every else here

    def ahead(self, n: np.ndarray) -> np.ndarray:
        """(B,) int64 tokens from n (B,) to the next place by length, at least 1; NOWHERE where there is none."""
        left = np.full(len(n), NOWHERE)
        if self.every:
            left = self.every - n % self.every
        for place in self.at:
            left = np.where(place > n, np.minimum(left, place - n), left)
        return left


class Pauses(NamedTuple):
    """Where rollouts pause for several checkpoints: wherever one of them wants it. parts: each of them, once; entropy: the
    least of their thresholds; markers and keeps of all; top: the most that any wants to see; hidden: whether any does."""

    parts: tuple[Checkpoint, ...] = ()
    entropy: float | None = None
    markers: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    top: int = 0
    hidden: bool = False

    @classmethod
    def of(cls, wanted: Iterable[Checkpoint | Pauses]) -> Pauses:
        """Wherever any of several wants it."""
        every = [part for w in wanted for part in (w.parts if isinstance(w, Pauses) else (w,))]
        parts = tuple(dict.fromkeys(every))
        return cls(
            parts,
            min((p.entropy for p in parts if p.entropy is not None), default=None),
            tuple(dict.fromkeys(m for p in parts for m in p.markers)),
            tuple(dict.fromkeys(name for p in parts for name in p.keeps)),
            max((p.top for p in parts), default=0),
            any(p.hidden for p in parts),
        )

    def ahead(self, n: np.ndarray) -> np.ndarray:
        """(B,) int64 tokens from n (B,) to the next place of any."""
        return np.min([np.full(len(n), NOWHERE), *(part.ahead(n) for part in self.parts)], axis=0)
