"""BroRL: few prompts with very many rollouts each, so that right answers nobody sampled lose almost nothing.

Also the paper's balance of probability mass on one categorical distribution, which says why breadth helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.methods.grpo import Grpo
from workbench.numerics.apportion import apportion
from workbench.numerics.groups import describe
from workbench.stages import Card, Effect, Method
from workbench.types import Advantage, Batch, Draft, Loss, Plan, Pool, Ragged, Step

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


class MassBalance(NamedTuple):
    """Probability mass of right tokens Q_pos and its first-order change by one update, with its three parts."""

    Q_pos: float
    S_R: float
    A2: float
    B2: float
    U_pos2: float
    U_neg2: float
    sampled_correct: float
    sampled_incorrect: float
    unsampled_coupling: float
    delta_Q_pos: float


def mass_balance(
    p: ArrayLike,
    correct: ArrayLike,
    sampled: ArrayLike,
    R_c: float = 1.0,
    R_w: float = -1.0,
    eta: float = 1.0,
    N: int = 1,
) -> MassBalance:
    """What one update on the distinct sampled tokens does to the mass of right ones; p (V,), correct, sampled (V,) bool.

    dQ = eta/N [(R_c - S)(1 - Q) A2 + (S - R_w) Q B2 + S (Q U_neg2 - (1 - Q) U_pos2)] with S the reward-weighted sampled
    mass and A2, B2, U2 sums of p^2 over sampled right, sampled wrong and unsampled tokens. The first two parts are
    never negative while R_w <= S <= R_c; the third, the coupling of unsampled tokens, may be."""
    p, right, drawn = np.asarray(p, float), np.asarray(correct, bool), np.asarray(sampled, bool)
    if N < 1:
        raise ValueError(f"an update needs one draw at least, got N={N}")
    q = p[right].sum()
    a2, b2 = ((p[drawn & side] ** 2).sum() for side in (right, ~right))
    u_pos2, u_neg2 = ((p[~drawn & side] ** 2).sum() for side in (right, ~right))
    s = R_c * p[drawn & right].sum() + R_w * p[drawn & ~right].sum()
    scale = eta / N
    parts = (
        scale * (R_c - s) * (1 - q) * a2,
        scale * (s - R_w) * q * b2,
        scale * s * (q * u_neg2 - (1 - q) * u_pos2),
    )
    return MassBalance(*(float(x) for x in (q, s, a2, b2, u_pos2, u_neg2, *parts, sum(parts))))


class Unsampled(NamedTuple):
    """Expected p^2 of each token (V,) while it stays unsampled, and their sum."""

    per_token: np.ndarray
    total: float


def unsampled_second_moment(p: ArrayLike, N: int) -> Unsampled:
    """p^2 (1 - p)^N: what the coupling feeds on after N draws. It only falls with N; 0 by underflow is right."""
    p = np.asarray(p, float)
    per_token = p**2 * (1 - p) ** N
    return Unsampled(per_token, float(per_token.sum()))


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


class GroupedAdvantages(NamedTuple):
    """kept (P,) bool; advantage: one array for every kept group."""

    kept: np.ndarray
    advantage: list[np.ndarray]


def advantages(groups: Sequence[ArrayLike], eps: float = 1e-6) -> GroupedAdvantages:
    """The paper's advantages of P groups of rewards, of any sizes; None or NaN = null, advantage 0.

    Groups that are all alike are filtered first; a larger group weighs more in the batch's statistics."""
    rows = Ragged.of([np.asarray(g, float) for g in groups], float)
    group = np.repeat(np.arange(rows.n_rows), rows.lengths)
    value, kept = batch_normalised(rows.values, group, eps)
    mixed = np.bincount(group, kept, minlength=rows.n_rows) > 0
    return GroupedAdvantages(mixed, list(Ragged(value, rows.offsets).take(mixed).rows()))


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
