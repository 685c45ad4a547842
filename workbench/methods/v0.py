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
