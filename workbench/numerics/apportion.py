"""Whole numbers from shares: budgets are integers and are spent exactly."""

from __future__ import annotations

import numpy as np


def apportion(weight: np.ndarray, total: int, floor: int = 0, cap: int | None = None) -> np.ndarray:
    """Whole numbers proportional to weight, at least floor and at most cap each; ties go to the lowest index.

    weight (M,) >= 0; returns (M,) int64 that sums to total. Largest remainder on what the floors leave over;
    where caps bind, the surplus is apportioned again over the rest. All weights zero means equal shares.
    Raises ValueError where floors or caps cannot meet the total."""
    weight = np.asarray(weight, float)
    m = len(weight)
    if (weight < 0).any() or not np.isfinite(weight).all():
        raise ValueError(f"weights must be finite and not negative, got {weight[~(weight >= 0)][:3]}")
    if floor * m > total:
        raise ValueError(f"{total} rollouts cannot give {m} prompts {floor} each")
    if cap is not None and cap * m < total:
        raise ValueError(f"{total} rollouts exceed {cap} for each of {m} prompts")
    n = np.full(m, floor, np.int64)
    while (left := total - int(n.sum())) > 0:
        open_ = np.ones(m, bool) if cap is None else n < cap
        share = np.where(open_, weight, 0.0)
        if share.sum() == 0:
            share = open_.astype(float)
        exact = left * share / share.sum()
        whole = np.floor(exact).astype(np.int64)
        rest = left - int(whole.sum())
        if rest:
            remainder = np.where(open_ & (share > 0), exact - whole, -1.0)
            whole[np.argsort(-remainder, kind="stable")[:rest]] += 1
        n = n + whole if cap is None else np.minimum(n + whole, cap)
    return n
