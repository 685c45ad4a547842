"""Sign flips, advantages that push a rollout the wrong way: labels, rates, and their chance before anything is sampled.

The reference of a prompt is b* = E[reward] under the policy version that made the group; the true sign of a rollout is
that of r - b*, the observed sign that of its advantage. hard = opposite, vanish = the observed one is 0, spurious = the
true one is 0. With two reward levels and a baseline between them nothing can flip hard, signs only vanish.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb, lgamma
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics import beta as beta_law

Baseline: TypeAlias = Literal["mean", "median"]

TAU = 1e-8
_MAX_COMPOSITIONS = 200_000
_SUBSAMPLES = 20_000


class SignFlips(NamedTuple):
    """labels (n,) str; hard and vanish rates are shares of ok + hard + vanish, the spurious rate of spurious +
    both_zero; hard_reward_mass weighs by |r - b*|, hard_gradient_mass by |A|, on hard against ok + hard + spurious."""

    labels: np.ndarray
    hard_rate: float
    vanish_rate: float
    spurious_rate: float
    hard_reward_mass: float
    hard_gradient_mass: float


class FlipProbability(NamedTuple):
    """Chance of each label: mean = the reference; per_value label -> (K,) given the own reward; overall label -> chance."""

    mean: float
    per_value: dict[str, np.ndarray]
    overall: dict[str, float]


class PoolFlips(NamedTuple):
    """Rates over all groups that a pool of rollouts could have given; exact is False where they were subsampled."""

    reference: float
    hard_rate: float
    vanish_rate: float
    spurious_rate: float
    reference_se: float
    exact: bool


class PosteriorFlip(NamedTuple):
    """flip_probability (n,) under the belief held before the group; hard_at_mean (n,) bool against its mean."""

    reference_baseline: float
    flip_probability: np.ndarray
    hard_at_mean: np.ndarray
    expected_flips: float


class BinaryVanish(NamedTuple):
    """Chance that the advantage of a rollout vanishes, under either baseline."""

    mean: np.ndarray
    median: np.ndarray


def _sign(x: np.ndarray, tau: float = TAU) -> np.ndarray:
    return np.where(np.abs(x) <= tau, 0.0, np.sign(x))


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else 0.0


def sign_flips(
    rewards: ArrayLike,
    advantages: ArrayLike,
    reference_baseline: ArrayLike,
    tau: float = TAU,
    reference_se: ArrayLike = 0.0,
    z: float = 0.0,
) -> SignFlips:
    """Label every rollout by its observed against its true sign, and sum up.

    rewards, advantages (n,); the reference and its standard error are numbers or (n,). Signs are 0 within tau.
    Within z standard errors of the reference, and for null rewards, the label is ambiguous and outside every rate."""
    r, a = np.asarray(rewards, float), np.asarray(advantages, float)
    away = r - np.asarray(reference_baseline, float)
    margin = z * np.asarray(reference_se, float)
    unclear = ~np.isfinite(away) | ((margin > 0) & (np.abs(away) <= margin))
    away = np.where(unclear, 0.0, away)
    true, seen = _sign(away, tau), _sign(a, tau)
    labels = np.select(
        [unclear, (true != 0) & (seen == true), (true != 0) & (seen == -true), true != 0, seen != 0],
        ["ambiguous", "ok", "hard", "vanish", "spurious"],
        "both_zero",
    )
    count = {name: int((labels == name).sum()) for name in ("ok", "hard", "vanish", "spurious", "both_zero")}
    signed = np.isin(labels, ("ok", "hard", "vanish"))
    hard = labels == "hard"
    return SignFlips(
        labels,
        _share(count["hard"], signed.sum()),
        _share(count["vanish"], signed.sum()),
        _share(count["spurious"], count["spurious"] + count["both_zero"]),
        _share(np.abs(away[hard]).sum(), np.abs(away[signed]).sum()),
        _share(np.abs(a[hard]).sum(), np.abs(a[np.isin(labels, ("ok", "hard", "spurious"))]).sum()),
    )


def _check_estimator(estimator: str) -> None:
    if estimator not in get_args(Baseline):
        raise ValueError(f"estimator must be mean or median, got {estimator!r}")


def _compositions(total: int, cap: np.ndarray) -> Iterator[list[int]]:
    """All ways to write total as len(cap) counts, each at most its cap."""
    if len(cap) == 1:
        if total <= cap[0]:
            yield [total]
        return
    for head in range(min(total, int(cap[0])) + 1):
        for tail in _compositions(total - head, cap[1:]):
            yield [head, *tail]


def _observed(counts: np.ndarray, support: np.ndarray, estimator: str) -> np.ndarray:
    """(C, K) sign of value k minus the baseline of a group with counts (C, K) of the support, ascending."""
    size = counts.sum(axis=1, keepdims=True)
    if estimator == "mean":
        baseline = counts @ support / size[:, 0]
    else:
        baseline = support[np.argmax(np.cumsum(counts, axis=1) > (size - 1) // 2, axis=1)]
    return _sign(support[None] - baseline[:, None])


def flip_prob_exact(
    support: ArrayLike, probs: ArrayLike, group_size: int, estimator: Baseline = "mean"
) -> FlipProbability:
    """Chance of each label in a group of group_size independent rewards of a known law.

    support, probs (K,). Every composition of the other rollouts is weighed; the median is the lower one, of all
    group_size rollouts. Raises ValueError where probs are no distribution."""
    _check_estimator(estimator)
    value, p = np.asarray(support, float), np.asarray(probs, float)
    if len(value) != len(p) or (p < 0).any() or abs(p.sum() - 1) > 1e-6 or group_size < 1:
        raise ValueError(f"{len(value)} values with probabilities that sum to {p.sum():g} in groups of {group_size}")
    order = np.argsort(value, kind="stable")
    value, p = value[order], p[order]
    others = np.array(list(_compositions(group_size - 1, np.full(len(value), group_size - 1))))
    ways = lgamma(group_size) - np.array([[lgamma(c + 1) for c in row] for row in others]).sum(axis=1)
    chance = np.exp(ways) * np.prod(p**others, axis=1)
    mean = float(value @ p)
    true = _sign(value - mean)
    per_value = {name: np.zeros(len(value)) for name in ("hard", "vanish", "spurious")}
    for k in range(len(value)):
        own = np.eye(1, len(value), k, dtype=np.int64)
        seen = _observed(others + own, value, estimator)[:, k]
        per_value["hard"][k] = chance[(seen == -true[k]) & (true[k] != 0)].sum()
        per_value["vanish"][k] = chance[(seen == 0) & (true[k] != 0)].sum()
        per_value["spurious"][k] = chance[(seen != 0) & (true[k] == 0)].sum()
    overall = {name: float(column @ p) for name, column in per_value.items()}
    back = np.argsort(order, kind="stable")
    return FlipProbability(mean, {name: column[back] for name, column in per_value.items()}, overall)


def flip_prob_from_pool(pool: ArrayLike, group_size: int, estimator: Baseline = "mean") -> PoolFlips:
    """The flip rates of groups of group_size drawn without replacement from a pool of rollouts of one version.

    pool (N_ref,) rewards, nulls left out; 64 or more make a reference. Exact over all subsets where the reward levels
    are few enough; else 20,000 subsets by a fixed generator, and exact is False. The reference is the pool's mean,
    its standard error std / sqrt(N_ref)."""
    _check_estimator(estimator)
    reward = np.asarray(pool, float)
    reward = reward[np.isfinite(reward)]
    if not 1 <= group_size <= len(reward):
        raise ValueError(f"a pool of {len(reward)} scored rollouts has no groups of {group_size}")
    level, have = np.unique(reward, return_counts=True)
    reference = float(reward.mean())
    exact = comb(group_size + len(level) - 1, group_size) <= _MAX_COMPOSITIONS
    if exact:
        counts = np.array(list(_compositions(group_size, have)))
        ways = [np.prod([float(comb(int(n), int(c))) for n, c in zip(have, row, strict=True)]) for row in counts]
        chance = np.array(ways) / comb(len(reward), group_size)
    else:
        keys = np.random.default_rng(0).random((_SUBSAMPLES, len(reward)))
        picked = np.argpartition(keys, group_size - 1, axis=1)[:, :group_size]
        rank = np.searchsorted(level, reward)[picked]
        counts = np.zeros((_SUBSAMPLES, len(level)), np.int64)
        np.add.at(counts, (np.arange(_SUBSAMPLES)[:, None], rank), 1)
        chance = np.full(_SUBSAMPLES, 1 / _SUBSAMPLES)
    seen, true = _observed(counts, level, estimator), _sign(level - reference)
    mass = counts * chance[:, None]
    signed, zero = mass[:, true != 0].sum(), mass[:, true == 0].sum()
    std = reward.std(ddof=1) if len(reward) > 1 else 0.0
    return PoolFlips(
        reference,
        _share(mass[(seen == -true) & (true != 0)].sum(), signed),
        _share(mass[(seen == 0) & (true != 0)].sum(), signed),
        _share(mass[(seen != 0) & (true == 0)].sum(), zero),
        float(std / np.sqrt(len(reward))),
        exact,
    )


def posterior_flip(
    rewards: ArrayLike, advantages: ArrayLike, alpha: float, beta: float, lo: float = 0.0, hi: float = 1.0
) -> PosteriorFlip:
    """Chance that each advantage points the wrong way, from a belief alone: b* ~ Beta(alpha, beta) mapped to [lo, hi].

    rewards, advantages (n,). The belief must be the one held before the group: after it, a rollout would be its own
    evidence. P(b* > r) where A > 0, P(b* < r) where A < 0, 0 where A = 0 or the reward is null."""
    if not lo < hi:
        raise ValueError(f"rewards must span a range, got lo={lo} and hi={hi}")
    r, a = np.asarray(rewards, float), np.asarray(advantages, float)
    scored = np.isfinite(r)
    below = beta_law.cdf((np.where(scored, r, lo) - lo) / (hi - lo), alpha, beta)
    wrong = np.where(a > 0, 1 - below, np.where(a < 0, below, 0.0))
    wrong = np.where(scored, wrong, 0.0)
    reference = lo + (hi - lo) * alpha / (alpha + beta)
    away = _sign(np.where(scored, r - reference, 0.0))
    return PosteriorFlip(float(reference), wrong, (away != 0) & (_sign(a) == -away), float(wrong.sum()))


def binary_vanish(p: ArrayLike, group_size: int) -> BinaryVanish:
    """Chance that an advantage vanishes with rewards 0 and 1 at success rate p: p^G + (1 - p)^G for the mean; for the
    lower median, that the own reward is the one of the majority."""
    p = np.asarray(p, float)
    half = (group_size - 1) // 2
    zeros = np.arange(group_size)  # among the others
    ways = np.array([float(comb(group_size - 1, int(k))) for k in zeros])
    chance = ways * (1 - p[..., None]) ** zeros * p[..., None] ** (group_size - 1 - zeros)
    own_zero = chance[..., zeros >= half].sum(axis=-1)  # at least half + 1 zeros: the median is 0
    own_one = chance[..., zeros <= half].sum(axis=-1)
    return BinaryVanish(p**group_size + (1 - p) ** group_size, (1 - p) * own_zero + p * own_one)
