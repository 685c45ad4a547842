"""Binning of beliefs: a value per prompt over the steps of a run, kept small enough to draw. Numpy only.

Beliefs arrive as rows (prompt, step, value) of those prompts that changed; a prompt keeps its value until the next
row. At most COLUMNS columns are held: when they are full, every second one goes and each stands for twice as many
steps, so that 100,000 prompts cost 200 MB however long the run is, and a refresh touches the new columns alone.
"""

from __future__ import annotations

import numpy as np

COLUMNS = 512
PIXELS = 400
"""Rows drawn at most; a row of the picture is then the mean of neighbouring prompts."""


class BinnedBeliefs:
    """Values (N, C) float32: the value of each prompt at the end of the last step its column stands for."""

    def __init__(self, n_prompts: int, columns: int = COLUMNS) -> None:
        self.limit = columns
        self.width = 1
        self.last_step = 0
        self.values = np.full((n_prompts, 16), np.nan, np.float32)
        self.first = np.full(n_prompts, np.nan, np.float32)
        self.visits = np.zeros(n_prompts, np.int64)
        self.n_columns = 0

    def extend(self, row: np.ndarray, step: np.ndarray, value: np.ndarray, last_step: int) -> int:
        """Take in rows ascending in step, up to last_step; returns the first column that changed.

        row, step (K,) int64, value (K,) floats. Rows of step 0 (before any update) go to the first column."""
        while (last_step - 1) // self.width >= self.limit:
            if self.n_columns % 2:  # the second column of the last pair is still to come: it starts as the first
                self.values[:, self.n_columns] = self.values[:, self.n_columns - 1]
                self.n_columns += 1
            self.values = np.ascontiguousarray(self.values[:, 1::2])
            self.width *= 2
            self.n_columns //= 2
        n = max(last_step - 1, 0) // self.width + 1 if last_step else 0
        if n > self.values.shape[1]:
            room = min(self.limit, max(n, 2 * self.values.shape[1]))
            more = np.full((len(self.values), room - self.values.shape[1]), np.nan, np.float32)
            self.values = np.hstack([self.values, more])
        column = np.maximum(np.asarray(step, np.int64) - 1, 0) // self.width
        start = int(min(column.min() if len(column) else n, self.n_columns))
        self.values[row, column] = value
        new = np.isnan(self.first[row])
        if new.any():
            rows, at = np.unique(row[new], return_index=True)
            self.first[rows] = value[new][at]
        self.visits += np.bincount(row, minlength=len(self.visits))
        self._fill(max(start, 1), n)
        self.n_columns, self.last_step = n, last_step
        return start

    def _fill(self, start: int, stop: int) -> None:
        """Give every gap of the columns start..stop the value to its left; a few prompts at a time stay in the cache."""
        for at in range(0, len(self.values), 256):
            block = self.values[at : at + 256, start - 1 : stop]
            source = np.where(np.isnan(block), 0, np.arange(block.shape[1], dtype=np.int32))
            np.maximum.accumulate(source, axis=1, out=source)
            block[...] = np.take_along_axis(block, source, axis=1)

    @property
    def latest(self) -> np.ndarray:
        """(N,) value of each prompt now; NaN where nothing is known."""
        if not self.n_columns:
            return np.full(len(self.values), np.nan, np.float32)
        return self.values[:, self.n_columns - 1]

    def order(self, kind: str, stratum: np.ndarray) -> np.ndarray:
        """(N,) rows from the bottom of the picture to its top; ties keep the order of the pool.

        difficulty: hardest at the bottom. stratum: strata by their mean, difficulty inside. change: what fell most
        at the bottom. Prompts without a value stand at the bottom."""
        now = np.nan_to_num(self.latest, nan=-1.0)
        if kind == "pool order":
            return np.arange(len(now))
        if kind == "times asked":
            return np.argsort(self.visits, kind="stable")
        if kind == "change":
            return np.argsort(np.nan_to_num(self.latest - self.first, nan=-2.0), kind="stable")
        if kind == "stratum":
            _, code = np.unique(stratum, return_inverse=True)
            mean = np.bincount(code, now) / np.bincount(code)
            return np.lexsort((now, code, mean[code]))
        return np.argsort(now, kind="stable")

    def pixels(self, order: np.ndarray, first: int = 0, rows: int = PIXELS) -> np.ndarray:
        """(P, C') float32 rows of the picture, bottom up, of the columns from `first` on; P <= rows.

        More prompts than rows: each row is the mean of ceil(N / rows) neighbours that have a value."""
        block = self.values[order, first : self.n_columns]
        k = per_row(len(order), rows)
        if k == 1:
            return block
        at = np.arange(0, len(order), k)
        known = np.isfinite(block)
        total = np.add.reduceat(np.where(known, block, 0), at, axis=0)
        n = np.add.reduceat(known, at, axis=0, dtype=np.int32)
        return np.where(n > 0, total / np.maximum(n, 1), np.nan).astype(np.float32)


def per_row(n_prompts: int, rows: int = PIXELS) -> int:
    """How many prompts one row of the picture stands for."""
    return max(1, -(-n_prompts // rows))
