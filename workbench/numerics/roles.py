"""Who wrote a token of a rollout: the policy, or a hint that it went on from.

Where hints are trained their tokens stand in front of the rollout's own, in every per-token column, and `role` tells
them apart; length counts the rollout's own tokens alone, for those are what was generated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from workbench.types import Ragged, Rollouts

OWN, HINT = 0, 1
"""Values of `role`: sampled by the policy; shown to it, hence off-policy."""

Change = Callable[[str, Ragged], Ragged]


def hint_lengths(rollouts: Rollouts) -> np.ndarray:
    """(R,) int64 tokens of a hint in front of each rollout's own; zeros where none are shown."""
    if rollouts.role is None:
        return np.zeros(len(rollouts), np.int64)
    row = np.repeat(np.arange(len(rollouts)), rollouts.role.lengths)
    return np.bincount(row, rollouts.role.values == HINT, minlength=len(rollouts)).astype(np.int64)


def with_hints(rollouts: Rollouts, leads: Mapping[str, Ragged], version: int) -> Rollouts:
    """Rows with hints in front. leads: "tokens", "logp" and "entropy" of R hints, empty for rows without; version: of the
    policy that measured them. Further per-token columns get 0 there."""
    tokens = leads["tokens"]

    def longer(name: str, column: Ragged) -> Ragged:
        if name in leads:
            return in_front(leads[name], column)
        fill = {"role": HINT, "token_version": version}.get(name, 0)
        blank = np.full((len(tokens.values), *column.values.shape[1:]), fill, column.values.dtype)
        return in_front(Ragged(blank, tokens.offsets), column)

    assert rollouts.tokens is not None
    own = Ragged(np.full(len(rollouts.tokens.values), OWN, np.int8), rollouts.tokens.offsets)
    return _changed(rollouts.with_(role=own), longer)


def without_hints(rollouts: Rollouts) -> Rollouts:
    """Rows with their own tokens alone, as they were generated."""
    lead = hint_lengths(rollouts)
    if not lead.any():
        return rollouts
    assert rollouts.role is not None
    place = np.arange(len(rollouts.role.values)) - np.repeat(rollouts.role.offsets[:-1], rollouts.role.lengths)
    own = place >= np.repeat(lead, rollouts.role.lengths)
    offsets = np.concatenate([[0], np.cumsum(rollouts.role.lengths - lead)]).astype(np.int64)
    return _changed(rollouts, lambda name, column: Ragged(column.values[own], offsets)).with_(role=None)


def in_front(first: Ragged, second: Ragged) -> Ragged:
    """Each row of the first followed by that of the second, in the second's dtype."""
    return Ragged.of([np.concatenate(pair) for pair in zip(first.rows(), second.rows(), strict=True)],
                     second.values.dtype)  # fmt: skip


def _changed(rollouts: Rollouts, change: Change) -> Rollouts:
    """Every column that has a value per token, changed; the roles say which, for not all of the others may be kept."""
    assert rollouts.role is not None
    offsets = rollouts.role.offsets

    def of(name: str, column: object) -> object:
        per_token = isinstance(column, Ragged) and np.array_equal(column.offsets, offsets)
        return change(name, column) if per_token else column  # type: ignore[arg-type]

    names = ("tokens", "logp", "entropy", "role", "proximal", "current")
    columns = {name: of(name, getattr(rollouts, name)) for name in names}
    return rollouts.with_(**columns, extra={name: of(name, column) for name, column in rollouts.extra.items()})
