"""DUET: rollouts per prompt under a budget of tokens, by how much a prompt's gradient varies and how long its answers are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from workbench.methods.duet.pricing import (
    Moments,
    abort_decision,
    allocation,
    budget_trim,
    checkpoints,
    make_divisible,
    snips_weight,
    spreads,
    stop_threshold,
    taken,
)
from workbench.numerics import beta as beta_law
from workbench.numerics.beliefs import set_rows
from workbench.stages import Card, Checkpoint, Method
from workbench.types import Advantage, Cut, Draft, Frontier, Plan, Pool, Step

CARD = Card(
    slug="duet",
    title="DUET: optimize token-budget allocation for reinforcement learning with verifiable rewards",
    arxiv="2605.08441",
    code="https://github.com/Haoyu-Hu/DUET",
    source="code",
    deviations=(
        "the full budget of tokens is the step's rollouts at the mean length of its prompts, in the place of n_ref = 8 "
        "each; a step never asks for more rollouts than it may",
        "prompts without a spread of their own share the mean spread of those that have one, at least sigma_min: the "
        "ridge on prompt log-probabilities needs weights that were not released",
        "where log-probabilities were not recorded, a token counts as one nat",
        "stop and abort act only where a domain has answer markers (`markers`); rollouts are looked at every `every` tokens, "
        "so hysteresis counts looks, and the two checkpoints move with every step",
        "thresholds are ranked among the prompts that are still growing when a rollout is first looked at",
        "the propensity is no chance of being sampled, it evens out small groups; both in the code and here",
    ),
    watch="group sizes over time, planned against used tokens, the largest importance weight, spread against reward variance",
    unspent="budget is a share of the step's tokens, 0.5 in the paper",
)


class Memory(NamedTuple):
    """spread: moments of sigma by prompt; length: n and mean of kept lengths (N,); window: latest kept lengths; solved,
    tried (N,) outcomes, for drawing."""

    spread: Moments
    length: tuple[np.ndarray, np.ndarray]
    window: np.ndarray
    solved: np.ndarray
    tried: np.ndarray


@dataclass(frozen=True)
class Duet(Method):
    """Rollouts by spread over the root of length, under `budget` of the step's tokens, and reweighted advantages.

    k_warmup: observed groups from which on a prompt's own spread counts. length: tokens of an answer before any was
    seen. workers: the number that has to divide the rollouts. markers: texts that announce an answer; once one was
    written a rollout ends where the next token is certain, and without one it is given up `grace` tokens behind the
    80th percentile of lengths; () for domains without. Stands behind the estimator: Pipeline(Grpo(), Duet())."""

    budget: float = 0.5
    n_min: int = 1
    n_max: int = 32
    eps_pre: float = 0.05
    sigma_min: float = 0.25
    k_warmup: int = 1
    bisection_iters: int = 10
    window: int = 1024
    length: float = 3072.0
    workers: int = 1
    markers: tuple[str, ...] = ()
    every: int = 8
    hysteresis: int = 5
    grace: int = 150
    min_tokens: int = 200
    min_k1: int = 32
    min_gap: int = 50
    floor: float = 0.5
    ceiling: float = 0.99
    eps_abort: float = 0.05
    eps_len: float = 0.05

    card = CARD
    acts_if: ClassVar[Mapping[str, str]] = {"prune": "markers"}

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The likeliest next tokens and the text, where rollouts may be stopped."""
        return frozenset({"top_tokens", "text_tail"}) if self.markers else frozenset()

    @property
    def checkpoint(self) -> Checkpoint:
        """Every `every` tokens, with the two likeliest next ones and the text."""
        return Checkpoint(every=self.every, top=2, text=True)

    def __post_init__(self) -> None:
        if not 0 < self.budget <= 1:
            raise ValueError(f"budget={self.budget} is a share of the step's tokens, in 0..1")

    def init(self, pool: Pool) -> Memory:
        """Nothing was observed."""
        n = len(pool)
        zero, count = np.zeros(n), np.zeros(n, np.int64)
        return Memory(Moments(count, zero, zero), (count, zero), np.empty(0), zero, zero)

    def observe(self, state: Memory, step: Step) -> Memory:
        """Spread and length of the groups of the step; their advantages are weighted already, as in the code."""
        rollouts, n = step.rollouts, len(state.tried)
        kept = step.advantage.keep & rollouts.plain & (rollouts.ask >= 0)
        prompt, length = rollouts.prompt[kept], rollouts.length[kept].astype(float)
        count = np.bincount(prompt, minlength=n)
        rows = np.flatnonzero(count)
        seen, mean = state.length
        total = seen[rows] + count[rows]
        new_mean = mean[rows] + (np.bincount(prompt, length, n)[rows] - count[rows] * mean[rows]) / total
        nats = -length if rollouts.logp is None else (rollouts.logp.mean() * rollouts.logp.lengths)[kept]
        value = (step.advantage.value * step.advantage.weight)[kept]
        sigma = spreads(value * np.nan_to_num(nats), prompt, n)
        varied = np.flatnonzero((count > 1) & np.isfinite(sigma))
        done, solved, tried = step.evidence(n)
        return Memory(
            state.spread.add(varied, sigma[varied]),
            (set_rows(seen, rows, total), set_rows(mean, rows, new_mean)),
            np.concatenate([state.window, length])[-self.window :],
            set_rows(state.solved, done, state.solved[done] + solved),
            set_rows(state.tried, done, state.tried[done] + tried),
        )

    def _estimates(self, state: Memory) -> tuple[np.ndarray, np.ndarray]:
        """(s, L) of every prompt, its own or what stands in for it."""
        known = state.spread.n >= max(self.k_warmup, 1)
        cold = state.spread.mean[known].mean() if known.any() else self.sigma_min
        s = np.maximum(np.where(known, state.spread.mean, cold), self.sigma_min)
        typical = state.window.mean() if len(state.window) else self.length
        n, mean = state.length
        return s, np.where(n > 0, mean, typical)

    def reveal(self, state: Memory) -> Mapping[str, np.ndarray]:
        """mean success rate with its central 90 % interval (the method does not use it), spread and length."""
        low, high = beta_law.interval(1 + state.solved, 1 + state.tried - state.solved)
        s, length = self._estimates(state)
        return {
            "mean": (1 + state.solved) / (2 + state.tried),
            "low": low,
            "high": high,
            "spread": s,
            "length": length,
        }

    def allocate(self, state: Memory, draft: Draft, rng: np.random.Generator) -> Plan:
        """Group sizes of the fresh prompts by one price of a token."""
        fresh = draft.fresh
        if not len(fresh):
            return Plan(fresh, fresh)
        share = round(draft.budget.rollouts * len(fresh) / draft.budget.prompts)
        s, length = (column[fresh] for column in self._estimates(state))
        full = share * length.mean()
        least = min(self.n_min, share // len(fresh))
        made = allocation(s, length, self.budget, full, self.bisection_iters, least, self.n_max, self.eps_pre)
        n = budget_trim(made.n, length, self.budget * full, least).n
        n = make_divisible(taken(n, int(n.sum()) - share, least), self.workers, least).n
        why = {"spread": s, "length": length, "p_pre": made.p_pre, "price": np.full(len(n), made.lambda_)}
        return Plan(fresh, n, why=why, memory={"duet.p_pre": made.p_pre})

    def prune(self, state: Memory, frontier: Frontier, rng: np.random.Generator) -> Cut:
        """End what has its answer and is certain; give up, but for a chance of eps_abort, what is late without one."""
        b, n = len(frontier), frontier.n_tokens
        u, v = rng.random(b), rng.random(b)
        seen, sure, free, limit = (_scratch(frontier, name) for name in ("seen", "sure", "free", "limit"))
        text = np.array(
            [f"{a}{t}"[-LOOK_BACK:] for a, t in zip(_scratch(frontier, "text", ""), frontier.tail, strict=True)], object
        )
        k = checkpoints(state.window, min_k1=self.min_k1, min_gap=self.min_gap)
        k1, k2 = k or (0.3 * self.length, 0.7 * self.length)
        found = np.array([any(m in t for m in self.markers) for t in text], bool)
        seen = np.where((n >= max(k1, self.min_tokens)) & found, 1.0, seen)
        limit = np.where(limit > 0, limit, self._limits(state, frontier.prompt))
        p = np.exp(np.asarray(frontier.extra.get("top_logp", np.zeros((b, 2))), float))
        sure = np.where((seen > 0) & (p[:, 0] - p[:, 1] > limit), sure + self.every, 0.0)
        certain = (sure >= self.hysteresis) & (free == 0)
        stop = certain & (v >= self.eps_len)
        what = abort_decision(n, seen > 0, u, int(k2), self.grace, self.eps_abort, self.min_tokens)
        late = np.isin(what, ("abort", "eps_kept")) & (free == 0)
        lost = late & (what == "abort")
        reason = np.select([stop, lost], ["certain", "no_answer"], "").astype(object)
        memory = {"seen": seen, "sure": sure, "free": np.where(certain | late, 1.0, free), "limit": limit, "text": text}
        return Cut(
            (~(stop | lost)).astype(np.int64),
            reason,
            np.where(late, self.eps_abort, 1.0),
            {f"duet.{name}": column for name, column in memory.items()},
            np.select([stop, lost], ["stop", "aborted"], "").astype(object),
        )

    def _limits(self, state: Memory, prompt: np.ndarray) -> np.ndarray:
        """(B,) the stop threshold of each branch's prompt."""
        rows, of = np.unique(prompt, return_inverse=True)
        s, length = (column[rows] for column in self._estimates(state))
        return stop_threshold(s, length, self.floor, self.ceiling)[of]

    def estimate(self, state: Memory, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Advantages over the propensity of their ask, where this method made the plan; what was given up has none."""
        p = np.ones(len(draft.rollouts))
        asked = draft.rollouts.ask >= 0
        if draft.plan is not None and "duet.p_pre" in draft.plan.memory:
            p[asked] = np.nan_to_num(draft.plan.memory["duet.p_pre"][draft.rollouts.ask[asked]], nan=1.0)
        lost = draft.rollouts.finish == "aborted"
        went_on = np.asarray(draft.rollouts.extra.get("propensity", np.ones(len(p))), float)
        spared = np.isclose(went_on, self.eps_abort) & ~lost if self.markers else np.zeros(len(p), bool)
        weight, mask = snips_weight(p, spared, lost, self.eps_pre, self.eps_abort)
        advantage = advantage.scaled(weight * mask)
        return advantage.drop(lost, "no_answer") if self.markers else advantage


LOOK_BACK = 1024
"""Characters in which an answer's marker is looked for: 256 tokens, about."""


def _scratch(frontier: Frontier, name: str, blank: float | str = 0.0) -> np.ndarray:
    return np.asarray(
        frontier.memory.get(f"duet.{name}", np.full(len(frontier), blank, dtype=object if blank == "" else float))
    )
