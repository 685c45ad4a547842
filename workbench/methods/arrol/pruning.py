"""Chance of a rollout to be kept, by how likely it succeeds: a histogram of a head's scores, and who survives (ARRoL)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.methods.arrol.heads import sigmoid

TOLERANCE = 1e-12


def bin_index(raw: ArrayLike, n_bins: int = 128) -> np.ndarray:
    """(n,) int64 bin of sigmoid(raw score); the top edge falls in the last bin."""
    return np.minimum(np.floor(n_bins * sigmoid(np.asarray(raw, float))), n_bins - 1).astype(np.int64)


class Posterior(NamedTuple):
    """prior = share of successes, a half without any; q = success rate given the bin."""

    prior: float
    q: np.ndarray


def posterior(pos: ArrayLike, neg: ArrayLike, alpha: float = 1.0, query_bins: ArrayLike | None = None) -> Posterior:
    """Success given the bin, from counts (B,) of finished successes and failures with Laplace smoothing alpha.

    query_bins: bins to answer for; None is all of them."""
    pos, neg = np.asarray(pos, float), np.asarray(neg, float)
    total = pos.sum() + neg.sum()
    prior = float(pos.sum() / total) if total else 0.5
    good = (pos + alpha) / (pos.sum() + alpha * len(pos))
    bad = (neg + alpha) / (neg.sum() + alpha * len(neg))
    q = prior * good / (prior * good + (1 - prior) * bad)
    return Posterior(prior, q if query_bins is None else q[np.asarray(query_bins, np.int64)])


class Survival(NamedTuple):
    """keep_prob (n,) of each rollout; buffer_mean = mean keep probability over the buffer, kappa where reachable."""

    keep_prob: np.ndarray
    buffer_mean: float


def survival(
    q_buffer: ArrayLike,
    q: ArrayLike,
    kappa: float = 0.5,
    rho: float = 0.5,
    lambda_: float = 0.5,
    p_min: float = 0.1,
    p_max: float = 0.9,
) -> Survival:
    """clip(kappa + delta + lambda (rho - q), p_min, p_max), delta such that the mean over the buffer is kappa.

    Raises ValueError where kappa lies outside p_min..p_max: no delta reaches it. An empty buffer gives delta 0."""
    if not p_min <= kappa <= p_max:
        raise ValueError(f"kappa={kappa} lies outside p_min={p_min}..p_max={p_max}: the mean cannot reach it")
    buffer, asked = np.asarray(q_buffer, float), np.asarray(q, float)

    def keep(values: np.ndarray, delta: float) -> np.ndarray:
        return np.clip(kappa + delta + lambda_ * (rho - values), p_min, p_max)

    if not len(buffer):
        return Survival(keep(asked, 0.0), float("nan"))
    reach = 1 + abs(lambda_) * (1 + abs(rho))
    low, high = -reach, reach
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if keep(buffer, middle).mean() < kappa else (low, middle)
    delta = (low + high) / 2
    return Survival(keep(asked, delta), float(keep(buffer, delta).mean()))
