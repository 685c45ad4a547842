"""V0: a predicted success rate for prompts never rolled out, and rollouts where most informative failures are expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics import greedy
from workbench.numerics.apportion import apportion
from workbench.numerics.predictors import (
    Context,
    Features,
    Kernel,
    Known,
    columns,
    context_prior,
    kernel_belief,
    needs_of,
    points_of,
)
from workbench.stages import Card, Method
from workbench.types import Draft, Plan, Pool, Step

CARD = Card(
    slug="v0",
    title="V0: a generalist value model for any policy at state zero",
    arxiv="2602.03584",
    code="https://github.com/Now-Join-Us/V0",
    source="paper",
    deviations=(
        "the predictor is V0-lite, a kernel over embeddings of our own, comparable to the paper's nearest-neighbour "
        "baseline; it is not the paper's trained model (adapter and TabPFN head)",
        "rollouts without a gain left are spread evenly, so that the step's budget is spent; spend_all=False leaves them",
        "where the budget gives less than b_min each, every prompt gets its even share",
    ),
    watch="predicted against observed rates of the batch, within a policy; the Gini index of the rollouts",
    unspent="prompts at rate 0 or 1 have no gain and, with spend_all=False, get b_min alone",
)


def utility(B: ArrayLike, p: ArrayLike) -> np.ndarray:
    """B (1 - p) (1 - (1 - p)^(B - 1)): the failures expected in groups of B that contain a success; 0 for B <= 1."""
    n, p = np.asarray(B, float), np.asarray(p, float)
    return n * (1 - p) * (1 - (1 - p) ** np.maximum(n - 1, 0))


class Allocation(NamedTuple):
    """budget (M,) int64 rollouts of each prompt; unspent rollouts; utility (M,) of what each got."""

    budget: np.ndarray
    unspent: int
    utility: np.ndarray


def greedy_allocation(p: ArrayLike, total: int, b_min: int = 2, b_max: int = 128) -> Allocation:
    """b_min each, then one rollout at a time to the largest gain in utility, up to b_max; ties to the lowest index.

    p (M,) predicted success rates. The utility is not concave for small p (its gain first rises), so hard prompts
    wait until others are full, and then one is flooded; `exact_allocation` is the true optimum. What has no gain left
    stays unspent. Raises ValueError where total cannot give b_min each."""
    p = np.asarray(p, float)
    left = _left(p, total, b_min, b_max)
    n = b_min + np.arange(min(b_max - b_min, left) + 1)
    gain = np.diff(utility(n[None, :], p[:, None]), axis=1)
    budget = b_min + greedy.spend(gain, left)
    return Allocation(budget, total - int(budget.sum()), utility(budget, p))


def exact_allocation(p: ArrayLike, total: int, b_min: int = 2, b_max: int = 128) -> Allocation:
    """The split of largest summed utility, by dynamic programming: for batches, not for pools."""
    p = np.asarray(p, float)
    left = _left(p, total, b_min, b_max)
    n = b_min + np.arange(min(b_max - b_min, left) + 1)
    budget = b_min + greedy.best_split(utility(n[None, :], p[:, None]), left).n
    return Allocation(budget, total - int(budget.sum()), utility(budget, p))


def _left(p: np.ndarray, total: int, b_min: int, b_max: int) -> int:
    if not np.isfinite(p).all() or (p < 0).any() or (p > 1).any():
        raise ValueError(f"success rates must lie in 0..1, got {p[~((p >= 0) & (p <= 1))][:3]}")
    if total < b_min * len(p) or b_max < b_min:
        raise ValueError(f"{total} rollouts cannot give {len(p)} prompts {b_min} to {b_max} each")
    return total - b_min * len(p)


class LitePrediction(NamedTuple):
    """p, alpha, beta (T,) of each target; context_prior = mean rate of the context."""

    p: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    context_prior: float


def v0_lite_predict(
    targets: ArrayLike,
    context_embeddings: ArrayLike,
    context_successes: ArrayLike,
    context_trials: ArrayLike,
    context_age: ArrayLike,
    bandwidth: float = 0.1,
    prior_strength: float = 2.0,
    recency: float = 1.0,
) -> LitePrediction:
    """Success rates from the outcomes of similar prompts: closed form, no training, not the paper's model.

    targets (T, d), context_embeddings (C, d); successes (sums, may be fractional), trials and age in steps (C,).
    With k = recency^age exp((cos - 1) / bandwidth) and m the context's mean rate: alpha = c m + sum k s,
    beta = c (1 - m) + sum k (n - s). An empty context gives 0.5; an embedding of zeros has cosine 0 with all."""
    x = np.atleast_2d(np.asarray(targets, float))
    known = np.asarray(context_embeddings, float).reshape(-1, x.shape[1])
    s, n, age = (np.asarray(v, float) for v in (context_successes, context_trials, context_age))
    prior = context_prior(s, n, age, recency)
    belief = kernel_belief(x, known, s, n, age, prior, bandwidth, prior_strength, recency)
    return LitePrediction(belief.mean, belief.alpha, belief.beta, prior)


class Losses(NamedTuple):
    """rank, cross-entropy, and alpha rank + (1 - alpha) cross-entropy."""

    rank: float
    ce: float
    total: float


def losses(
    pos_logit: ArrayLike, neg_logit: ArrayLike, logit_diff: ArrayLike, y: ArrayLike, alpha: float = 0.25
) -> Losses:
    """What the authors train their predictor with: pairs (K,) from one context, which cancel a bias of the context,
    and cross-entropy of logits (B,) with soft labels y (B,)."""
    pos, neg, z, y = (np.asarray(v, float) for v in (pos_logit, neg_logit, logit_diff, y))
    rank = float(np.logaddexp(0, -(pos - neg)).mean()) if pos.size else 0.0
    ce = float((np.logaddexp(0, z) - y * z).mean()) if z.size else 0.0
    return Losses(rank, ce, alpha * rank + (1 - alpha) * ce)


@dataclass(frozen=True)
class V0(Method):
    """Rollouts by expected informative failures, at rates predicted from the latest `context` prompts.

    features: what makes prompts alike, their embedding, their family, or only being the same prompt.
    exact: the best split by dynamic programming in the place of the greedy one.
    """

    b_min: int = 2
    b_max: int = 128
    context: int = 256
    bandwidth: float = 0.1
    prior_strength: float = 2.0
    recency: float = 1.0
    spend_all: bool = True
    exact: bool = False
    features: Features = "embedding"

    card = CARD

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """Embeddings, where prompts are compared by them."""
        return needs_of(self.features)

    def init(self, pool: Pool) -> Known:
        """An empty context."""
        return Known(points_of(pool, self.features), Context.empty())

    def observe(self, state: Known, step: Step) -> Known:
        """The context moves on to the latest outcomes."""
        rows, solved, tried = step.evidence(len(state.points))
        return state._replace(context=state.context.add(rows, solved, tried, step.step, self.context))

    def _predictor(self, state: Known) -> Kernel:
        return Kernel(state.points, self.bandwidth, self.prior_strength, self.recency, state.context)

    def reveal(self, state: Known) -> Mapping[str, np.ndarray]:
        """mean with its central 90 % interval, evidence, and the utility of a group of eight."""
        belief = self._predictor(state).evidence(np.arange(len(state.points)))
        return columns(belief, {"utility": utility(8, belief.mean)})

    def allocate(self, state: Known, draft: Draft, rng: np.random.Generator) -> Plan:
        """The share of the fresh prompts by their predicted rates; `seen` marks prompts that are in the context."""
        fresh = draft.fresh
        if not len(fresh):
            return Plan(fresh, fresh)
        total = round(draft.budget.rollouts * len(fresh) / draft.budget.prompts)
        p = self._predictor(state).predict(fresh)
        split = exact_allocation if self.exact else greedy_allocation
        made = split(p, total, min(self.b_min, total // len(fresh)), max(self.b_max, self.b_min))
        n = made.budget + (apportion(np.ones(len(fresh)), made.unspent) if self.spend_all else 0)
        seen = np.isin(fresh, state.context.rows).astype(float)
        return Plan(fresh, n, why={"p": p, "utility": utility(n, p), "seen": seen})
