"""V0.5: a predicted value and the group mean mixed by how far they disagree, and more rollouts only where they do."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.apportion import apportion
from workbench.numerics.beliefs import set_rows
from workbench.numerics.groups import describe
from workbench.numerics.picks import largest
from workbench.numerics.predictors import Context, Features, Kernel, Known, columns, needs_of, points_of
from workbench.stages import Card, Effect, Method
from workbench.types import Advantage, Draft, Plan, Pool, Rollouts, Step

CARD = Card(
    slug="v05",
    title="V0.5: generalist value model as a prior for sparse RL rollouts",
    arxiv="2603.10848",
    source="paper",
    deviations=(
        "the prior is V0-lite, a kernel over prompts of our own; the paper's is V0",
        "the rule for one more rollout is derived from the paper's risk MSE + c k; mode='derivative' is its continuous form",
        "rewards here lie in 0..1, where the paper's are -1 and 1, so c = 1/1024 in the place of 1/256 (c=None scales it); "
        "rewards outside the declared range widen it",
        "without any evidence the prior is the mean reward of the batch",
        "the prompts of a step look at their rewards together, one round a look; where the budget cannot give every "
        "prompt that wants it one more, the largest expected gains are served",
    ),
    watch="the prior against the mean of the group, coloured by its size; the mean size against 4 and 16",
    unspent="sampling stops where the rollouts do not contradict the prior",
)

Mode: TypeAlias = Literal["difference", "derivative"]


class Fusion(NamedTuple):
    """deviation_sq beyond what noise explains, weight of the mean, baseline, mse (estimated); floats or (G,)."""

    deviation_sq: np.ndarray
    weight: np.ndarray
    baseline: np.ndarray
    mse: np.ndarray


def fuse(mean: ArrayLike, V: ArrayLike, k: ArrayLike, unit_variance: ArrayLike) -> Fusion:
    """The mean of k rollouts and a predicted value V as one baseline.

    With s = unit_variance, the largest variance of one reward: D = max(0, (mean - V)^2 - s/k), w = D / (D + s/k),
    b = w mean + (1 - w) V, mse D s / (k D + s). A prior within the noise is kept as it is."""
    m, v, k, s = (np.asarray(x, float) for x in (mean, V, k, unit_variance))
    noise = s / k
    d = np.maximum((m - v) ** 2 - noise, 0.0)
    w = d / np.where(d > 0, d + noise, 1.0)
    mse = d * s / np.where(d > 0, k * d + s, 1.0)
    return Fusion(d, w, w * m + (1 - w) * v, mse)


def gain(deviation_sq: ArrayLike, k: ArrayLike, unit_variance: ArrayLike, mode: Mode = "difference") -> np.ndarray:
    """How much one rollout more lowers the MSE at fixed D: MSE(k) - MSE(k + 1), or -dMSE/dk (derivative)."""
    if mode not in get_args(Mode):
        raise ValueError(f"no mode {mode!r}; there are {', '.join(get_args(Mode))}")
    d, k, s = (np.asarray(x, float) for x in (deviation_sq, k, unit_variance))
    step = 1 if mode == "difference" else 0
    bottom = (k * d + s) * ((k + step) * d + s)
    return d**2 * s / np.where(bottom > 0, bottom, 1.0)


class Memory(NamedTuple):
    """known: points of the pool and the latest outcomes, as sums of rewards; low, high: rewards seen so far;
    k (N,) float64: rollouts of a prompt when it was last visited, 0 = never."""

    known: Known
    low: float
    high: float
    k: np.ndarray


class _Compared(NamedTuple):
    """State of the groups of a draft, (G,): scored rollouts, prior, and what follows; unit_variance."""

    prompt: np.ndarray
    k: np.ndarray
    prior: np.ndarray
    fusion: Fusion
    unit_variance: float


@dataclass(frozen=True)
class V05(Method):
    """k_init rollouts a prompt, one more while they contradict the prediction, and r - b as advantage.

    c None = (r_max - r_min)^2 / 1024, so that sampling stops at 16 as in the paper. A group with rewards all alike
    still has a gradient where the prediction differs: filters of settled groups undo that.
    """

    k_init: int = 4
    k_max: int = 16
    c: float | None = None
    r_min: float = 0.0
    r_max: float = 1.0
    mode: Mode = "difference"
    context: int = 256
    bandwidth: float = 0.1
    prior_strength: float = 2.0
    recency: float = 1.0
    features: Features = "embedding"

    card = CARD
    effects = frozenset({Effect.REPLACES_ADVANTAGES})

    def __post_init__(self) -> None:
        if self.k_init < 1:
            raise ValueError(f"k_init={self.k_init}: the test starts from at least one rollout")
        if self.k_init < 3:
            warnings.warn(f"training with k_init={self.k_init} did not converge in the paper; 4 did", stacklevel=3)

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """Embeddings, where prompts are compared by them."""
        return needs_of(self.features)

    def init(self, pool: Pool) -> Memory:
        """Nothing is predicted, rewards as declared."""
        return Memory(
            Known(points_of(pool, self.features), Context.empty()), self.r_min, self.r_max, np.zeros(len(pool))
        )

    def observe(self, state: Memory, step: Step) -> Memory:
        """The latest outcomes enter the context; null rewards and foreign rows do not."""
        rollouts = step.rollouts
        seen = rollouts.plain & (rollouts.ask >= 0) & np.isfinite(rollouts.reward)
        prompt, reward = rollouts.prompt[seen], rollouts.reward[seen]
        n = len(state.k)
        tried, total = np.bincount(prompt, minlength=n), np.bincount(prompt, reward, minlength=n)
        rows = np.flatnonzero(tried)
        known = state.known.context.add(rows, total[rows], tried[rows].astype(float), step.step, self.context)
        low, high = min(state.low, reward.min(initial=np.inf)), max(state.high, reward.max(initial=-np.inf))
        k = set_rows(state.k, rows, tried[rows].astype(float))
        return Memory(state.known._replace(context=known), float(low), float(high), k)

    def _predictor(self, state: Memory) -> Kernel:
        """Success rates as rewards brought to 0..1."""
        c = state.known.context
        scale = max(state.high - state.low, 1e-12)
        solved = np.clip((c.solved - state.low * c.tried) / scale, 0, c.tried)
        kernel = Kernel(state.known.points, self.bandwidth, self.prior_strength, self.recency)
        return kernel.fit_context(c._replace(solved=solved))

    def reveal(self, state: Memory) -> Mapping[str, np.ndarray]:
        """mean (predicted, 0..1) with its central 90 % interval, evidence, and k = rollouts at the last visit."""
        belief = self._predictor(state).evidence(np.arange(len(state.k)))
        return columns(belief, {"k": state.k})

    def _compared(self, state: Memory, rollouts: Rollouts, reward: np.ndarray) -> _Compared:
        """What the scored rewards (R,) of every group say against the prior."""
        n_groups = int(rollouts.group.max(initial=-1)) + 1
        stats = describe(reward, rollouts.group, n_groups)
        scored = reward[np.isfinite(reward)]
        low, high = min(state.low, scored.min(initial=np.inf)), max(state.high, scored.max(initial=-np.inf))
        prompt = np.zeros(n_groups, np.int64)
        prompt[rollouts.group] = rollouts.prompt
        if len(state.known.context.rows):
            prior = state.low + (state.high - state.low) * self._predictor(state).predict(prompt)
        else:
            whole = np.clip(scored.mean(), scored.min(), scored.max()) if len(scored) else 0.0
            prior = np.full(n_groups, whole)
        s = ((high - low) / 2) ** 2
        mean = np.clip(np.where(stats.n > 0, stats.mean, prior), low, high)
        mean = np.where(stats.settled & (stats.n > 0), stats.low, mean)
        return _Compared(prompt, stats.n, prior, fuse(mean, prior, np.maximum(stats.n, 1), s), s)

    def allocate(self, state: Memory, draft: Draft, rng: np.random.Generator) -> Plan:
        """k_init for fresh prompts; then one more for every plain group that still gains, while the budget lasts."""
        fresh = draft.fresh
        share = round(draft.budget.rollouts * len(draft.prompts) / draft.budget.prompts)
        left = share - draft.spent
        if len(fresh):
            n = apportion(np.ones(len(fresh)), min(max(left, 0), self.k_init * len(fresh)))
            return Plan(fresh, n)
        if draft.rollouts is None or left <= 0:
            return Plan(fresh, fresh)
        rollouts = draft.rollouts
        plain = (rollouts.context == "") & (rollouts.purpose == "train")
        seen = self._compared(state, rollouts, np.where(plain, rollouts.reward, np.nan))
        worth = gain(seen.fusion.deviation_sq, seen.k, seen.unit_variance, self.mode)
        c = seen.unit_variance / 256 if self.c is None else self.c
        asked = np.bincount(rollouts.group, minlength=len(seen.k))  # unscored rollouts count against k_max
        more = np.flatnonzero((worth > c) & (seen.k > 0) & (asked < self.k_max))
        more = np.sort(more[largest(worth[more], left)])
        why = {"prior": seen.prior[more], "gain": worth[more], "weight": seen.fusion.weight[more]}
        return Plan(seen.prompt[more], np.ones(len(more), np.int64), why=why)

    def estimate(self, state: Memory, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Reward minus the fused baseline, for every kept rollout; not divided by a spread."""
        rollouts = draft.rollouts
        reward = np.where(advantage.keep, rollouts.reward, np.nan)
        baseline = np.where(
            advantage.keep, self._compared(state, rollouts, reward).fusion.baseline[rollouts.group], np.nan
        )
        value = np.where(advantage.keep, rollouts.reward - baseline, 0.0)
        return replace(advantage, value=value, baseline=baseline, tokens=None)
