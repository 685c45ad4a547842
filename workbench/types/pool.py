"""Prompt pool: the training prompts that a run may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from workbench.types.columns import frozen, take
from workbench.types.html import cut, rest, table


@dataclass(frozen=True, eq=False)
class Pool:
    """The prompts a run may ask for: N rows with stable ids.

    ids (N,) str is a content hash and a count of its copies, equal across runs, machines and orders of the rows.
    text, answer (N,) str are shown and verified; prefix (N,) str is a prefilled start of the answer.
    stratum (N,) str names the family of a prompt; features maps a name to (N, d) floats.
    """

    ids: np.ndarray
    text: np.ndarray
    answer: np.ndarray
    prefix: np.ndarray
    stratum: np.ndarray
    features: Mapping[str, np.ndarray] = field(default_factory=dict)
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.ids)
        for name in ("text", "answer", "prefix", "stratum"):
            if len(getattr(self, name)) != n:
                raise ValueError(f"pool has {n} ids but {len(getattr(self, name))} in column {name!r}")
        unique, counts = np.unique(self.ids, return_counts=True)
        if len(unique) != n:
            twice = unique[counts > 1][:3].tolist()
            raise ValueError(f"prompt ids must be unique; {twice} appear more than once")
        object.__setattr__(self, "features", frozen(self.features))
        object.__setattr__(self, "extra", frozen(self.extra))

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: np.ndarray) -> Pool:
        """The pool of the rows named by an index or mask."""
        return Pool(**{f.name: take(getattr(self, f.name), rows) for f in fields(self)})

    def __repr__(self) -> str:
        names, counts = np.unique(self.stratum, return_counts=True)
        strata = ", ".join(f"{n} {c}" for n, c in list(zip(names, counts, strict=True))[:6])
        return f"Pool({len(self)} prompts: {strata}{', ...' if len(names) > 6 else ''})"

    def _repr_html_(self, shown: int = 8) -> str:
        columns = (self.ids, self.stratum, self.text, self.answer)
        rows = [(cut(i, 40), s, cut(t), cut(a, 40)) for i, s, t, a in zip(*(c[:shown] for c in columns), strict=True)]
        return table(repr(self), ("id", "family", "prompt", "answer"), rows) + rest(len(self) - shown)
