"""Greedy budget allocation, one unit at a time to the largest next gain; the exact best split where gains are not concave."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


def spend(gain: np.ndarray, budget: int) -> np.ndarray:
    """Units each row gets when the next unit always goes to the row whose next gain is largest.

    gain (M, K): what unit 1, 2, ... of a row adds. Returns (M,) int64 of at most K, together at most budget; a gain
    that is not positive is never bought. Ties go to the lowest row. No queue is needed: the order in which greedy
    takes units is that of the smallest gain up to and including each of them."""
    m = len(gain)
    if not gain.size or budget <= 0:
        return np.zeros(m, np.int64)
    reach = np.minimum.accumulate(gain, axis=1)
    wanted = reach > 0
    if wanted.sum() <= budget:
        return wanted.sum(axis=1).astype(np.int64)
    level = np.partition(reach, reach.size - budget, axis=None)[reach.size - budget]
    above = (reach > level).sum(axis=1)
    level_units = (reach == level).sum(axis=1)
    before = np.cumsum(level_units) - level_units
    left = budget - int(above.sum())
    return (above + np.clip(left - before, 0, level_units)).astype(np.int64)


class Split(NamedTuple):
    """n (M,) int64 units of each row; value = their summed worth; spent units."""

    n: np.ndarray
    value: float
    spent: int


def best_split(value: np.ndarray, budget: int) -> Split:
    """The split of at most `budget` units whose summed worth is largest, by dynamic programming over the budget.

    value (M, K + 1): what 0, 1, ..., K units of a row are worth; -inf forbids a number. Of equally good splits the one
    that spends least, and then the one that favours low rows. O(M K budget)."""
    m, width = value.shape
    width = min(width, budget + 1)
    padded = np.full(width - 1 + budget + 1, -np.inf)  # what is left of the budget, -inf where units exceed it
    best = padded[width - 1 :]
    best[:] = 0.0
    left = np.lib.stride_tricks.sliding_window_view(padded, budget + 1)[::-1]  # left[units, b] = best[b - units]
    chosen = np.zeros((m, budget + 1), np.int64)
    for row in range(m):
        worth = left + value[row, :width, None]
        chosen[row] = np.argmax(worth, axis=0)  # the first of equals: fewest units
        best[:] = np.take_along_axis(worth, chosen[row][None], axis=0)[0]
    at = spent = int(np.argmax(best))
    n = np.zeros(m, np.int64)
    for row in range(m - 1, -1, -1):
        n[row] = chosen[row, at]
        at -= n[row]
    return Split(n, float(best[spent]), int(n.sum()))
