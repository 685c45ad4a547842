"""BroRL: few prompts with very many rollouts each, so that right answers nobody sampled lose almost nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from workbench.methods.grpo import Grpo
from workbench.numerics.apportion import apportion
from workbench.numerics.groups import describe
from workbench.stages import Card, Effect, Method
from workbench.types import Advantage, Batch, Draft, Loss, Plan, Pool, Step

CARD = Card(
    slug="brorl",
    title="BroRL: scaling reinforcement learning via broadened exploration",
    arxiv="2510.01180",
    source="paper",
    deviations=(
        "breadth is the budget's: its rollouts in equal parts over its prompts (the paper has 128 prompts x 512); n puts "
        "them on as many prompts as get n each",
        "the world's learning rate is taken to fit its batch; batch0 turns the square-root rule on",
        "clip range 0.2 and 0.4 as in ProRL, from which BroRL starts; its own values are not printed",
        "the reference policy is not reset now and then, since there is no KL term",
    ),
    watch="the share of mixed groups (their sampling pass rate) and tokens per second against the group size",
)


def learning_rate(lr0: float, batch0: float, batch_new: float) -> float:
    """lr0 sqrt(batch_new / batch0), batches in rollouts per step, with the number of mini-batches held fixed."""
    if not (batch0 > 0 and batch_new > 0):
        raise ValueError(f"batches must be positive, got {batch0} and {batch_new} rollouts")
    return lr0 * sqrt(batch_new / batch0)


def batch_normalised(reward: np.ndarray, group: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """(advantage, kept), both (R,): r minus its group's mean, then centred and scaled over the whole kept batch.

    reward (R,) NaN = null. Settled groups are out before the batch's statistics; std over R rows, not R - 1."""
    stats = describe(reward, group, int(group.max(initial=-1)) + 1)
    kept = np.isfinite(reward) & ~stats.settled[group]
    centred = np.where(kept, reward - stats.mean[group], 0.0)
    if not kept.any():
        return centred, kept
    mean, std = centred[kept].mean(), centred[kept].std()
    return np.where(kept, (centred - mean) / (std + eps), 0.0), kept


@dataclass(frozen=True)
class Brorl(Method):
    """Equal, very large groups; advantages centred by group and scaled by batch; learning rate by batch size.

    n: rollouts of a prompt; None = the budget in equal parts over its prompts. batch0: rollouts per step to which the
    world's learning rate belongs; None leaves the rate alone.
    """

    n: int | None = None
    batch0: int | None = None
    eps: float = 1e-6
    eps_low: float = 0.2
    eps_high: float = 0.4

    card = CARD
    effects = frozenset({Effect.REPLACES_ADVANTAGES})

    def init(self, pool: Pool) -> int:
        """Rollouts of the last step: none."""
        return 0

    def observe(self, state: int, step: Step) -> int:
        """How many rollouts the step asked for training: the batch size of the learning-rate rule."""
        return int(step.plan.n[step.plan.purpose == "train"].sum())

    def allocate(self, state: int, draft: Draft, rng: np.random.Generator) -> Plan:
        """The budget in equal parts over the fresh prompts, or over the first of them that get n each."""
        fresh = draft.fresh
        share = round(draft.budget.rollouts * len(fresh) / draft.budget.prompts)
        wide = len(fresh) if self.n is None else min(max(share // self.n, 1), len(fresh))
        n = np.zeros(len(fresh), np.int64)
        n[:wide] = apportion(np.ones(wide), share) if wide else 0
        return Plan(fresh, n)

    def estimate(self, state: int, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Drop settled groups, and scale what is left over the whole batch."""
        r = draft.rollouts
        reward = np.where(advantage.keep, r.reward, np.nan)
        value, kept = batch_normalised(reward, r.group, self.eps)
        mean = describe(reward, r.group, int(r.group.max(initial=-1)) + 1).mean
        baseline = np.where(advantage.keep, mean[r.group], np.nan)
        return replace(advantage.drop(~kept, "zero_variance"), value=value, baseline=baseline, tokens=None)

    def loss(self, state: int, batch: Batch) -> Loss:
        """Clipped surrogate, mean over tokens; the rate grows with the square root of the last step's batch."""
        made = Grpo(eps_low=self.eps_low, eps_high=self.eps_high, reduction="token_mean").loss((), batch)
        if not self.batch0 or not state:
            return made
        return made._replace(lr_scale=learning_rate(1.0, self.batch0, state))
