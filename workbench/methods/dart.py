"""DART: fewer rollouts for tasks that are mostly solved, and a success from the past for groups that all failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics import beta as beta_law
from workbench.numerics.apportion import apportion
from workbench.numerics.beliefs import set_rows
from workbench.numerics.groups import describe, first_rows
from workbench.numerics.replay import appended, groups_of, stored
from workbench.stages import Card, Method
from workbench.types import Batch, Draft, Loss, Plan, Pool, Rollouts, Step

CARD = Card(
    slug="dart",
    title="DART-GUI: efficient multi-turn RL for GUI agents via decoupled training and adaptive data curation",
    arxiv="2509.23866",
    code="https://github.com/Computer-use-agents/dart-gui",
    source="code",
    deviations=(
        "a group that the budget cannot give what it asks is cut in proportion",
        "the pool holds the newest success of a prompt; the replaced failure stays in the step, out of the loss",
        "no limit of steps and no choice of steps by entropy: tasks here have one turn; no KL to a reference model (beta 0.1 in the paper)",
    ),
    watch="mean group size, groups rescued from the pool, the importance weight and the share truncated",
    unspent="tasks that are mostly solved ask for fewer rollouts",
)

_CLAMP = 20.0


class Rate(NamedTuple):
    """rate of success, 0 where nothing is valid; valid trajectories in the window."""

    rate: float
    valid: int


def success_rate(rewards_newest_first: ArrayLike, window: int) -> Rate:
    """Mean of the non-negative rewards among the newest `window`; negative or null ones are broken episodes."""
    newest = np.asarray(rewards_newest_first, float)[:window]
    valid = newest[newest >= 0]
    return Rate(float(valid.mean()) if len(valid) else 0.0, len(valid))


def rollout_count(success_rate: ArrayLike, n_max: int = 8, n_min: int = 1, threshold: float = 0.6) -> np.ndarray:
    """n_max below the threshold, else floor(9 / rate - 7) within n_min..n_max: 8 at 0.6, 2 at 1.0; float or (M,)."""
    rate = np.asarray(success_rate, float)
    raw = np.floor(9 / np.maximum(rate, 1e-6) - 7)
    n = np.minimum(np.maximum(raw, n_min), n_max)
    return np.where((rate < threshold) | (rate <= 0), n_max, n).astype(np.int64)


class Memory(NamedTuple):
    """recent (N, n_max) int8 outcomes, newest first, -1 = none; rate (N,) of success in the window; rollout_n (N,) int64,
    the next group size and the next window; pool: the newest successful rollout of every prompt that has one."""

    recent: np.ndarray
    rate: np.ndarray
    rollout_n: np.ndarray
    pool: Rollouts | None


def pushed(recent: np.ndarray, prompt: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    """recent (N, W) with new outcomes (R,) in front, in order of arrival, the last one foremost."""
    if not len(prompt):
        return recent
    width = recent.shape[1]
    order = np.lexsort((-np.arange(len(prompt)), prompt))  # newest first inside a prompt
    rows, start, count = np.unique(prompt[order], return_index=True, return_counts=True)
    place = np.arange(len(prompt)) - np.repeat(start, count)
    inside = place < width
    new = np.full((len(rows), width), -1, np.int8)
    new[np.repeat(np.arange(len(rows)), count)[inside], place[inside]] = outcome[order][inside]
    both = np.concatenate([new, recent[rows]], axis=1)
    first = np.argsort(both < 0, axis=1, kind="stable")[:, :width]
    return set_rows(recent, rows, np.take_along_axis(both, first, axis=1))


def newest(pool: Rollouts | None, won: Rollouts) -> Rollouts | None:
    """The pool with the last success of every prompt in `won`, ordered by prompt, which also is its group."""
    won = won.take(np.sort(len(won) - 1 - np.unique(won.prompt[::-1], return_index=True)[1]))
    if not len(won):
        return pool
    parts = [won] if pool is None else [pool.take(~np.isin(pool.prompt, won.prompt)), won]
    both = stored([part for part in parts if len(part)])
    both = both.take(np.argsort(both.prompt, kind="stable"))
    return both.with_(group=both.prompt)


@dataclass(frozen=True)
class Dart(Method):
    """Group sizes by recent success, groups without success rescued from a pool, and DART's loss.

    n_min below 2 lets a solved prompt ask for a group that has no advantage; the formula itself stops at 2."""

    n_max: int = 8
    n_min: int = 1
    threshold: float = 0.6
    rescue: bool = True
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 10.0
    tis_cap: float = 1.0

    card = CARD

    def init(self, pool: Pool) -> Memory:
        """No outcome, an empty pool."""
        n = len(pool)
        return Memory(np.full((n, self.n_max), -1, np.int8), np.zeros(n), np.full(n, self.n_max, np.int64), None)

    def observe(self, state: Memory, step: Step) -> Memory:
        """Outcomes move in at the front; the newest success of a prompt takes its place in the pool."""
        made = groups_of(step)
        rows = np.unique(made.prompt)
        recent = pushed(state.recent, made.prompt, (made.correct > 0).astype(np.int8))
        window = np.where(np.arange(self.n_max) < state.rollout_n[rows, None], recent[rows], -1)
        rate = (window > 0).sum(axis=1) / np.maximum((window >= 0).sum(axis=1), 1)
        rollout_n = rollout_count(rate, self.n_max, self.n_min, self.threshold)
        return Memory(
            recent,
            set_rows(state.rate, rows, rate),
            set_rows(state.rollout_n, rows, rollout_n),
            newest(state.pool, made.take(made.correct > 0)),
        )

    def reveal(self, state: Memory) -> Mapping[str, np.ndarray]:
        """mean of Beta(1 + successes, 1 + failures) of the recent outcomes with its central 90 % interval; rate; wish = rollouts."""
        solved, valid = (state.recent > 0).sum(axis=1), (state.recent >= 0).sum(axis=1)
        low, high = beta_law.interval(1.0 + solved, 1.0 + valid - solved)
        mean = (1 + solved) / (2 + valid)
        return {"mean": mean, "low": low, "high": high, "rate": state.rate, "wish": state.rollout_n.astype(float)}

    def allocate(self, state: Memory, draft: Draft, rng: np.random.Generator) -> Plan:
        """What each fresh prompt asks for, cut in proportion where the budget has less; the rest is saved."""
        fresh = draft.fresh
        if not len(fresh):
            return Plan(fresh, fresh)
        share = round(draft.budget.rollouts * len(fresh) / draft.budget.prompts)
        rate, wanted = state.rate[fresh], state.rollout_n[fresh]
        n = wanted if wanted.sum() <= share else apportion(wanted, share, floor=1)
        return Plan(fresh, n, why={"rate": rate, "wish": wanted.astype(float)})

    def replay(self, state: Memory, rollouts: Rollouts, draft: Draft, rng: np.random.Generator) -> Rollouts:
        """One earlier success for every plain group of this step that has none."""
        if not self.rescue or state.pool is None:
            return rollouts
        failed = self._all_failed(rollouts)
        group = np.full(len(state.recent), -1, np.int64)
        rows = np.flatnonzero(failed[rollouts.group])
        group[rollouts.prompt[rows]] = rollouts.group[rows]
        saved = state.pool.take(group[state.pool.prompt] >= 0)
        return appended(rollouts, saved.with_(group=group[saved.prompt]))

    def admit(self, state: Memory, rollouts: Rollouts, draft: Draft) -> np.ndarray:
        """The oldest rollout of a rescued group leaves the loss."""
        rescued = np.zeros(int(rollouts.group.max(initial=-1)) + 1, bool)
        rescued[rollouts.group[(rollouts.ask < 0) & (rollouts.context == "")]] = True
        mine = rescued[rollouts.group] & (rollouts.ask >= 0) & np.isfinite(rollouts.reward)
        oldest = first_rows(mine, rollouts.group, len(rescued))
        mask = np.ones(len(rollouts), bool)
        mask[oldest[oldest >= 0]] = False
        return mask

    def _all_failed(self, rollouts: Rollouts) -> np.ndarray:
        """(G,) bool: two plain training rollouts at least were scored, and none of them is right."""
        plain = rollouts.plain & np.isfinite(rollouts.reward)
        stats = describe(
            np.where(plain, rollouts.correct, np.nan), rollouts.group, int(rollouts.group.max(initial=-1)) + 1
        )
        return (stats.n > 1) & (stats.high <= 0)

    def loss(self, state: Memory, batch: Batch) -> Loss:
        """max(-A rho, -A clip(rho)), at most -A dual_clip where A < 0, times min(pi_old / pi_rollout, tis_cap).

        Truncated importance sampling; rows whose recorded log-probabilities are all 0 were not stored and weigh 1."""
        import torch

        mask, zero = batch.mask.bool(), torch.zeros_like(batch.logp)
        ratio = torch.where(mask, batch.logp - batch.proximal, zero).clamp(-_CLAMP, _CLAMP).exp()
        a = torch.where(mask, batch.advantage, zero)
        term = torch.maximum(-a * ratio, -a * ratio.clamp(1 - self.clip_low, 1 + self.clip_high))
        term = torch.where(a < 0, torch.minimum(term, -a * self.dual_clip), term)
        drift = torch.where(mask, batch.proximal - batch.behaviour, zero).detach()
        unrecorded = ~torch.where(mask, batch.behaviour, zero).bool().any(1, keepdim=True)
        weight = drift.clamp(-_CLAMP, _CLAMP).exp().clamp(max=self.tis_cap)
        weight = torch.where(unrecorded, torch.ones_like(weight), weight)
        stats = {"ratio": ratio.detach(), "importance": weight, "truncated": (drift > log(self.tis_cap)).to(term.dtype)}
        return Loss(weight * term, reduction="seq_mean", stats=stats)
