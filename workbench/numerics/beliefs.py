"""Beliefs about success rates: Beta posteriors with forgetting, all prompts at once.

Updates never loop over prompts and never touch the arrays they are given.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Belief(NamedTuple):
    """p ~ Beta(alpha, beta): two floats or two (N,) arrays."""

    alpha: np.ndarray
    beta: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """alpha / (alpha + beta)."""
        return self.alpha / (self.alpha + self.beta)


def check_counts(successes: ArrayLike, n: ArrayLike) -> None:
    """Raise ValueError unless 0 <= successes <= n everywhere."""
    s, n = np.atleast_1d(np.asarray(successes, float)), np.atleast_1d(np.asarray(n, float))
    bad = ~((s >= 0) & (s <= n))
    if bad.any():
        raise ValueError(f"{s[bad][0]:g} successes of {n[bad][0]:g} rollouts: successes must lie in 0..n")


def set_rows(column: np.ndarray, rows: np.ndarray, value: np.ndarray) -> np.ndarray:
    """A copy of column (N,) with other values at rows (K,)."""
    column = column.copy()
    column[rows] = value
    return column


class DecayedCounts(NamedTuple):
    """Counts that fade with time, stored with the moment of their last change: alpha, beta (N,) float64,
    touched (N,) int64 clock reading of that change; clock = ticks so far. Nothing is rewritten as time passes."""

    alpha: np.ndarray
    beta: np.ndarray
    touched: np.ndarray
    clock: int

    @classmethod
    def empty(cls, n: int) -> DecayedCounts:
        """No evidence on n prompts, at clock 0."""
        return cls(np.zeros(n), np.zeros(n), np.zeros(n, np.int64), 0)

    def read(self, rate: float, at_most: int | None = None) -> Belief:
        """The counts now: `rate` once for every tick since a prompt's last change, or `at_most` times."""
        ticks = self.clock - self.touched
        fade = rate ** (ticks if at_most is None else np.minimum(ticks, at_most)).astype(float)
        return Belief(self.alpha * fade, self.beta * fade)


def _log_gamma_draw(shape: np.ndarray, normal: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """log of Gamma(shape >= 1) draws by Marsaglia and Tsang's rule (2000); NaN where the proposal is rejected."""
    d = shape - 1 / 3
    v = (1 + normal / np.sqrt(9 * d)) ** 3
    with np.errstate(divide="ignore", invalid="ignore"):
        log_v = np.log(v)
        return np.where(np.log(uniform) < normal**2 / 2 + d - d * v + d * log_v, np.log(d) + log_v, np.nan)


def draw(alpha: np.ndarray, beta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One draw from each Beta(alpha, beta); the draw of a row depends on its own belief and position alone.

    alpha, beta (M,) > 0; returns (M,) in [0, 1]. Generator.beta consumes its stream row after row, so that one
    changed belief moves all later draws; here every round of proposals takes whole columns from the generator, and two
    pipelines that believe the same of a prompt draw the same for it. Draw whatever else is needed from rng before."""
    alpha, beta = np.asarray(alpha, float), np.asarray(beta, float)
    if not ((alpha > 0) & (beta > 0)).all():
        bad = np.flatnonzero(~((alpha > 0) & (beta > 0)))[0]
        raise ValueError(f"Beta({alpha[bad]:g}, {beta[bad]:g}) at row {bad}: both parameters must be positive")
    m = len(alpha)
    boosts = rng.random((2, m))
    shapes = [np.where(s < 1, s + 1, s) for s in (alpha, beta)]
    log_draw = [np.full(m, np.nan), np.full(m, np.nan)]
    open_ = [np.arange(m), np.arange(m)]
    while len(open_[0]) or len(open_[1]):
        for side in (0, 1):
            normal, uniform = rng.standard_normal(m), rng.random(m)
            rows = open_[side]
            log_draw[side][rows] = _log_gamma_draw(shapes[side][rows], normal[rows], uniform[rows])
            open_[side] = rows[np.isnan(log_draw[side][rows])]
    for side, shape in enumerate((alpha, beta)):  # Gamma(a) = Gamma(a + 1) U^(1/a), for a < 1
        small = np.flatnonzero(shape < 1)
        log_draw[side][small] += np.log1p(-boosts[side][small]) / shape[small]
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(log_draw[1] - log_draw[0]))


def posterior_update(
    alpha: ArrayLike,
    beta: ArrayLike,
    successes: ArrayLike,
    n: ArrayLike,
    decay: float = 1.0,
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> Belief:
    """The belief after s successes of n: alpha' = decay alpha + (1 - decay) alpha0 + s, beta' likewise with n - s.

    Floats or (K,) arrays of prompts that were rolled out; the others keep their belief. s outside 0..n: ValueError.
    Source: MoPPS (authors' code), InSight (eq. 17)."""
    check_counts(successes, n)
    alpha, beta, s, n = (np.asarray(v, float) for v in (alpha, beta, successes, n))
    return Belief(decay * alpha + (1 - decay) * alpha0 + s, decay * beta + (1 - decay) * beta0 + (n - s))
