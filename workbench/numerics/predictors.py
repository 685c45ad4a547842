"""Success predictors: what the current policy would make of a prompt, from what it did on others, before any rollout.

A predictor is fitted to a context, the latest recorded outcomes of the policy, and asked for rows of the pool. The
context is no memory of its own: folding recorded steps gives it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from workbench.numerics.beliefs import Belief
from workbench.numerics.beta import interval
from workbench.types import Pool

Features: TypeAlias = Literal["embedding", "family", "prompt"]
"""What makes two prompts alike: the pool's embeddings, their family, or only being the same prompt."""

_CHUNK = 4_000_000
_LEAST = 1e-6


class Context(NamedTuple):
    """Outcomes of C prompts, oldest first: rows (C,) int64 of the pool, solved, tried (C,) float64 (solved may be a sum
    of fractional rewards), step (C,) int64."""

    rows: np.ndarray
    solved: np.ndarray
    tried: np.ndarray
    step: np.ndarray

    @classmethod
    def empty(cls) -> Context:
        """Nothing is known."""
        return cls(np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0, np.int64))

    def add(self, rows: np.ndarray, solved: np.ndarray, tried: np.ndarray, step: int, keep: int) -> Context:
        """With the outcomes of a step; the latest `keep` entries stay."""
        new = (rows, solved, tried, np.full(len(rows), step, np.int64))
        return Context(*(np.concatenate([old, column])[-keep:] for old, column in zip(self, new, strict=True)))

    def age(self) -> np.ndarray:
        """(C,) int64 steps since the latest entry."""
        return self.step.max(initial=0) - self.step


@dataclass(frozen=True, eq=False)
class Kernel:
    """Outcomes of the context weighted by likeness to a prompt, on top of `prior_strength` rollouts at their mean.

    points (N, d) float or (N, 1) int labels as `points_of` gives them; recency fades an entry for every step of age."""

    points: np.ndarray
    bandwidth: float = 0.1
    prior_strength: float = 2.0
    recency: float = 1.0
    context: Context = field(default_factory=Context.empty)

    def fit_context(self, entries: Context) -> Kernel:
        """These outcomes are all that is known."""
        return replace(self, context=entries)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """(M,) means of the beliefs."""
        return self.evidence(rows).mean

    def evidence(self, rows: np.ndarray) -> Belief:
        """The beliefs of rows of the pool."""
        c = self.context
        targets, known = self.points[rows], self.points[c.rows]
        prior = context_prior(c.solved, c.tried, c.age(), self.recency)
        return kernel_belief(
            targets, known, c.solved, c.tried, c.age(), prior, self.bandwidth, self.prior_strength, self.recency
        )


def context_prior(solved: np.ndarray, tried: np.ndarray, age: np.ndarray, recency: float = 1.0) -> float:
    """Mean success rate of a context, entries faded by age; 0.5 where it is empty."""
    weight = recency**age
    total = float((weight * tried).sum())
    return float((weight * solved).sum()) / total if total > 0 else 0.5


def likeness(targets: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(T, C) cosine of embeddings (T, d), (C, d), 0 where one is all zeros; labels, (., 1) int, are alike (1) or not (-1)."""
    if targets.dtype.kind == "i":
        return np.where(targets == known[:, 0], 1.0, -1.0)
    return unit(targets) @ unit(known).T


def unit(points: np.ndarray) -> np.ndarray:
    """Rows scaled to length one, in their own precision; a row of zeros stays."""
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.where(length > 0, length, 1)


def kernel_belief(
    targets: np.ndarray,
    known: np.ndarray,
    solved: np.ndarray,
    tried: np.ndarray,
    age: np.ndarray,
    prior: float,
    bandwidth: float,
    prior_strength: float,
    recency: float,
) -> Belief:
    """Beta(c m + sum k s, c (1 - m) + sum k (n - s)) with k = recency^age exp((cos - 1) / bandwidth); chunked over targets."""
    alpha = np.full(len(targets), prior_strength * prior)
    beta = np.full(len(targets), prior_strength * (1 - prior))
    if not len(known):
        return Belief(alpha, beta)
    outcome = np.stack([solved, tried - solved], axis=1)
    fade = recency**age
    size = max(_CHUNK // len(known), 1)
    for first in range(0, len(targets), size):
        rows = slice(first, first + size)
        weight = np.exp((likeness(targets[rows], known) - 1) / bandwidth) * fade
        right, wrong = (weight @ outcome).T
        alpha[rows] += right
        beta[rows] += wrong
    return Belief(alpha, beta)


def points_of(pool: Pool, features: Features) -> np.ndarray:
    """What a kernel compares: (N, d) float32 embeddings of the pool, or (N, 1) int64 labels of family or prompt.

    Raises ValueError where the pool has no embeddings."""
    if features == "prompt":
        return np.arange(len(pool))[:, None]
    if features == "family":
        return np.unique(pool.stratum.astype(str), return_inverse=True)[1].reshape(-1, 1).astype(np.int64)
    if features != "embedding":
        raise ValueError(f"prompts are compared by embedding, family or prompt, not by {features!r}")
    if "embedding" not in pool.features:
        raise ValueError(
            "the pool has no feature 'embedding'; give it one, or compare prompts by features='family' or 'prompt'"
        )
    return np.asarray(pool.features["embedding"], np.float32)


def needs_of(features: Features) -> frozenset[str]:
    """What a method that compares prompts in this way asks of a world."""
    return frozenset({"embedding"}) if features == "embedding" else frozenset()


class Known(NamedTuple):
    """State of a method that predicts: points (N, d) of the pool and the context of the policy."""

    points: np.ndarray
    context: Context


def columns(belief: Belief, extra: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """mean with its central 90 % interval and evidence = alpha + beta, for `reveal`.

    A parameter of 0, all outcomes alike and no prior, is a belief in one point; the mean of a very skew belief may lie
    outside its central interval, which is widened to hold it."""
    low, high = interval(np.maximum(belief.alpha, _LEAST), np.maximum(belief.beta, _LEAST))
    mean = belief.mean
    shown = {"mean": mean, "low": np.minimum(low, mean), "high": np.maximum(high, mean)}
    return {**shown, "evidence": belief.alpha + belief.beta, **(extra or {})}
