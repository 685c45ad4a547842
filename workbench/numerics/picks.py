"""Top-k selection: the k best of many scores, without sorting all of them; ties go to the lowest index."""

from __future__ import annotations

import numpy as np


def smallest(score: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k smallest scores, in order of (score, position); all of them where k exceeds their number.

    score (M,) without NaN; returns (min(k, M),) int64. Linear in M: a partition finds the threshold, then only what
    lies at or under it is sorted."""
    m = len(score)
    k = max(min(k, m), 0)
    if k in (0, m):
        return np.argsort(score, kind="stable")[:k]
    threshold = np.partition(score, k - 1)[k - 1]
    below = np.flatnonzero(score < threshold)
    level = np.flatnonzero(score == threshold)[: k - len(below)]
    return np.concatenate([below[np.argsort(score[below], kind="stable")], level])


def largest(score: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest scores, best first; ties by the lowest position."""
    return smallest(-np.asarray(score), k)
