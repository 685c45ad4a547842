"""Student-t intervals: half-widths from the incomplete beta function; numpy has no t law."""

from __future__ import annotations

import numpy as np

from workbench.numerics.beta import quantile


def t_quantile(alpha: float, freedom: np.ndarray) -> np.ndarray:
    """t with P(|T| > t) = alpha for `freedom` degrees (M,) > 0; agrees with scipy's t.ppf(1 - alpha / 2) to 1e-12."""
    freedom = np.asarray(freedom, float)
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is the chance to lie outside the interval, in 0..1; got {alpha}")
    y = quantile(alpha, freedom / 2, 0.5)  # y = nu / (nu + t^2) ~ Beta(nu / 2, 1 / 2)
    return np.sqrt(freedom * (1 - y) / y)


def unit_half_widths(alpha: float, n_max: int) -> np.ndarray:
    """(n_max + 1,) half-width of the mean of n = 0, 1, ... values of sample std 1: t / sqrt(n); NaN for n < 2."""
    width = np.full(n_max + 1, np.nan)
    n = np.arange(2, n_max + 1)
    width[2:] = t_quantile(alpha, n - 1) / np.sqrt(n) if len(n) else []
    return width
