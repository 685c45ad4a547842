"""Advantage normalisation of the GRPO family: what a reward is compared with, and by what it is scaled.

Sources: GRPO 2402.03300, Dr. GRPO 2503.20783, RLOO 2402.14740, REINFORCE++ 2501.03262; TRL and verl where the
papers leave the numbers open.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.groups import describe, whiten

Estimator: TypeAlias = Literal["grpo", "dr_grpo", "rloo", "batch_std", "rpp_baseline"]
Singleton: TypeAlias = Literal["zero", "raw"]


class GroupAdvantages(NamedTuple):
    """advantages (N,); zero_std: group -> all its rewards are alike; baseline (N,) what each reward was compared with."""

    advantages: np.ndarray
    zero_std: Mapping[Hashable, bool]
    baseline: np.ndarray


def group_advantages(
    rewards: ArrayLike,
    groups: ArrayLike,
    estimator: Estimator = "grpo",
    eps: float | None = None,
    lengths: ArrayLike | None = None,
    g1: Singleton = "zero",
) -> GroupAdvantages:
    """How much better than its group each rollout was.

    rewards (N,), None or NaN = null: out of every statistic, advantage 0. groups (N,) any labels. With m and s the
    mean and std (one degree of freedom less) of the scored rewards of a group:
    grpo (r - m) / (s + eps); dr_grpo r - m; rloo r minus the mean of the others; batch_std (r - m) / (std of all
    rewards + eps); rpp_baseline: r - m whitened over all tokens, lengths (N,) tokens each (1 where not given), so the
    sign of r - m may change. A settled group gets zeros before whitening.
    g1: what a group with one scored rollout gets, zero (TRL) or its raw reward (verl).
    eps defaults to 1e-8 for rpp_baseline and 1e-4 (TRL) elsewhere; verl has 1e-6."""
    if estimator not in get_args(Estimator):
        raise ValueError(f"no estimator {estimator!r}; there are {', '.join(get_args(Estimator))}")
    if g1 not in get_args(Singleton):
        raise ValueError(f"g1 must be zero or raw, got {g1!r}")
    eps = (1e-8 if estimator == "rpp_baseline" else 1e-4) if eps is None else eps
    reward = np.asarray(rewards, float)
    names, group = np.unique(np.asarray(groups), return_inverse=True)
    stats = describe(reward, group, len(names))
    n, mean, settled = stats.n[group], stats.mean[group], stats.settled[group]
    scored = np.isfinite(reward)
    baseline = np.where(scored, mean, np.nan)
    if estimator == "rloo":
        others = n > 1
        baseline = np.where(others & scored, (n * mean - reward) / np.maximum(n - 1, 1), baseline)

    centred = np.where(scored & ~settled, reward - baseline, 0.0)
    alone = scored & (n == 1) & (g1 == "raw")
    centred = np.where(alone, reward, centred)
    baseline = np.where(alone, 0.0, baseline)
    if estimator == "grpo":
        scale = np.where(settled, 1.0, stats.std[group] + eps)
        centred = centred / scale
    elif estimator == "batch_std":
        std = np.std(reward[scored], ddof=1) if scored.sum() > 1 else 0.0
        centred = np.where(alone, centred, centred / (std + eps))
    elif estimator == "rpp_baseline":
        tokens = np.ones(len(reward)) if lengths is None else np.asarray(lengths, float)
        centred = whiten(centred, np.where(scored, tokens, 0.0), eps)
    return GroupAdvantages(centred, dict(zip(names.tolist(), stats.settled.tolist(), strict=True)), baseline)
