"""Several methods at one frontier: who is asked, and what comes of their answers.

Where a pause was asked for by other methods only, a method is not asked, draws nothing and sees nothing of the text; where
rollouts paused for it and others stand by, it sees all and is heard on its own. So methods of different cadence decide as
each would beside one that never acts, and no method has to know of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from workbench.stages import Branch, Prune
from workbench.types import Cut, Fork, Frontier
from workbench.types.checkpoint import Checkpoint, Pauses

A = TypeVar("A", Fork, Cut)


class Asked(NamedTuple, Generic[A]):
    """A method's verb, with its state and draws filled in, and where it wants to be asked."""

    checkpoint: Checkpoint
    act: Callable[[Frontier], A]


def branch_of(methods: Sequence[Asked[Fork]]) -> Branch:
    """What all methods that branch make of a frontier: widths multiply; the last one that forks a row says where."""

    def act(frontier: Frontier) -> Fork:
        made = [_fork(m.act(shown), shown.due) for m, shown in _shown(methods, frontier)]
        if not made:
            none = np.full(len(frontier), -1, np.int64)
            return Fork(np.ones(len(frontier), np.int64), none, none)
        width = np.prod([f.width for f in made], axis=0)
        at, token = made[0].at, made[0].token
        for fork in made[1:]:
            forks = fork.width > 1
            at, token = np.where(forks, fork.at, at), chosen(forks, fork.token, token)
        return Fork(width, at, token, _why(made), _memory(made))

    return Branch(act, Pauses.of(m.checkpoint for m in methods))


def prune_of(methods: Sequence[Asked[Cut]]) -> Prune:
    """What all methods that prune make of a frontier: a stop wins, and the first one that stops a row says why."""

    def act(frontier: Frontier) -> Cut:
        b = len(frontier)
        made = [_cut(m.act(shown), shown.due) for m, shown in _shown(methods, frontier)]
        reason, finish = (np.full(b, x, dtype=object) for x in ("", "pruned"))
        for cut in reversed(made):
            reason = np.where(cut.width == 0, cut.reason, reason)
            finish = np.where(cut.width == 0, "pruned" if cut.finish is None else cut.finish, finish)
        width = np.min([c.width for c in made], axis=0) if made else np.ones(b, np.int64)
        chance = np.prod([c.propensity for c in made], axis=0) if made else np.ones(b)
        return Cut(width, reason, chance, _memory(made), finish, _why(made))

    return Prune(act, Pauses.of(m.checkpoint for m in methods))


def _shown(methods: Sequence[Asked[A]], frontier: Frontier) -> list[tuple[Asked[A], Frontier]]:
    """The methods for which a row paused, and the frontier as each of them sees it."""
    views = [(m, frontier.of(m.checkpoint)) for m in methods]
    return [(m, shown) for m, shown in views if shown.due.any()]


def _fork(fork: Fork, due: np.ndarray) -> Fork:
    """What is heard of an answer: rows that paused for others go on."""
    if due.all():
        return fork
    wide = due if fork.token.ndim == 1 else due[:, None]
    return Fork(
        np.where(due, fork.width, 1), np.where(due, fork.at, -1), np.where(wide, fork.token, -1),
        *_noted(fork, due),
    )  # fmt: skip


def _cut(cut: Cut, due: np.ndarray) -> Cut:
    if due.all():
        return cut
    why, memory = _noted(cut, due)
    width, reason = np.where(due, cut.width, 1), np.where(due, cut.reason, "").astype(object)
    return replace(
        cut, width=width, reason=reason, propensity=np.where(due, cut.propensity, 1.0), why=why, memory=memory
    )


def _noted(answer: Fork | Cut, due: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Figures and scratch of the rows that are due: NaN, and None, which leaves the scratch as it was, for the others."""
    memory = {}
    for name, column in answer.memory.items():
        memory[name] = kept = np.full(len(due), None, dtype=object)
        for i in np.flatnonzero(due):
            kept[i] = column[i]
    return {n: np.where(due, c, np.nan) for n, c in answer.why.items()}, memory


def chosen(first: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """one (B,) or (B, m) where first (B,) holds, else other: (B,), or (B, m), where one of (B,) is repeated and a narrower
    one filled up with -1."""
    if one.ndim == other.ndim == 1:
        return np.where(first, one, other)
    m = max(x.shape[1] if x.ndim > 1 else 1 for x in (one, other))
    a, b = (
        np.pad(x, ((0, 0), (0, m - x.shape[1])), constant_values=-1) if x.ndim > 1 else np.repeat(x[:, None], m, 1)
        for x in (one, other)
    )
    return np.where(first[:, None], a, b)


def _why(made: Sequence[Fork | Cut]) -> Mapping[str, np.ndarray]:
    """The figures of all methods."""
    return {k: v for m in made for k, v in m.why.items()}


def _memory(made: Sequence[Fork | Cut]) -> Mapping[str, np.ndarray]:
    """The scratch columns of all methods."""
    return {k: v for m in made for k, v in m.memory.items()}
