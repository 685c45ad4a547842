"""XRPO: rollouts in rounds to the prompts whose mean is least certain, and a bonus for rare correct answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from workbench.numerics.apportion import apportion
from workbench.numerics.beliefs import set_rows
from workbench.numerics.groups import describe
from workbench.numerics.picks import largest
from workbench.numerics.t_intervals import unit_half_widths
from workbench.stages import Card, Effect, Method
from workbench.types import Advantage, Draft, Plan, Pool, Step

CARD = Card(
    slug="xrpo",
    title="XRPO: pushing the limits of GRPO with targeted exploration and exploitation",
    arxiv="2510.06672",
    code="https://github.com/UIUC-MLSys/XRPO",
    source="paper",
    deviations=(
        "formulas through independent quotations of the paper; of the bonus two of three have the square root used here",
        "half of the budget before the first rewards, the rest in equal rounds, alpha 0.05 and bonus 0.5: not confirmed",
        "no in-context seeding of prompts without success",
        "where the world records no log-probabilities, no answer counts as rare",
        "beyond 2,048 prompts units are granted in blocks, at most one a prompt and block",
    ),
    watch="reduction against bonus in the priority, group sizes after the last round, the share of sharpened answers",
)

_EXACT = 2048


def exploration(n: np.ndarray, total: int, lambda_: float) -> np.ndarray:
    """(P,) bonus lambda sqrt(log(1 + total) / n) of prompts with n of all `total` rollouts; NaN for none."""
    return lambda_ * np.sqrt(np.log1p(total) / np.where(n > 0, n, np.nan))


def intervals(n: np.ndarray, std: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """(P,) half width of the t interval, and its reduction by one rollout more; NaN below two rollouts."""
    n_max = int(n.max(initial=2))
    return std * unit_half_widths(alpha, n_max)[n], std * _reductions(alpha, n_max)[n]


def _reductions(alpha: float, n_max: int) -> np.ndarray:
    """(n_max + 1,) h(n) - h(n + 1) at std 1; NaN for n < 2."""
    return -np.diff(unit_half_widths(alpha, n_max + 1))


def grant(
    n: np.ndarray, std: np.ndarray, budget: int, lambda_: float, alpha: float, n_cap: int | None = None
) -> np.ndarray:
    """(P,) int64 units of a round for prompts with n rollouts of spread std, one at a time to the highest priority.

    The priority is the reduction of the half width h(n) = t_(1 - alpha/2, n - 1) std / sqrt(n) by one rollout more, at the
    same std, plus a bonus lambda sqrt(log(1 + T) / n) with T the rollouts of all prompts; n and T count on with every unit.
    Prompts below two rollouts come first, fewest first; ties go to the lowest index. n_cap: no prompt beyond it, which may
    leave units unspent."""
    start, n = n, n.astype(np.int64).copy()
    cap = np.iinfo(np.int64).max if n_cap is None else n_cap
    left = budget
    for level in (0, 1):
        served = np.flatnonzero((n == level) & (n < cap))[:left]
        n[served] += 1
        left -= len(served)
    left = min(left, int(np.minimum(np.maximum(cap - n, 0), left).sum())) if len(n) else 0
    if left <= 0:
        return n - start
    total = int(n.sum())
    block = 1 if len(n) <= _EXACT else len(n) // 16
    reduction = _reductions(alpha, int(n.max()) + 64)
    priority = std * reduction[n]
    while left > 0:
        open_ = np.where(n < cap, priority + exploration(n, total, lambda_), -np.inf)
        rows = np.array([np.argmax(open_)]) if block == 1 else largest(open_, min(block, left, int((n < cap).sum())))
        n[rows] += 1
        if n[rows].max() >= len(reduction):
            reduction = _reductions(alpha, 2 * len(reduction))
        priority[rows] = std[rows] * reduction[n[rows]]
        total += len(rows)
        left -= len(rows)
    return n - start


class Sharpened(NamedTuple):
    """Columns (R,): advantage, score = mean log-probability of a token, eta = exp(score - mean), bonus, sharpened."""

    advantage: np.ndarray
    score: np.ndarray
    eta: np.ndarray
    bonus: np.ndarray
    sharpened: np.ndarray


def sharpen(
    reward: np.ndarray, likely: np.ndarray, group: np.ndarray, n_groups: int, novelty: float, kappa: float, eps: float
) -> Sharpened:
    """Advantages with a bonus for answers that are good and less likely than the others of their group.

    reward (R,), NaN = null, advantage 0; likely (R,) mean log-probability of a token, NaN = unknown, no bonus.
    A = (r - mean) / (std + eps), population std; for A > 0: A + min(max(novelty (1 - eta), 0), kappa A)."""
    stats = describe(reward, group, n_groups)
    scored = np.isfinite(reward)
    spread = stats.std * np.sqrt(np.maximum(stats.n - 1, 0) / np.maximum(stats.n, 1))
    scale = np.where(stats.settled, 1.0, spread + eps)[group]
    value = np.where(scored & ~stats.settled[group], (reward - stats.mean[group]) / scale, 0.0)
    typical = describe(np.where(scored, likely, np.nan), group, n_groups).mean[group]
    eta = np.exp(np.where(np.isfinite(likely - typical), likely - typical, 0.0))
    bonus = np.where(value > 0, np.minimum(np.maximum(novelty * (1 - eta), 0), kappa * value), 0.0)
    return Sharpened(value, likely, eta, bonus, value + bonus)


class Memory(NamedTuple):
    """The group of a prompt's last visit, (N,): n int64 scored rollouts, mean and sample std of their success."""

    n: np.ndarray
    mean: np.ndarray
    std: np.ndarray


