"""Token roles: who wrote a token of a rollout, the policy, or a hint that it went on from.

Where hints are trained their tokens stand in front of the rollout's own, in every per-token column, and `role` tells
them apart; length counts the rollout's own tokens alone, for those are what was generated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from workbench.types import Advantage, Ragged, Rollouts, Step

OWN, HINT = 0, 1
"""Values of `role`: sampled by the policy; shown to it, hence off-policy."""

HINTS = "hint_tokens"
"""In `needs`: tokens of the text that an answer began with stand in front of the row's own. A method that does not ask for
them sees rows without."""

Change = Callable[[str, Ragged], Ragged]


def hint_lengths(rollouts: Rollouts) -> np.ndarray:
    """(R,) int64 tokens of a hint in front of each rollout's own; zeros where none are shown."""
    if rollouts.role is None:
        return np.zeros(len(rollouts), np.int64)
    row = np.repeat(np.arange(len(rollouts)), rollouts.role.lengths)
    return np.bincount(row, rollouts.role.values == HINT, minlength=len(rollouts)).astype(np.int64)


def with_hints(rollouts: Rollouts, leads: Mapping[str, Ragged], version: int) -> Rollouts:
    """Rows with hints in front. leads: "tokens", "logp" and "entropy" of R hints, empty for rows without; version: of the
    policy that measured them. Further per-token columns get 0 there, and stay empty in rows of which they tell nothing."""
    tokens = leads["tokens"]

    def longer(name: str, column: Ragged) -> Ragged:
        if name in leads:
            return in_front(leads[name], column)
        fill = {"role": HINT, "token_version": version}.get(name, 0)
        lengths = np.where(column.lengths == own.lengths, tokens.lengths, 0)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        blank = np.full((int(offsets[-1]), *column.values.shape[1:]), fill, column.values.dtype)
        return in_front(Ragged(blank, offsets), column)

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
    whole = rollouts.role.lengths

    def shorter(name: str, column: Ragged) -> Ragged:
        known = column.lengths == whole
        offsets = np.concatenate([[0], np.cumsum(np.where(known, whole - lead, 0))]).astype(np.int64)
        return Ragged(column.values[own[np.repeat(known, whole)]], offsets)

    return _changed(rollouts, shorter).with_(role=None)


def per_token(column: object, tokens: Ragged) -> bool:
    """Whether a column has a value per token. It may have none in rows of which it tells nothing, as rows of earlier steps do
    that come into a step again."""
    if not isinstance(column, Ragged):
        return False
    fits = column.lengths == tokens.lengths
    return bool((fits | (column.lengths == 0)).all()) and bool(
        fits[tokens.lengths > 0].any() or not tokens.lengths.any()
    )


def own_tokens(advantage: Advantage, rollouts: Rollouts) -> Advantage:
    """Advantages of rows with hints as those of the same rows without; rollouts are the rows with hints."""
    if advantage.tokens is None or rollouts.role is None:
        return advantage
    own = rollouts.role.values != HINT
    offsets = np.concatenate([[0], np.cumsum(rollouts.role.lengths - hint_lengths(rollouts))]).astype(np.int64)
    return replace(advantage, tokens=Ragged(advantage.tokens.values[own], offsets))


def all_tokens(own: Advantage, before: Advantage, rollouts: Rollouts) -> Advantage:
    """Advantages of rows without hints as those of the same rows with them: the tokens of a hint keep the advantage they
    had before, their row's where nothing was said of tokens. rollouts are the rows with hints."""
    if rollouts.role is None or (own.tokens is None and before.tokens is None):
        return own
    values = np.repeat(own.value, rollouts.role.lengths)
    mine = rollouts.role.values != HINT
    if before.tokens is not None:
        values = np.where(mine, values, before.tokens.values)
    if own.tokens is not None:
        values[mine] = own.tokens.values
    return replace(own, tokens=Ragged(values, rollouts.role.offsets))


def bare(step: Step) -> Step:
    """A step as one in which no hint was shown: rows and advantages of own tokens alone."""
    rollouts = without_hints(step.rollouts)
    if rollouts is step.rollouts:
        return step
    return replace(step, rollouts=rollouts, advantage=own_tokens(step.advantage, step.rollouts))


def in_front(first: Ragged, second: Ragged) -> Ragged:
    """Each row of the first followed by that of the second, in the second's dtype."""
    return Ragged.of([np.concatenate(pair) for pair in zip(first.rows(), second.rows(), strict=True)],
                     second.values.dtype)  # fmt: skip


def _changed(rollouts: Rollouts, change: Change) -> Rollouts:
    """Every column that has a value per token, changed; the roles say which, for not all of the others may be kept."""
    role = rollouts.role
    assert role is not None

    def of(name: str, column: object) -> object:
        return change(name, column) if per_token(column, role) else column  # type: ignore[arg-type]

    names = ("tokens", "logp", "entropy", "role", "proximal", "current")
    columns = {name: of(name, getattr(rollouts, name)) for name in names}
    return rollouts.with_(**columns, extra={name: of(name, column) for name, column in rollouts.extra.items()})
