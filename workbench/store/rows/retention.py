"""Retention of token-level columns: for all rollouts, a sample of groups, or none; text and numbers are always kept.

A group is kept whole or not at all, by a hash of step and prompt id, so that it can be looked at as one and two runs
keep the same. What the running pipeline needs is kept for all: its states must come back by folding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from workbench.numerics.token_columns import needed_columns
from workbench.store.errors import StoreError
from workbench.types import Ragged, Rollouts

KINDS = ("all", "sample", "none")
TOKEN_COLUMNS = ("tokens", "logp", "entropy", "role", "proximal", "current")
"""Those of completions; the token advantages go with them."""


@dataclass(frozen=True)
class Retention:
    """kind: all, sample or none; share: of the groups in a sample; needs: columns kept for all in any case, under their
    own names or those by which methods ask for them, and with any of them the role: without it tokens of a hint in front
    would be taken for the rollout's own."""

    kind: str = "all"
    share: float = 0.125
    needs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise StoreError(f"retention is one of {', '.join(KINDS)}, not {self.kind!r}")
        if not 0 < self.share <= 1:
            raise StoreError(f"retention keeps a share of the groups above 0 and up to 1, not {self.share}")

    @property
    def always(self) -> tuple[str, ...]:
        """Token-level columns kept for all."""
        needed = needed_columns(self.needs)
        return tuple(c for c in TOKEN_COLUMNS if c in needed or (c == "role" and needed.intersection(TOKEN_COLUMNS)))

    def kept(self, step: int, prompt_ids: np.ndarray) -> np.ndarray:
        """(R,) bool: rollouts whose token columns stay."""
        if self.kind != "sample":
            return np.full(len(prompt_ids), self.kind == "all")
        ids, where = np.unique(prompt_ids.astype(str), return_inverse=True)
        chosen = [_uniform(f"{step}:{id_}") < self.share for id_ in ids]
        return np.array(chosen, bool)[where]

    def thin(self, made: dict, step: int, rollouts: Rollouts, prompt_ids: np.ndarray) -> dict:
        """The tables of a step or evaluation without the token columns that are not kept."""
        kept = self.kept(step, prompt_ids)
        if kept.all():
            return made
        drop = [c for c in TOKEN_COLUMNS if c not in self.always]
        made["completions"] = made["completions"] | {c: only(getattr(rollouts, c), kept) for c in drop}
        if "advantages" in made:
            made["advantages"] = made["advantages"] | {"tokens": only(made["advantages"]["tokens"], kept)}
        return made

    def describe(self) -> Mapping[str, object]:
        """As the attempts table has it."""
        return {"retention": self.kind, "share": self.share if self.kind == "sample" else float(self.kind == "all"),
                "kept": [list(self.always)]}  # fmt: skip


def missing(columns: Mapping[str, pa.ChunkedArray], needs: Collection[str]) -> tuple[str, int] | None:
    """(column, rows kept) of the first needed column that is not there for every rollout; None where all are."""
    for name in TOKEN_COLUMNS:
        if name in needed_columns(needs) and columns[name].null_count:
            return name, len(columns[name]) - columns[name].null_count
    return None


def only(column: Ragged | None, kept: np.ndarray | None = None) -> pa.Array | None:
    """A ragged column with null for rows that are not kept, and for rows that are NaN throughout: not computed."""
    if column is None:
        return None
    row = np.repeat(np.arange(column.n_rows), column.lengths)
    unknown = np.bincount(row, np.isnan(column.values), minlength=column.n_rows)
    computed = (unknown < column.lengths) | (column.lengths == 0)
    left = computed if kept is None else kept & computed
    if not left.any():
        return None
    lengths = np.where(left, column.lengths, 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(column.take(left).values), mask=pa.array(~left))


def _uniform(text: str) -> float:
    """In [0, 1), the same for the same text everywhere."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") / 2**64
