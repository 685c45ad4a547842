"""Rollouts by one price of a token, and what stops or weighs them (DUET): how much a prompt's gradient varies, by how long
its answers are."""

from __future__ import annotations

from math import ceil, exp
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.beliefs import set_rows


class Allocation(NamedTuple):
    """lambda_ the price of a token; n (P,) int64 rollouts; p_pre (P,) propensities; tokens expected."""

    lambda_: float
    n: np.ndarray
    p_pre: np.ndarray
    tokens: float


def allocation(
    s_hat: ArrayLike,
    L_hat: ArrayLike,
    budget: float,
    full_budget_tokens: float,
    bisection_iters: int = 10,
    n_min: int = 1,
    n_max: int = 32,
    eps_pre: float = 0.05,
) -> Allocation:
    """n = clip(round(s / sqrt(lambda max(L, 1))), n_min, n_max), lambda by bisection of its logarithm on [-20, 20] so that
    the expected tokens meet budget * full_budget_tokens.

    s_hat spread and L_hat mean length of each prompt (P,). Rounding is half to even, so the result may lie a little
    over; `budget_trim` takes the rest away. Where all at n_min is too much, that is what they get. p_pre is
    clip(n / max(1, mean n), eps_pre, 1). Raises ValueError without prompts."""
    s, length = np.asarray(s_hat, float), np.asarray(L_hat, float)
    if not len(s):
        raise ValueError("no prompts to allocate rollouts to")
    target, cost = budget * full_budget_tokens, np.maximum(length, 1.0)

    def rollouts(price: float) -> np.ndarray:
        return np.clip(np.rint(s / np.sqrt(max(price, 1e-30) * cost)), n_min, n_max)

    low, high = -20.0, 20.0
    for _ in range(bisection_iters):
        middle = (low + high) / 2
        if (rollouts(exp(middle)) * length).sum() > target:
            low = middle
        else:
            high = middle
    price = max(exp((low + high) / 2), 1e-30)
    n = rollouts(price)
    return Allocation(price, n.astype(np.int64), propensity(n, eps_pre), float((n * length).sum()))


def propensity(n: ArrayLike, eps_pre: float = 0.05) -> np.ndarray:
    """(P,) clip(n / max(1, mean n), eps_pre, 1)."""
    n = np.asarray(n, float)
    return np.clip(n / max(1.0, n.mean()), eps_pre, 1.0)


class Trim(NamedTuple):
    """n (P,) int64 after `trims` rollouts were taken away; tokens expected."""

    n: np.ndarray
    trims: int
    tokens: float


def budget_trim(n: ArrayLike, L_hat: ArrayLike, target_tokens: float, n_min: int = 1) -> Trim:
    """One rollout of the longest prompt above n_min at a time until the tokens fit; at most 4 P of them.

    The longest stays the longest, so prompts are cut one after the other; ties at the lowest index."""
    n, length = np.array(n, np.int64), np.asarray(L_hat, float)
    over, left, trims = float((n * length).sum()) - target_tokens, 4 * len(n), 0
    for i in np.argsort(-length, kind="stable"):
        if over <= 0 or left == 0:
            break
        least = ceil(over / length[i]) if length[i] > 0 else left
        cut = int(max(min(n[i] - n_min, least, left), 0))
        n[i] -= cut
        trims += cut
        left -= cut
        over -= cut * length[i]
    return Trim(n, trims, float((n * length).sum()))


class Divisible(NamedTuple):
    """n (P,) int64 whose sum the number of workers divides; mode none, trim or pad."""

    n: np.ndarray
    mode: str


def make_divisible(n: ArrayLike, divisor: int, n_min: int = 1) -> Divisible:
    """Take one rollout of each of the largest groups until the sum divides; add to the smallest where n_min forbids it."""
    n = np.array(n, np.int64)
    over = int(n.sum()) % divisor
    if not over:
        return Divisible(n, "none")
    if int(np.maximum(n - n_min, 0).sum()) < over:
        whole, rest = divmod(divisor - over, len(n))
        smallest = np.argsort(n, kind="stable")[:rest]
        n += whole
        n[smallest] += 1
        return Divisible(n, "pad")
    return Divisible(taken(n, over, n_min), "trim")


def taken(n: np.ndarray, units: int, n_min: int) -> np.ndarray:
    """n less `units` rollouts, one of each of the largest groups above n_min in turn."""
    n = n.copy()
    while units > 0 and (n > n_min).any():
        largest = np.argsort(-n, kind="stable")
        largest = largest[n[largest] > n_min][:units]
        n[largest] -= 1
        units -= len(largest)
    return n


