"""Columns of equal length, one row per rollout or prompt, and those whose rows differ in length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np


class Ragged(NamedTuple):
    """A column whose rows differ in length: values (sum of lengths,), offsets (R + 1,) int64."""

    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, rows: Iterable[Sequence | np.ndarray], dtype: np.typing.DTypeLike) -> Ragged:
        """Pack rows of different lengths; no rows give an empty column."""
        arrays = [np.asarray(row, dtype=dtype) for row in rows]
        offsets = np.concatenate([[0], np.cumsum([len(a) for a in arrays])]).astype(np.int64)
        values = np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
        return cls(values, offsets)

    @property
    def lengths(self) -> np.ndarray:
        """(R,) int64 number of values in each row."""
        return np.diff(self.offsets)

    @property
    def n_rows(self) -> int:
        """Number of rows R."""
        return len(self.offsets) - 1

    def row(self, i: int) -> np.ndarray:
        """A view of the values of row i."""
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def rows(self) -> Iterator[np.ndarray]:
        """Views of all rows, in order."""
        return (self.row(i) for i in range(self.n_rows))

    def take(self, rows: np.ndarray) -> Ragged:
        """The rows named by an index or boolean mask, packed again."""
        rows = np.arange(self.n_rows)[rows]
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Ragged(self.values[np.repeat(self.offsets[rows], lengths) + inside], offsets)

    def mean(self) -> np.ndarray:
        """(R,) float64 mean of each row; an empty row gives NaN."""
        row = np.repeat(np.arange(self.n_rows), self.lengths)
        total = np.bincount(row, self.values, minlength=self.n_rows)
        return np.where(self.lengths > 0, total / np.maximum(self.lengths, 1), np.nan)

    @staticmethod
    def concat(parts: Sequence[Ragged]) -> Ragged:
        """The rows of all parts, in order."""
        lengths = np.concatenate([p.lengths for p in parts])
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Ragged(np.concatenate([p.values for p in parts]), offsets)


def frozen(mapping: Mapping) -> Mapping:
    """A read-only view of a copy."""
    return MappingProxyType(dict(mapping))


def take(column: Any, rows: np.ndarray) -> Any:
    """The rows named by an index or mask of a column, ragged or not, or of each in a mapping; None stays None."""
    if isinstance(column, Ragged):
        return column.take(rows)
    if isinstance(column, Mapping):
        return {name: take(part, rows) for name, part in column.items()}
    return None if column is None else column[rows]


def _blank(column: np.ndarray | Ragged, n: int) -> np.ndarray | Ragged:
    """n rows of a column of which nothing is known: NaN, False, "" or 0 by its type, empty where it is ragged."""
    if isinstance(column, Ragged):
        return Ragged(column.values[:0], np.zeros(n + 1, np.int64))
    column = np.asarray(column)
    fill = {"f": np.nan, "O": "", "U": ""}.get(column.dtype.kind, 0)
    return np.full((n, *column.shape[1:]), fill, dtype=column.dtype)


def concat(parts: Sequence[Any], sizes: Sequence[int]) -> Any:
    """The rows of all parts of a column, of so many rows each, in order; `_blank` where a mapping lacks one."""
    first = parts[0]
    if isinstance(first, Ragged):
        return Ragged.concat(parts)
    if isinstance(first, Mapping):
        like = {name: part[name] for part in reversed(parts) for name in part}
        whole = [
            {n: part[n] if n in part else _blank(like[n], k) for n in like}
            for part, k in zip(parts, sizes, strict=True)
        ]
        return {name: concat([part[name] for part in whole], sizes) for name in sorted(like)}
    return None if first is None else np.concatenate(parts)
