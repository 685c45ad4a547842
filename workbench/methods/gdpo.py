"""GDPO: every named part of the reward normalised on its own, then summed, then whitened over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.estimators import group_advantages
from workbench.numerics.groups import describe, whiten
from workbench.stages import Card, Effect, Method, State
from workbench.types import Advantage, Draft

CARD = Card(
    slug="gdpo",
    title="GDPO: group reward-decoupled normalization policy optimization",
    arxiv="2601.05242",
    code="https://github.com/NVlabs/GDPO",
    source="C*",
    deviations=(
        "a null part is left out of that part's statistics and adds 0 (missing='zero' counts it as reward 0, as the "
        "authors do)",
        "a batch whose sums are all alike gets zeros, by range; the authors divide float noise by eps",
        "the verl fork hard-codes two rewards without weights",
    ),
    watch="distinct advantages per group, the share of settled groups of each part, signs that whitening changes",
)

Whiten: TypeAlias = Literal["batch", "token", "none"]
Missing: TypeAlias = Literal["zero", "skip"]


class GdpoAdvantages(NamedTuple):
    """per_reward (N, K) normalised parts; pre_whiten (N,) their weighted sum; advantages (N,)."""

    per_reward: np.ndarray
    pre_whiten: np.ndarray
    advantages: np.ndarray


def _matrix(rewards: Sequence[ArrayLike] | np.ndarray, weights: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """rewards (N, K) and weights (K,) as floats; ValueError where they do not fit."""
    weight = np.asarray(weights, float)
    reward = np.asarray([np.asarray(r, float) for r in rewards], float).reshape(len(rewards), len(weight))
    return reward, weight


def gdpo_advantages(
    rewards: Sequence[ArrayLike] | np.ndarray,
    groups: ArrayLike,
    weights: ArrayLike,
    eps: float = 1e-4,
    whiten: Whiten = "batch",
    lengths: ArrayLike | None = None,
    missing: Missing = "skip",
) -> GdpoAdvantages:
    """Group-normalised parts, their weighted sum, and the sum whitened over the batch.

    rewards (N, K), None or NaN = null; groups (N,) any labels; weights (K,). z = (r - mean) / (std + eps) in every
    group and part, std with one degree of freedom less; a settled part and a group of one get 0. whiten: batch
    (a - mean) / (std + eps), token the same with each rollout counted lengths (N,) times and sqrt(var + 1e-8), none.
    With K = 1 this is GRPO, without whitening. missing: a null is left out and adds 0 (skip), or is reward 0 (zero)."""
    if whiten not in get_args(Whiten) or missing not in get_args(Missing):
        raise ValueError(f"no whiten={whiten!r} with missing={missing!r}: batch, token or none, and skip or zero")
    reward, weight = _matrix(rewards, weights)
    reward = np.where(np.isfinite(reward), reward, 0.0) if missing == "zero" else reward
    parts = [group_advantages(column, groups, "grpo", eps).advantages for column in reward.T]
    per_reward = np.stack(parts, axis=1) if parts else np.zeros(reward.shape)
    summed = per_reward @ weight
    counted = np.asarray(np.isfinite(reward).any(axis=1))
    value = summed if len(weight) == 1 else _whitened(summed, counted, eps, whiten, lengths)
    return GdpoAdvantages(per_reward, summed, value)


def _whitened(
    summed: np.ndarray, counted: np.ndarray, eps: float, how: Whiten, lengths: ArrayLike | None
) -> np.ndarray:
    """Sums (N,) centred and scaled over the counted rows, 0 elsewhere."""
    if how == "none":
        return summed
    if how == "token":
        tokens = np.ones(len(summed)) if lengths is None else np.asarray(lengths, float)
        return whiten(summed, np.where(counted, tokens, 0.0), 1e-8)
    stats = describe(np.where(counted, summed, np.nan), np.zeros(len(summed), np.int64), 1)
    if stats.settled[0]:
        return np.zeros(len(summed))
    return np.where(counted, (summed - stats.mean[0]) / (stats.std[0] + eps), 0.0)


@dataclass(frozen=True)
class Gdpo(Method):
    """Advantages from the named parts of the reward, each normalised on its own.

    weights: (name, weight) of the parts to use; empty = all recorded parts with weight 1, or the plain reward where none
    is recorded. Stands behind the estimator it replaces: Pipeline(Grpo(), Gdpo()).
    """

    weights: tuple[tuple[str, float], ...] = ()
    eps: float = 1e-4
    whiten: Whiten = "batch"
    missing: Missing = "skip"

    card = CARD
    effects = frozenset({Effect.REPLACES_ADVANTAGES})

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Replace the advantages of the kept rollouts; the baseline shown is the group's mean reward."""
        r = draft.rollouts
        chosen = {str(name): float(w) for name, w in self.weights} or dict.fromkeys(sorted(r.rewards), 1.0)
        unknown = sorted(set(chosen) - set(r.rewards))
        if unknown:
            raise ValueError(f"rewards {unknown} are not recorded; there are {sorted(r.rewards) or 'no named parts'}")
        parts = [r.rewards[name] for name in chosen] or [r.reward]
        made = np.zeros(len(r))
        rows = np.flatnonzero(advantage.keep)
        matrix = np.stack(parts, axis=1)[rows]
        weights = list(chosen.values()) or [1.0]
        made[rows] = gdpo_advantages(
            matrix, r.group[rows], weights, self.eps, self.whiten, r.length[rows], self.missing
        ).advantages
        reward = np.where(advantage.keep, r.reward, np.nan)
        mean = describe(reward, r.group, int(r.group.max(initial=-1)) + 1).mean
        baseline = np.where(advantage.keep, mean[r.group], np.nan)
        return replace(advantage, value=made, baseline=baseline, tokens=None)