@dataclass(frozen=True)
class Xrpo(Method):
    """`base` of the budget in equal groups, the rest in rounds by priority; then sharpened advantages.

    rounds counts the first one. lambda_bonus weighs exploration against the reduction of uncertainty; alpha is the
    level of the intervals; n_cap, if given, the largest group."""

    rounds: int = 3
    base: float = 0.5
    lambda_bonus: float = 0.5
    alpha: float = 0.05
    n_cap: int | None = None
    lambda_novelty: float = 2.5
    kappa_clip: float = 0.5
    eps: float = 1e-6

    card = CARD
    effects = frozenset({Effect.REPLACES_ADVANTAGES})

    def init(self, pool: Pool) -> Memory:
        """No prompt was visited."""
        n = len(pool)
        return Memory(np.zeros(n, np.int64), np.full(n, 0.5), np.zeros(n))

    def observe(self, state: Memory, step: Step) -> Memory:
        """Remember the groups of the step; only for drawing, every step plans from its own rewards."""
        rows, solved, tried = step.evidence(len(state.n))
        mean = solved / tried
        std = np.sqrt(mean * (1 - mean) * tried / np.maximum(tried - 1, 1))
        return Memory(
            set_rows(state.n, rows, tried.astype(np.int64)),
            set_rows(state.mean, rows, mean),
            set_rows(state.std, rows, std),
        )

    def reveal(self, state: Memory) -> Mapping[str, np.ndarray]:
        """mean of the last group with its t interval inside 0..1, its size n, and the reduction by one rollout more."""
        half, delta = intervals(state.n, state.std, self.alpha)
        half, delta = np.where(state.n >= 2, half, 1.0), np.where(state.n >= 2, delta, 0.0)
        low, high = np.clip(state.mean - half, 0, 1), np.clip(state.mean + half, 0, 1)
        return {"mean": state.mean, "low": low, "high": high, "n": state.n.astype(float), "delta": delta}

    def allocate(self, state: Memory, draft: Draft, rng: np.random.Generator) -> Plan:
        """Round 0: equal groups of at least two. Later: this round's part of what is left, by priority."""
        fresh, prompts = draft.fresh, draft.prompts
        share = round(draft.budget.rollouts * len(prompts) / draft.budget.prompts)
        left = max(share - draft.spent, 0)
        if len(fresh):
            own = min(round(draft.budget.rollouts * len(fresh) / draft.budget.prompts), left)
            first = own if self.rounds < 2 else min(own, max(round(self.base * own), 2 * len(fresh)))
            return Plan(fresh, apportion(np.ones(len(fresh)), first))
        if draft.rollouts is None or left == 0 or self.rounds < 2:
            return Plan(fresh, fresh)
        rollouts = draft.rollouts
        place = np.full(int(prompts.max()) + 1, -1, np.int64)
        place[prompts] = np.arange(len(prompts))
        plain = (rollouts.context == "") & (rollouts.purpose == "train") & np.isin(rollouts.prompt, prompts)
        group = place[rollouts.prompt[plain]]
        stats = describe(rollouts.reward[plain], group, len(prompts))
        # an unscored rollout is one that was spent: its prompt must not be served first for ever
        n = np.bincount(group, minlength=len(prompts))
        std = np.where(stats.settled, 0.0, stats.std)
        units = -(-left // max(self.rounds - draft.round, 1))
        extra = grant(n, std, units, self.lambda_bonus, self.alpha, self.n_cap)
        got = np.flatnonzero(extra)
        return Plan(prompts[got], extra[got], why={"std": std[got], "n_before": n[got].astype(float)})

    def estimate(self, state: Memory, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Group advantages with the population std, sharpened where log-probabilities were recorded."""
        rollouts = draft.rollouts
        reward = np.where(advantage.keep, rollouts.reward, np.nan)
        n_groups = int(rollouts.group.max(initial=-1)) + 1
        likely = np.full(len(rollouts), np.nan) if rollouts.logp is None else rollouts.logp.mean()
        made = sharpen(reward, likely, rollouts.group, n_groups, self.lambda_novelty, self.kappa_clip, self.eps)
        baseline = np.where(advantage.keep, describe(reward, rollouts.group, n_groups).mean[rollouts.group], np.nan)
        return replace(advantage, value=made.sharpened, baseline=baseline, tokens=None)
