"""DORA: continuations of partial answers by quality and by how few others say the same, a study of search at test time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.apportion import apportion
from workbench.numerics.predictors import unit
from workbench.stages import Card, Method, State
from workbench.types import Cut, Fork, Frontier

CARD = Card(
    slug="dora",
    title="DORA: every rollout counts, optimal resource allocation for efficient test-time scaling",
    arxiv="2506.15707",
    code="https://github.com/WangXinglin/DORA",
    source="code",
    deviations=(
        "the arXiv id is from memory",
        "slots are rounded by largest remainder, so that the number of branches stays; mode='paper' rounds half to even, "
        "cuts what is too much and repeats from the front what is missing, mode='code' prunes by quality first",
        "where every rounded share is 0 the best candidate keeps the budget; the released code would divide by zero",
        "in a pipeline it allocates among the live branches of a group; without scores of a process reward model the mean "
        "log-probability of a branch stands in for them, without embeddings all branches count as different",
    ),
    watch="effective directions (the sum of uniqueness) per checkpoint, score and diversity of the survivors",
)


def similarity(embedding: ArrayLike) -> np.ndarray:
    """(k, k) cosines of embeddings (k, d); a vector of zeros has similarity 0 even with itself."""
    x = np.asarray(embedding, float)
    y = unit(np.where(np.linalg.norm(x, axis=-1, keepdims=True) > 1e-12, x, 0.0))
    return y @ y.T


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class Allocation(NamedTuple):
    """Columns (k,): quality_weight, uniqueness, weight, ideal = budget times weight, rounded int64."""

    quality_weight: np.ndarray
    uniqueness: np.ndarray
    weight: np.ndarray
    ideal: np.ndarray
    rounded: np.ndarray


def allocation(
    reward: ArrayLike, similarity: ArrayLike, budget: int, T_b: float = 0.1, T_s: float = 0.01
) -> Allocation:
    """Slots by w gamma: w = softmax(R / T_b), gamma = diagonal of the row-wise softmax(S / T_s), 1 / size of a tight cluster.

    reward (k,); similarity (k, k). Rounding is half to even and does not conserve the budget; where all round to 0 the
    best candidate gets it all."""
    r, s = np.asarray(reward, float), np.asarray(similarity, float)
    if not len(r):
        none = np.empty(0)
        return Allocation(none, none, none, none, np.empty(0, np.int64))
    quality = _softmax(r / T_b)
    unique = np.diagonal(_softmax(s.reshape(len(r), len(r)) / T_s)).copy()
    weight = quality * unique / (quality * unique).sum()
    rounded = _rounded(budget * weight, weight, budget)
    return Allocation(quality, unique, weight, budget * weight, rounded)


def _rounded(ideal: np.ndarray, weight: np.ndarray, budget: int) -> np.ndarray:
    n = np.rint(ideal).astype(np.int64)
    if not n.any():
        n[np.argmax(weight)] = budget
    return n


class TwoStage(NamedTuple):
    """stage1 (k,) int64 slots by quality alone; kept positions; allocation (k,) int64 among the kept."""

    stage1: np.ndarray
    kept: np.ndarray
    allocation: np.ndarray


def allocation_two_stage(
    reward: ArrayLike, similarity: ArrayLike, budget: int, T_b: float = 0.1, T_s: float = 0.01
) -> TwoStage:
    """What the released code means to do: drop what quality alone gives no slot, then allocate among the others."""
    r, s = np.asarray(reward, float), np.asarray(similarity, float)
    if not len(r):
        return TwoStage(*(np.empty(0, np.int64) for _ in range(3)))
    quality = _softmax(r / T_b)
    stage1 = _rounded(budget * quality, quality, budget)
    kept = np.flatnonzero(stage1)
    n = np.zeros(len(r), np.int64)
    n[kept] = allocation(r[kept], s[np.ix_(kept, kept)], budget, T_b, T_s).rounded
    return TwoStage(stage1, kept, n)


def expand(allocation: ArrayLike, budget: int) -> np.ndarray:
    """(budget,) int64 candidate of every slot: copies in order, repeated from the front or cut until the budget is met.

    Raises ValueError where nothing was allocated."""
    n = np.asarray(allocation, np.int64)
    copies = np.repeat(np.arange(len(n)), n)
    if budget > 0 and not len(copies):
        raise ValueError(f"{budget} slots cannot be filled: no candidate was given any")
    return np.resize(copies, budget).astype(np.int64)


def largest_remainder(ideal: ArrayLike, budget: int) -> np.ndarray:
    """(k,) int64 in proportion to ideal, exactly budget together; ties to the lowest index."""
    return apportion(np.asarray(ideal, float), budget)


class Vote(NamedTuple):
    """totals: answer -> summed score; answer with the largest, the first of equals; None without candidates."""

    totals: Mapping[str, float]
    answer: str | None


def vote(answer: Sequence[str], score: ArrayLike) -> Vote:
    """Weighted majority over final answers (n,) with scores (n,)."""
    totals: dict[str, float] = {}
    for a, s in zip(answer, np.asarray(score, float).tolist(), strict=True):
        totals[a] = totals.get(a, 0.0) + s
    return Vote(totals, max(totals, key=totals.__getitem__) if totals else None)


@dataclass(frozen=True)
class Dora(Method):
    """At every checkpoint the branches of a group are continued, copied or stopped by quality and uniqueness.

    A group keeps as many branches as it has. Needs a world that scores partial answers."""

    T_b: float = 0.1
    T_s: float = 0.01
    mode: Literal["exact", "paper", "code"] = "exact"

    card = CARD
    needs = frozenset({"prm", "embedding"})

    def branch(self, state: State, frontier: Frontier, rng: np.random.Generator) -> Fork:
        """How often each branch goes on; what is to stop is left to prune."""
        width = np.maximum(self._width(frontier), 1)
        here = np.full(len(frontier), -1, np.int64)
        return Fork(width, here, here.copy())

    def prune(self, state: State, frontier: Frontier, rng: np.random.Generator) -> Cut:
        """Branches without a slot stop."""
        width = np.minimum(self._width(frontier), 1)
        return Cut(width, np.where(width == 0, "no_slot", "").astype(object), np.ones(len(frontier)))

    def _width(self, frontier: Frontier) -> np.ndarray:
        """(B,) int64 slots of every branch; a group has as many as it has branches."""
        width = np.zeros(len(frontier), np.int64)
        score = np.asarray(frontier.extra.get("prm", np.nan_to_num(frontier.logp.mean())), float)
        embedding = frontier.extra.get("embedding")
        for group in np.unique(frontier.group):
            rows = np.flatnonzero(frontier.group == group)
            alike = np.eye(len(rows)) if embedding is None else similarity(embedding[rows])
            width[rows] = self._slots(score[rows], alike)
        return width

    def _slots(self, score: np.ndarray, alike: np.ndarray) -> np.ndarray:
        budget = len(score)
        if self.mode == "exact":
            return largest_remainder(allocation(score, alike, budget, self.T_b, self.T_s).weight, budget)
        if self.mode == "code":
            n = allocation_two_stage(score, alike, budget, self.T_b, self.T_s).allocation
        else:
            n = allocation(score, alike, budget, self.T_b, self.T_s).rounded
        return np.bincount(expand(n, budget), minlength=budget)
