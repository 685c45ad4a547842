"""Confidence intervals (paired t) of differences between pipelines over seeds that share their random numbers."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.t_intervals import unit_half_widths


class Interval(NamedTuple):
    """A mean over n pairs and the bounds of its interval; NaN bounds where n < 2, NaN all where n = 0."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies on one side of 0, else 0."""
        return int(self.low > 0) - int(self.high < 0)


def paired(ours: ArrayLike, theirs: ArrayLike = 0.0, level: float = 0.95) -> Interval:
    """Mean of ours - theirs, (S,) each with one entry a seed; pairs with a NaN do not count."""
    difference = np.asarray(ours, float) - np.asarray(theirs, float)
    difference = difference[np.isfinite(difference)]
    n = len(difference)
    if n < 2:
        return Interval(float(difference.mean()) if n else np.nan, np.nan, np.nan, n)
    mean, half = difference.mean(), half_width(level, n) * difference.std(ddof=1)
    return Interval(float(mean), float(mean - half), float(mean + half), n)


@cache
def half_width(level: float, n: int) -> float:
    """Half-width of the interval of a mean of n values with sample standard deviation 1."""
    return float(unit_half_widths(1 - level, n)[n])


def ratio(ours: ArrayLike, theirs: ArrayLike, level: float = 0.95) -> Interval:
    """Geometric mean of ours / theirs, positive (S,) each, with the interval of its logarithm."""
    logs = paired(np.log(np.asarray(ours, float)), np.log(np.asarray(theirs, float)), level)
    mean, low, high = (float(np.exp(v)) for v in logs[:3])
    return Interval(mean, low, high, logs.n)
