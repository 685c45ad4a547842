"""pass@k and majority@k: what k samples of a prompt achieve, estimated from n of them. Exact, unbiased.

Both are means over all subsets of k of the n samples, so that one evaluation with n samples gives every k up to n.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb

import numpy as np


def pass_at_k(n: np.ndarray, solved: np.ndarray, k: int) -> np.ndarray:
    """(P,) chance that k of n samples hold a right one: 1 - C(n - solved, k) / C(n, k); NaN where n < k.

    n, solved (P,) whole numbers. Unbiased (Chen et al. 2021, 2107.03374, eq. 1); the plug-in 1 - (1 - c / n)^k is not.
    """
    if k < 1:
        raise ValueError(f"pass@k needs one sample at least, got k={k}")
    n, wrong = np.asarray(n, float), np.asarray(n, float) - np.asarray(solved, float)
    if (wrong < 0).any():
        raise ValueError("more solved than tried")
    # C(wrong, k) / C(n, k) as a product of k shares, each at most 1: no factorial leaves the range of floats
    i = np.arange(k)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.maximum(wrong[..., None] - i, 0) / (n[..., None] - i)
    return np.where(n >= k, 1 - shares.prod(-1), np.nan)


def majority_at_k(count: Sequence[int], credit: Sequence[float], k: int, silent: int = 0) -> float:
    """Chance that the answer given most among k samples is right; a tie goes to each of its answers alike.

    count: samples of each distinct answer; credit: the share of those that were right; silent: samples without an
    answer, which cannot win. NaN where there are fewer than k samples, 0 where none of the k answers."""
    total = sum(count) + silent
    if k < 1 or total < k:
        return float("nan")
    chance = Fraction(0)  # exact: binomials of a thousand samples leave the range of floats
    for j, (own, right) in enumerate(zip(count, credit, strict=True)):
        if right:
            others = [c for i, c in enumerate(count) if i != j]
            chance += Fraction(right) * sum(_wins(own, votes, others, silent, k) for votes in range(1, min(own, k) + 1))
    return float(chance / comb(total, k))


def _wins(own: int, votes: int, others: Sequence[int], silent: int, k: int) -> Fraction:
    """Subsets of k in which an answer with `own` samples has exactly `votes` and nobody more; ties count in shares."""
    left = k - votes
    # ways[t][s]: subsets of s samples of the others, at most `votes` of each, t of them level with us
    ways = [[1] + [0] * left]
    for c in others:
        fresh = [[0] * (left + 1) for _ in range(len(ways) + 1)]
        for t, row in enumerate(ways):
            for s, w in enumerate(row):
                if w:
                    for taken in range(min(votes, c, left - s) + 1):
                        fresh[t + (taken == votes)][s + taken] += w * comb(c, taken)
        ways = fresh[: left // votes + 1]
    level = (sum(w * comb(silent, left - s) for s, w in enumerate(row) if w) for row in ways)
    return comb(own, votes) * sum((Fraction(n, t + 1) for t, n in enumerate(level)), Fraction(0))
