"""Group statistics (mean, std, median) of groups given as an index column: one pass each, no loop over groups.

A group is a value of `group` (R,) int64 in [0, n_groups). Nulls are NaN and are left out of every statistic; an
empty group has n 0 and NaN elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class GroupStats(NamedTuple):
    """(G,) columns: n int64 scored rows, mean, std with one degree of freedom less (0 for a single row), low, high."""

    n: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def settled(self) -> np.ndarray:
        """(G,) bool: all scored rows alike, or none scored. By range: the float std of [0.1, 0.1, 0.1] is not 0."""
        return ~(self.high > self.low)


def describe(value: np.ndarray, group: np.ndarray, n_groups: int) -> GroupStats:
    """Count, mean, std, lowest and highest value of every group; value (R,), group (R,) int64."""
    scored = np.isfinite(value)
    value, group = value[scored], group[scored]
    n = np.bincount(group, minlength=n_groups)
    low, high = np.full(n_groups, np.nan), np.full(n_groups, np.nan)
    np.fmin.at(low, group, value)
    np.fmax.at(high, group, value)
    total = np.bincount(group, value, minlength=n_groups)
    mean = np.where(n > 0, total / np.maximum(n, 1), np.nan)
    square = np.bincount(group, (value - mean[group]) ** 2, minlength=n_groups)
    return GroupStats(n, mean, np.sqrt(square / np.maximum(n - 1, 1)), low, high)


def lower_median(value: np.ndarray, group: np.ndarray, n_groups: int) -> np.ndarray:
    """(G,) median of every group, the lower of the two middle values where n is even; NaN for an empty group."""
    scored = np.isfinite(value)
    value, group = value[scored], group[scored]
    n = np.bincount(group, minlength=n_groups)
    ordered = np.append(value[np.lexsort((value, group))], np.nan)
    middle = np.cumsum(n) - n + (n - 1) // 2
    return ordered[np.where(n > 0, middle, len(value))]


def first_rows(where: np.ndarray, group: np.ndarray, n_groups: int) -> np.ndarray:
    """(G,) int64 lowest row of every group at which `where` (R,) bool holds; -1 where it holds nowhere."""
    first = np.full(n_groups, -1, np.int64)
    rows = np.flatnonzero(where)[::-1]
    first[group[rows]] = rows
    return first


def whiten(value: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """(value - mean) / sqrt(var + eps), each row counted `weight` times, variance with Bessel's correction.

    value, weight (R,); rows of weight 0 get 0, and so do all rows where nothing varies."""
    total = weight.sum()
    inside = weight > 0
    if total <= 1 or not value[inside].max(initial=-np.inf) > value[inside].min(initial=np.inf):
        return np.zeros(len(value))
    mean = (weight * value).sum() / total
    var = (weight * (value - mean) ** 2).sum() / (total - 1)
    return np.where(inside, (value - mean) / np.sqrt(var + eps), 0.0)