def stop_threshold(s_hat: ArrayLike, L_hat: ArrayLike, floor: float = 0.5, ceiling: float = 0.99) -> np.ndarray:
    """(P,) margin of certainty at which a rollout may stop: from floor to ceiling by the rank of s^2 / max(L, 1), so that
    more informative prompts must be more certain; the middle for one prompt."""
    s, length = np.asarray(s_hat, float), np.asarray(L_hat, float)
    if len(s) == 1:
        return np.array([(floor + ceiling) / 2])
    rank = np.empty(len(s))
    rank[np.argsort(s**2 / np.maximum(length, 1.0), kind="stable")] = np.arange(len(s))
    return floor + (ceiling - floor) * rank / max(len(s) - 1, 1)


class Checkpoints(NamedTuple):
    """Tokens: from k1 on an answer marker is looked for, at k2 a rollout without one may be aborted."""

    k1: int
    k2: int


def checkpoints(lengths: ArrayLike, min_obs: int = 32, min_k1: int = 32, min_gap: int = 50) -> Checkpoints | None:
    """k1 = max(min_k1, 30th percentile), k2 = max(k1 + min_gap, 80th) of kept lengths; None below min_obs of them."""
    length = np.asarray(lengths, float)
    if len(length) < min_obs:
        return None
    k1 = max(min_k1, int(np.percentile(length, 30)))
    return Checkpoints(k1, max(k1 + min_gap, int(np.percentile(length, 80))))


def abort_decision(
    n_tokens: ArrayLike,
    marker_seen: ArrayLike,
    u: ArrayLike,
    k2: int,
    grace: int = 150,
    eps_abort: float = 0.05,
    min_tokens: int = 200,
) -> np.ndarray:
    """(B,) continue, armed (a marker was seen, certainty is watched), abort, or eps_kept (spared at chance eps_abort).

    u (B,) uniforms. Without a marker a rollout is judged at k2 + grace tokens."""
    n, seen, u = np.asarray(n_tokens), np.asarray(marker_seen, bool), np.asarray(u, float)
    late = (n >= min_tokens) & ~seen & (n >= k2 + grace)
    choice = [(n >= min_tokens) & seen, late & (u < eps_abort), late]
    return np.select(choice, ["armed", "eps_kept", "abort"], "continue")


class Weights(NamedTuple):
    """weight (R,) of the advantages; loss_mask (R,) int64, 0 = aborted."""

    weight: np.ndarray
    loss_mask: np.ndarray


def snips_weight(
    p_pre: ArrayLike,
    eps_kept: ArrayLike,
    aborted: ArrayLike,
    eps_pre: float = 0.05,
    eps_abort: float = 0.05,
    cap: float = 1000.0,
) -> Weights:
    """1 / max(p_pre, eps_pre), times 1 / eps_abort for spared rollouts; capped where any was spared."""
    spared = np.asarray(eps_kept, bool)
    weight = 1 / np.maximum(np.asarray(p_pre, float), eps_pre) * np.where(spared, 1 / eps_abort, 1.0)
    return Weights(np.minimum(weight, cap) if spared.any() else weight, (~np.asarray(aborted, bool)).astype(np.int64))


def spreads(g: np.ndarray, prompt: np.ndarray, n: int) -> np.ndarray:
    """(N,) population std of A_i log pi(y_i), g (R,), over the kept rollouts of each prompt; NaN without a row."""
    count = np.bincount(prompt, minlength=n)
    mean = np.bincount(prompt, g, n) / np.maximum(count, 1)
    square = np.bincount(prompt, (g - mean[prompt]) ** 2, n) / np.maximum(count, 1)
    return np.where(count > 0, np.sqrt(square), np.nan)


class Moments(NamedTuple):
    """n values, their mean, M2 = sum of squared deviations; numbers or (N,) columns."""

    n: np.ndarray
    mean: np.ndarray
    M2: np.ndarray

    def add(self, rows: np.ndarray, value: np.ndarray) -> Moments:
        """One value more for each of the rows (Welford)."""
        n = self.n[rows] + 1
        delta = value - self.mean[rows]
        mean = self.mean[rows] + delta / n
        new = (n, mean, self.M2[rows] + delta * (value - mean))
        return Moments(*(set_rows(old, rows, column) for old, column in zip(self, new, strict=True)))
