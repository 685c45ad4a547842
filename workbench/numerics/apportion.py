"""Apportionment by largest remainder: whole numbers from shares, so that budgets are spent exactly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


def apportion(
    weight: ArrayLike, total: int, floor: ArrayLike = 0, cap: ArrayLike | None = None, step: int = 1
) -> np.ndarray:
    """Whole numbers proportional to weight, at least floor and at most cap each; ties go to the lowest index.

    weight (M,) >= 0; floor, cap whole numbers or (M,) of them; returns (M,) int64 that sums to total. Largest remainder
    on what the floors leave over; where caps bind, the surplus is apportioned again over the rest. All weights zero
    means equal shares. step: every number is a multiple of it, and so must be total, floors and caps.
    Raises ValueError where floors, caps or steps cannot meet the total."""
    weight = np.asarray(weight, float)
    m = len(weight)
    if (weight < 0).any() or not np.isfinite(weight).all():
        raise ValueError(f"weights must be finite and not negative, got {weight[~(weight >= 0)][:3]}")
    low = np.broadcast_to(np.asarray(floor, np.int64), m)
    high = None if cap is None else np.broadcast_to(np.asarray(cap, np.int64), m)
    if step != 1:
        parts = [np.atleast_1d(total), low, *([] if high is None else [high])]
        odd = [int(p[p % step != 0][0]) for p in parts if (p % step != 0).any()]
        if odd:
            raise ValueError(f"{odd[0]} is no multiple of the step {step}")
        return step * apportion(weight, total // step, low // step, None if high is None else high // step)
    if low.sum() > total:
        raise ValueError(f"{total} rollouts cannot give {m} prompts {_range(low)} each")
    if high is not None and high.sum() < total:
        raise ValueError(f"{total} rollouts exceed {_range(high)} for each of {m} prompts")
    if high is not None and (low > high).any():
        i = int(np.flatnonzero(low > high)[0])
        raise ValueError(f"prompt {i} must get {low[i]} at least and {high[i]} at most")
    n = low.copy()
    while (left := total - int(n.sum())) > 0:
        open_ = np.ones(m, bool) if high is None else n < high
        share = np.where(open_, weight, 0.0)
        if share.sum() == 0:
            share = open_.astype(float)
        exact = left * share / share.sum()
        whole = np.floor(exact).astype(np.int64)
        rest = left - int(whole.sum())
        if rest:
            remainder = np.where(open_ & (share > 0), exact - whole, -1.0)
            whole[np.argsort(-remainder, kind="stable")[:rest]] += 1
        n = n + whole if high is None else np.minimum(n + whole, high)
    return n


def _range(values: np.ndarray) -> str:
    """What all of them are, or "2 to 5" where they differ."""
    low, high = values.min(initial=np.iinfo(np.int64).max), values.max(initial=0)
    return f"{high}" if low >= high else f"{low} to {high}"


class Arms(NamedTuple):
    """chosen (B,) int64 positions in the list of arms; sum = what they spend."""

    chosen: np.ndarray
    sum: int


def choose(value: ArrayLike, size: ArrayLike, arms: ArrayLike, total: int) -> Arms:
    """One arm for every class so that sum of size times arm is total and the summed value is largest.

    value (B, A) finite; size (B,) members of each class; arms (A,) whole numbers, what an arm costs a member. Where no
    combination meets the total the nearest sum is taken, of two equally near ones the better, then the smaller.
    Exact, by dynamic programming over sums: time B A total. Ties go to the first arm, decided from the last class on."""
    value, size, arms = np.asarray(value, float), np.asarray(size, np.int64), np.asarray(arms, np.int64)
    if value.shape != (len(size), len(arms)) or not len(arms):
        raise ValueError(f"{value.shape} values for {len(size)} classes and {len(arms)} arms")
    if (size < 0).any() or (arms < 0).any():
        raise ValueError(f"sizes and arms must not be negative, got {size.tolist()} and {arms.tolist()}")
    least, most = int(size.sum() * arms.min()), int(size.sum() * arms.max())
    # nothing farther from the total than the cheapest combination can win
    end = min(most, max(least, 2 * total - least))
    best = np.full(end + 1, -np.inf)
    best[0] = 0.0
    taken = np.zeros((len(size), end + 1), np.int64)
    for b, members in enumerate(size):
        after = np.full(end + 1, -np.inf)
        for a, cost in enumerate((members * arms).tolist()):
            if cost > end:
                continue
            with_arm = best[: end + 1 - cost] + value[b, a]
            better = with_arm > after[cost:]
            after[cost:][better] = with_arm[better]
            taken[b, cost:][better] = a
        best = after
    sums = np.flatnonzero(best > -np.inf)
    spent = int(sums[np.lexsort((sums, -best[sums], np.abs(sums - total)))[0]])
    chosen, left = np.zeros(len(size), np.int64), spent
    for b in range(len(size) - 1, -1, -1):
        chosen[b] = taken[b, left]
        left -= int(size[b] * arms[chosen[b]])
    return Arms(chosen, spent)
