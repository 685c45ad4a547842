"""Delta encoding of beliefs: a row for prompts that were observed, or whose belief moved since it was last written."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

BOUNDS = ("mean", "low", "high")
Beliefs = Mapping[str, Mapping[str, np.ndarray]]
"""Method -> column -> (N,)."""


class Changes:
    """The beliefs last written, by method. A method seen for the first time is written for every prompt."""

    def __init__(self, n_prompts: int, tolerance: float) -> None:
        self.n_prompts, self.tolerance = n_prompts, tolerance
        self._written: dict[str, dict[str, np.ndarray]] = {}

    def rows(self, beliefs: Beliefs, observed: np.ndarray | None) -> dict[str, np.ndarray]:
        """Method -> rows of the pool to write."""
        return {method: self._rows(method, columns, observed) for method, columns in beliefs.items()}

    def _rows(self, method: str, columns: Mapping[str, np.ndarray], observed: np.ndarray | None) -> np.ndarray:
        if method not in self._written:
            return np.arange(self.n_prompts)
        moved = np.zeros(self.n_prompts, bool)
        moved[[] if observed is None else observed] = True
        for name, old in self._written[method].items():
            new = np.asarray(columns.get(name, old), float)
            moved |= (np.abs(new - old) > self.tolerance) | (np.isnan(new) != np.isnan(old))
        return np.flatnonzero(moved)

    def wrote(self, beliefs: Beliefs, rows: Mapping[str, np.ndarray]) -> None:
        """Remember what became durable."""
        for method, chosen in rows.items():
            blank = {name: np.full(self.n_prompts, np.nan) for name in BOUNDS}
            for name, kept in self._written.setdefault(method, blank).items():
                if name in beliefs[method]:
                    kept[chosen] = np.asarray(beliefs[method][name], float)[chosen]
