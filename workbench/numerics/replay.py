"""Replay buffer: rollouts of earlier steps kept in a state, and brought into a step again.

A row that no ask of the step made carries ask -1. The ledger counts it apart, and it is no evidence of difficulty.
"""

from __future__ import annotations

import numpy as np

from workbench.types import Ragged, Rollouts, Step


def groups_of(step: Step) -> Rollouts:
    """The scored training rollouts that this step made of plain prompts; groups are numbered as in the step."""
    rollouts = step.rollouts
    return rollouts.take(rollouts.plain & (rollouts.ask >= 0) & np.isfinite(rollouts.reward) & (rollouts.failure == ""))


def renumbered(rollouts: Rollouts, first: int = 0) -> Rollouts:
    """The same rows with groups numbered first, first + 1, ... in the order in which they come."""
    _, where, inverse = np.unique(rollouts.group, return_index=True, return_inverse=True)
    order = np.empty(len(where), np.int64)
    order[np.argsort(where, kind="stable")] = np.arange(len(where))
    return rollouts.with_(group=order[inverse] + first)


def stored(parts: list[Rollouts]) -> Rollouts:
    """Rows of several steps as one table for a state; each part keeps its groups apart from the others.

    Columns that the world adds after generating are left behind: they are of the policy of their time, except logp."""
    bare, first = [], 0
    for part in parts:
        part = renumbered(part, first).with_(extra={}, proximal=None, current=None, ask=np.full(len(part), -1))
        first += len(np.unique(part.group))
        bare.append(part)
    return Rollouts.concat(_alike(bare))


def appended(rollouts: Rollouts, old: Rollouts) -> Rollouts:
    """The step's rollouts with old rows behind them, as rows that no ask made; columns follow the step's.

    Groups of old rows are taken as they stand: number them before. Raises ValueError where the step has tokens and the
    old rows were stored without."""
    if not len(old):
        return rollouts
    old = old.with_(ask=np.full(len(old), -1, np.int64), proximal=None, current=None, extra={})
    first, second = _alike([rollouts, old])
    return Rollouts.concat([first.with_(proximal=None, current=None), second])


def _alike(parts: list[Rollouts]) -> list[Rollouts]:
    """The parts with the same columns of tokens, or none of them."""
    out = list(parts)
    for name in ("tokens", "logp", "entropy", "role"):
        have = [getattr(part, name) is not None for part in out if len(part)]
        if any(have) and not all(have):
            if name in ("tokens", "logp"):
                raise ValueError(
                    f"some rollouts to be replayed were stored without {name}; keep that column for as many steps as "
                    "the replay reaches back"
                )
            out = [part.with_(**{name: None}) for part in out]
    return [_typed(part) for part in out]


def _typed(part: Rollouts) -> Rollouts:
    """Columns as the engines write them, so that a row is the same wherever it comes from."""
    tokens = part.tokens
    return part if tokens is None else part.with_(tokens=Ragged(tokens.values.astype(np.int32), tokens.offsets))
