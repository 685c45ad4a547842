"""Branching and pruning by several methods: which of them act at a pause, and what comes of their decisions.

A method acts only where rollouts paused for it: at a pause of other methods it draws nothing and sees nothing of the text,
and at its own it sees all rows and decides on those that paused for it. So methods that pause rollouts at different places
decide as each would beside one that never acts, and no method has to know of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np

from workbench.stages import Branch, Prune
from workbench.types import Cut, Fork, Frontier
from workbench.types.checkpoint import Checkpoint, Pauses

A = TypeVar("A", Fork, Cut)


class Hook(NamedTuple, Generic[A]):
    """The branch or prune of one method, with its state and draws filled in, and where rollouts pause for it."""

    checkpoint: Checkpoint
    act: Callable[[Frontier], A]


def branch_of(hooks: Sequence[Hook[Fork]]) -> Branch:
    """What all methods that branch make of a frontier: widths multiply; the last one that forks a row says where."""

    def act(frontier: Frontier) -> Fork:
        made = [_fork_due(hook.act(seen), seen.due) for hook, seen in _acting(hooks, frontier)]
        if not made:
            none = np.full(len(frontier), -1, np.int64)
            return Fork(np.ones(len(frontier), np.int64), none, none)
        width = np.prod([f.width for f in made], axis=0)
        at, token = made[0].at, made[0].token
        for fork in made[1:]:
            forks = fork.width > 1
            at, token = np.where(forks, fork.at, at), chosen(forks, fork.token, token)
        return Fork(width, at, token, _joined(made, "why"), _joined(made, "memory"))

    return Branch(act, Pauses.of(hook.checkpoint for hook in hooks))


def prune_of(hooks: Sequence[Hook[Cut]]) -> Prune:
    """What all methods that prune make of a frontier: a stop wins, and the first one that stops a row says why."""

    def act(frontier: Frontier) -> Cut:
        b = len(frontier)
        made = [_cut_due(hook.act(seen), seen.due) for hook, seen in _acting(hooks, frontier)]
        reason, finish = (np.full(b, x, dtype=object) for x in ("", "pruned"))
        for cut in reversed(made):
            reason = np.where(cut.width == 0, cut.reason, reason)
            finish = np.where(cut.width == 0, "pruned" if cut.finish is None else cut.finish, finish)
        width = np.min([c.width for c in made], axis=0) if made else np.ones(b, np.int64)
        chance = np.prod([c.propensity for c in made], axis=0) if made else np.ones(b)
        return Cut(width, reason, chance, _joined(made, "memory"), finish, _joined(made, "why"))

    return Prune(act, Pauses.of(hook.checkpoint for hook in hooks))


def _acting(hooks: Sequence[Hook[A]], frontier: Frontier) -> list[tuple[Hook[A], Frontier]]:
    """The hooks for which a row paused, and the frontier as each of them sees it."""
    views = [(hook, frontier.of(hook.checkpoint)) for hook in hooks]
    return [(hook, seen) for hook, seen in views if seen.due.any()]


def _fork_due(fork: Fork, due: np.ndarray) -> Fork:
    """The fork on the rows that are due; those that paused for other methods go on."""
    if due.all():
        return fork
    wide = due if fork.token.ndim == 1 else due[:, None]
    return Fork(
        np.where(due, fork.width, 1), np.where(due, fork.at, -1), np.where(wide, fork.token, -1),
        *_figures_due(fork, due),
    )  # fmt: skip


def _cut_due(cut: Cut, due: np.ndarray) -> Cut:
    """The same of a cut."""
    if due.all():
        return cut
    why, memory = _figures_due(cut, due)
    width, reason = np.where(due, cut.width, 1), np.where(due, cut.reason, "").astype(object)
    return replace(
        cut, width=width, reason=reason, propensity=np.where(due, cut.propensity, 1.0), why=why, memory=memory
    )


def _figures_due(made: Fork | Cut, due: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Figures and scratch of the rows that are due: NaN, and None, which leaves the scratch as it was, for the others."""
    memory = {}
    for name, column in made.memory.items():
        memory[name] = kept = np.full(len(due), None, dtype=object)
        for i in np.flatnonzero(due):
            kept[i] = column[i]
    return {n: np.where(due, c, np.nan) for n, c in made.why.items()}, memory


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


def _joined(made: Sequence[Fork | Cut], columns: Literal["why", "memory"]) -> dict[str, np.ndarray]:
    """The figures, or the scratch, of all methods."""
    return {name: column for m in made for name, column in getattr(m, columns).items()}
