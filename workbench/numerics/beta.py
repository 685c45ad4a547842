"""The Beta distribution over arrays: cumulative probability, quantile, central interval.

numpy has no incomplete beta function and the core imports nothing heavier. Agrees with scipy to 1e-10.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_SHIFT = 8


def log_gamma(x: ArrayLike) -> np.ndarray:
    """log Gamma(x) for x > 0: Stirling's series at x + 8, brought back by the recurrence."""
    x = np.asarray(x, float)
    y = x + _SHIFT
    series = sum(c / y ** (2 * k + 1) for k, c in enumerate(_STIRLING))
    back = np.prod([x + k for k in range(_SHIFT)], axis=0)
    return (y - 0.5) * np.log(y) - y + 0.5 * np.log(2 * np.pi) + series - np.log(back)


def digamma(x: ArrayLike) -> np.ndarray:
    """psi(x), the slope of log Gamma, for x > 0: its asymptotic series at x + 8, brought back by the recurrence."""
    x = np.asarray(x, float)
    y = x + _SHIFT
    series = sum((2 * k + 1) * c / y ** (2 * k + 2) for k, c in enumerate(_STIRLING))
    back = np.sum([1 / (x + k) for k in range(_SHIFT)], axis=0)
    return np.log(y) - 0.5 / y - series - back


def _continued_fraction(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Lentz's evaluation of the incomplete beta function's fraction (Numerical Recipes 6.4); rows leave as they settle."""
    tiny = 1e-300
    out = np.empty(len(x))
    rows = np.arange(len(x))
    c, d = np.ones(len(x)), 1 / (1 - (a + b) * x / (a + 1))
    h = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 + even * d
        c = 1 + even / c
        d = 1 / np.where(np.abs(d) < tiny, tiny, d)
        h = h * d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 + odd * d
        c = 1 + odd / np.where(np.abs(c) < tiny, tiny, c)
        d = 1 / np.where(np.abs(d) < tiny, tiny, d)
        h = h * d * c
        open_ = np.abs(d * c - 1) > 1e-15
        if m % 4 == 0 or not open_.any():
            out[rows[~open_]] = h[~open_]
            if not open_.any():
                return out
            rows = rows[open_]
            a, b, x, c, d, h = (v[open_] for v in (a, b, x, c, d, h))
    out[rows] = h
    return out


def cdf(x: ArrayLike, alpha: ArrayLike, beta: ArrayLike) -> np.ndarray:
    """P(p <= x) for p ~ Beta(alpha, beta); arguments broadcast; x outside [0, 1] counts as its nearer end."""
    x, a, b = np.broadcast_arrays(*(np.asarray(v, float) for v in (x, alpha, beta)))
    shape = x.shape
    x, a, b = np.clip(x, 0, 1).ravel(), a.ravel(), b.ravel()
    result = (x >= 1).astype(float)
    inside = np.flatnonzero((x > 0) & (x < 1))
    x, a, b = x[inside], a[inside], b[inside]
    # the fraction converges fast on the side of the mean where the tail is the smaller one
    flip = x > (a + 1) / (a + b + 2)
    a, b, x, y = np.where(flip, b, a), np.where(flip, a, b), np.where(flip, 1 - x, x), np.where(flip, x, 1 - x)
    front = np.exp(a * np.log(x) + b * np.log(y) - log_beta(a, b)) / a
    tail = front * _continued_fraction(a, b, x)
    result[inside] = np.clip(np.where(flip, 1 - tail, tail), 0, 1)
    return result.reshape(shape)


def log_beta(alpha: ArrayLike, beta: ArrayLike) -> np.ndarray:
    """log B(alpha, beta)."""
    return log_gamma(alpha) + log_gamma(beta) - log_gamma(np.asarray(alpha) + np.asarray(beta))


def _normal_guess(q: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quantile of a normal law on the scale of half the log odds (Abramowitz and Stegun 26.5.22); the mean where
    a parameter is below 1 and the formula does not hold."""
    t = np.sqrt(-2 * np.log(np.minimum(q, 1 - q)))
    z = np.where(q < 0.5, 1, -1) * (t - (2.30753 + 0.27061 * t) / (1 + t * (0.99229 + 0.04481 * t)))
    valid = (a >= 1) & (b >= 1)
    u, v = 1 / (2 * np.where(valid, a, 1) - 1), 1 / (2 * np.where(valid, b, 1) - 1)
    h, lam = 2 / (u + v), (z**2 - 3) / 6
    w = z * np.sqrt(np.maximum(h + lam, 0)) / h - (v - u) * (lam + 5 / 6 - 2 / (3 * h))
    with np.errstate(over="ignore"):
        guess = a / (a + b * np.exp(2 * w))
    return np.where(valid & (guess > 0) & (guess < 1), guess, a / (a + b))


def quantile(q: ArrayLike, alpha: ArrayLike, beta: ArrayLike) -> np.ndarray:
    """x with P(p <= x) = q for p ~ Beta(alpha, beta); arguments broadcast, q in [0, 1].

    Newton's steps inside a shrinking bracket from a normal approximation on; the error in x is below 1e-10."""
    q, a, b = np.broadcast_arrays(*(np.asarray(v, float) for v in (q, alpha, beta)))
    shape = q.shape
    q, a, b = q.ravel(), a.ravel(), b.ravel()
    out = np.where(q >= 1, 1.0, 0.0)
    rows = np.flatnonzero((q > 0) & (q < 1))
    q, a, b = q[rows], a[rows], b[rows]
    norm = log_beta(a, b)
    x = _normal_guess(q, a, b)
    low, high = np.zeros(len(x)), np.ones(len(x))
    for _ in range(100):
        if not len(rows):
            break
        over = cdf(x, a, b) - q
        low, high = np.where(over < 0, x, low), np.where(over >= 0, x, high)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            density = np.exp((a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - norm)
            newton = x - over / density
        step = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
        done = (np.abs(step - x) < 1e-8 * np.minimum(1, np.minimum(step, 1 - step) * 10)) | (high - low < 1e-13)
        out[rows[done]] = step[done]
        rows = rows[~done]
        q, a, b, norm, low, high, x = (v[~done] for v in (q, a, b, norm, low, high, step))
    out[rows] = x
    return out.reshape(shape)


def interval(alpha: np.ndarray, beta: np.ndarray, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
    """(low, high), each (N,): the central interval that holds `level` of Beta(alpha, beta).

    Equal beliefs are computed once, so a pool of a million prompts costs what its distinct beliefs cost."""
    pairs, which = np.unique(np.asarray(alpha) + 1j * np.asarray(beta), return_inverse=True)
    tail = (1 - level) / 2
    return quantile(tail, pairs.real, pairs.imag)[which], quantile(1 - tail, pairs.real, pairs.imag)[which]
