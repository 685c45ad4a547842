"""Branching and pruning of unfinished rollouts: those that pause (`Frontier`), forks (`Fork`) and stops (`Cut`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workbench.types.columns import Ragged

if TYPE_CHECKING:
    from workbench.types.checkpoint import Checkpoint


class Paused(NamedTuple):
    """What paused for one checkpoint: due (B,) bool, the rows that did; tail (B,) str, their text since it paused them last,
    "" where the checkpoint wants no text."""

    due: np.ndarray
    tail: np.ndarray


@dataclass(frozen=True, eq=False)
class Frontier:
    """Live branches of rollouts at a pause, B rows; all that branch and prune see.

    All rows have made equally many tokens since the round began, but for those that paused early, at a marker or by entropy,
    and for forks that left a path earlier. due (B,) bool: rows that paused for the method; what it decides of the others
    does not count, and its scratch of them stays.
    group (B,) int64: of the same prompt, context and purpose. branch (B,) int64 counts branches in the order of their birth,
    parent (B,) is the one it forked from, -1 for none.
    tokens, logp, entropy: of the whole path. born (B,) int64 tokens inherited. tail (B,) str is the text of rows that are due
    since they paused for the method last, "" where its checkpoint asks for none; capacity = branches that still fit, room
    (B,) int64 = forks that each row's group may have besides; extra holds what a method declared in `needs`, such as
    top_tokens and top_logp (B, m); memory is the methods' scratch per branch, written by Fork and Cut, inherited by forks.
    n_prompts: prompts that grow in this round, finished ones included; round of the step, from 0.
    paused: what paused for each checkpoint, for `of`; due and tail are of all together.
    """

    prompt: np.ndarray
    group: np.ndarray
    branch: np.ndarray
    parent: np.ndarray
    n_tokens: np.ndarray
    tokens: Ragged
    logp: Ragged
    entropy: Ragged
    tail: np.ndarray
    capacity: int
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)
    born: np.ndarray = None  # type: ignore[assignment]
    n_prompts: int = 0
    round: int = 0
    due: np.ndarray = None  # type: ignore[assignment]
    room: np.ndarray = None  # type: ignore[assignment]
    paused: Mapping[Checkpoint, Paused] = field(default_factory=dict)

    def __post_init__(self) -> None:
        b = len(self.branch)
        fill = {"born": np.zeros(b, np.int64), "due": np.ones(b, bool), "room": np.full(b, self.capacity)}
        for name, default in fill.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)

    def __len__(self) -> int:
        return len(self.branch)

    def of(self, checkpoint: Checkpoint) -> Frontier:
        """The frontier as the method sees it that pauses rollouts at `checkpoint`, with no more columns than it names there."""
        top = {n: self.extra[n][:, : checkpoint.top] for n in ("top_tokens", "top_logp") if n in self.extra}
        return replace(self, **self.paused[checkpoint]._asdict(), extra={**self.extra, **top})


@dataclass(frozen=True, eq=False)
class Fork:
    """width (B,) int64: 1 goes on, k forks into k; at and token (B,) int64: the k - 1 new ones leave the path before token
    number `at` (-1 = here), and begin with `token` (-1 = sampled); token (B, m) gives the first m of them one each. why:
    figures of the decision, (B,) each. memory: scratch by name, (B, ...) each, None leaves a row's as it was. Forks beyond
    what was asked of the group are refused."""

    width: np.ndarray
    at: np.ndarray
    token: np.ndarray
    why: Mapping[str, np.ndarray] = field(default_factory=dict)
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Cut:
    """width (B,) int64: 0 stops, 1 goes on; reason (B,) str; propensity (B,) float64 = chance of having gone on.

    finish (B,) str says how a stopped one ends, None = all pruned: pruned is not judged; aborted is judged and then given
    up; stop is judged as it stands; carried is not judged yet, and goes on in a later step. why: figures of the decision,
    (B,) each, NaN where there was none to take."""

    width: np.ndarray
    reason: np.ndarray
    propensity: np.ndarray
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)
    finish: np.ndarray | None = None
    why: Mapping[str, np.ndarray] = field(default_factory=dict)
