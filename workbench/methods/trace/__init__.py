"""TRACE: one budget for prompts and visited turns, spent where success and failure are both likely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, NamedTuple

import numpy as np

from workbench.methods.trace.continuations import (
    prefix_allocation,
    root_allocation,
    root_value,
    tree_advantages,
)
from workbench.numerics.apportion import apportion
from workbench.numerics.beliefs import Belief, set_rows
from workbench.numerics.forks import credited
from workbench.numerics.hints import Ask, with_asks
from workbench.numerics.picks import smallest
from workbench.numerics.predictors import columns
from workbench.stages import Card, Checkpoint, Effect, Method
from workbench.types import Advantage, Draft, Fork, Frontier, Node, Picked, Plan, Pool, Rollouts, Step
from workbench.types.checkpoint import MARKS

CARD = Card(
    slug="trace",
    title="TRACE: a unified rollout budget allocation framework for efficient agentic RL",
    arxiv="2606.11119",
    source="notes",
    deviations=(
        "the predictor of roots is a Beta posterior per prompt that fades by `decay` at each visit and starts at the "
        "running success rate; the paper trains a network on histories",
        "tasks here have one turn, where the paper spends on roots only: continuations=0. With continuations (the paper's "
        "is 2) prefixes end behind `boundaries` or every so many tokens, and only rollouts from the prompt are continued",
        "continuations come out of what a prompt was allocated, by whomever: of n rollouts the smallest m >= n / (1 + N) are "
        "roots, at least m_min; the paper allocates roots, and N continuations of each come on top",
        "the predictor of prefixes is a ridge on length, log-probability and entropy so far, beside the prompt's belief",
        "the solver and its ties are inferred; beyond 4 million cells of the table it is greedy, which is exact up to the "
        "last prompt where m_min is 2 or 3",
        "rollouts that would be worth nothing are spread evenly, so that the step's budget is spent",
    ),
    unspent="continuations that can change nothing are not asked; where no rollout has a place to go on from, plain ones are",
    watch="the share of groups with both outcomes against plain GRPO, prompts of the batch that got nothing",
)


class Memory(NamedTuple):
    """Faded counts of right and wrong rollouts by prompt (N,), and of all prompts together; the ridge's sums (4, 4), (4,)."""

    right: np.ndarray
    wrong: np.ndarray
    all_right: float
    all_tried: float
    gram: np.ndarray
    moment: np.ndarray


@dataclass(frozen=True)
class Trace(Method):
    """Prompts with the most even odds among `pool_factor` candidates a place, and group sizes that make most of them mixed.

    m_max None = the step's budget. prior: rollouts that the running success rate counts as; decay fades a prompt's
    evidence at each visit, since the policy moves on. continuations: how many of the rollouts that a prompt was allocated
    begin inside the others for each that begins at the prompt, at most k_max in one place; a root is left behind
    `boundaries` and after every `every` tokens (0 = not by count), at no more than `most` places. Continuations want an
    estimator before: Pipeline(Grpo(), Trace(continuations=2))."""

    m_min: int = 2
    m_max: int | None = None
    pool_factor: float = 4
    prior: float = 2.0
    decay: float = 0.8
    continuations: int = 0
    k_max: int = 4
    boundaries: tuple[str, ...] = ("\n\n",)
    every: int = 0
    most: int = 16
    ridge: float = 4.0

    card = CARD
    effects = frozenset({Effect.DEFERS_ROLLOUTS})
    acts_if: ClassVar[Mapping[str, str]] = {"amend": "continuations", "branch": "pauses", "estimate": "continuations"}

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """What starting inside a rollout takes."""
        return frozenset({"nodes", "behaviour", "token_entropy"}) if self.continuations else frozenset()

    @property
    def pauses(self) -> bool:
        """Whether rollouts pause to note their boundaries."""
        return bool(self.continuations and self.boundaries)

    @property
    def checkpoint(self) -> Checkpoint:
        """Behind every boundary."""
        return Checkpoint(every=0, markers=tuple(self.boundaries), keeps=(MARKS,))

    def init(self, pool: Pool) -> Memory:
        """No outcome; the running rate is one half."""
        return Memory(np.zeros(len(pool)), np.zeros(len(pool)), 0.5, 1.0, np.zeros((4, 4)), np.zeros(4))

    def observe(self, state: Memory, step: Step) -> Memory:
        """Count the plain outcomes, and fit what followed the visited prefixes."""
        rows, solved, tried = step.evidence(len(state.right))
        gram, moment = self.decay * state.gram, self.decay * state.moment
        if self.continuations and (seen := self._prefixes(state, step.rollouts)).x.size:
            wanted = _outcomes(step.rollouts, seen.row, seen.at) - seen.prior
            gram, moment = gram + seen.x.T @ seen.x, moment + seen.x.T @ wanted
        return Memory(
            set_rows(state.right, rows, self.decay * state.right[rows] + solved),
            set_rows(state.wrong, rows, self.decay * state.wrong[rows] + tried - solved),
            self.decay * state.all_right + float(solved.sum()),
            self.decay * state.all_tried + float(tried.sum()),
            gram,
            moment,
        )

    def _prefixes(self, state: Memory, rollouts: Rollouts, asks: np.ndarray | None = None) -> Prefixes:
        """The places inside the plain judged rollouts, of all asks or of those named, at which they may be continued, and
        what is known of each."""
        if rollouts.logp is None or rollouts.entropy is None:
            raise ValueError(
                "trace predicts from the log-probabilities of a prefix, and these rollouts have none recorded"
            )
        marks = rollouts.extra.get(MARKS)
        row, at, x = [], [], []
        mine = rollouts.plain & (rollouts.parent == "")
        mine &= rollouts.ask >= 0 if asks is None else np.isin(rollouts.ask, asks)
        for k in np.flatnonzero(mine).tolist():
            places = set(range(self.every, int(rollouts.length[k]), self.every)) if self.every else set()
            places |= set() if marks is None else set(marks.row(k).tolist())
            inside = np.array(sorted(p for p in places if 0 < p < rollouts.length[k]), np.int64)
            if len(inside) > self.most:
                inside = inside[np.linspace(0, len(inside) - 1, self.most).round().astype(np.int64)]
            nats = np.cumsum(rollouts.logp.row(k), dtype=float)[inside - 1] / np.maximum(inside, 1)
            doubt = np.cumsum(rollouts.entropy.row(k), dtype=float)[inside - 1] / np.maximum(inside, 1)
            row += [k] * len(inside)
            at += inside.tolist()
            x += np.stack([np.ones(len(inside)), np.log1p(inside), nats, doubt], 1).tolist()
        rows = np.array(row, np.int64)
        return Prefixes(
            rows, np.array(at, np.int64), np.array(x).reshape(-1, 4), self._belief(state, rollouts.prompt[rows]).mean
        )

    def _belief(self, state: Memory, rows: np.ndarray | slice = slice(None)) -> Belief:
        """Beta beliefs around the running success rate, kept off 0 and 1."""
        rate = float(np.clip(state.all_right / max(state.all_tried, 1e-12), 0.02, 0.98))
        return Belief(state.right[rows] + self.prior * rate, state.wrong[rows] + self.prior * (1 - rate))

    def reveal(self, state: Memory) -> Mapping[str, np.ndarray]:
        """mean with its central 90 % interval, evidence, and the chance that a group of eight is mixed."""
        belief = self._belief(state)
        return columns(belief, {"root_value": root_value(belief.mean, 8)})

    def select(self, state: Memory, draft: Draft, rng: np.random.Generator) -> Picked:
        """Of a random set of candidates those for which two rollouts are worth most."""
        n = len(state.right)
        uniform, order = rng.random(n), rng.random(n)
        rows = draft.candidates()
        rows = rows[smallest(uniform[rows], ceil(self.pool_factor * draft.wanted))]
        v = self._belief(state, rows).mean
        best = np.lexsort((order[rows], -v * (1 - v)))[: draft.wanted]
        return Picked.among(rows, best, variance=v * (1 - v))

    def allocate(self, state: Memory, draft: Draft, rng: np.random.Generator) -> Plan:
        """Rollouts of the fresh prompts, continuations among them; a prompt may get none."""
        fresh = draft.fresh
        if not len(fresh):
            return Plan(fresh, fresh)
        total = round(draft.budget.rollouts * len(fresh) / draft.budget.prompts)
        share = total // (1 + self.continuations)
        v = self._belief(state, fresh).mean
        m_max = max(share if self.m_max is None else self.m_max, self.m_min)
        m = root_allocation(v, share, self.m_min, m_max).m
        m = m + apportion((m > 0).astype(float), share - int(m.sum()))
        n = m * (1 + self.continuations)
        n = n + apportion((m > 0).astype(float), total - int(n.sum()))
        return Plan(fresh, n, why={"v": v, "root_value": root_value(v, m)})

    def amend(self, state: Memory, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """Roots first; once they are judged, continue a prompt's where the end may turn out otherwise."""
        rows = np.flatnonzero(plan.is_plain & (plan.n > 1))
        n = plan.n[rows]
        roots = np.maximum(-(-n // (1 + self.continuations)), np.minimum(n, self.m_min))
        plan = plan.defer(self.name, rows, n - roots)
        asks, later = draft.deferred(self.name)
        if not len(asks):
            return plan
        done, r = draft.plan, draft.rollouts
        seen = self._prefixes(state, r, asks)
        w = np.linalg.solve(state.gram + self.ridge * np.eye(4), state.moment)
        value = np.clip(seen.prior + seen.x @ w, 0.0, 1.0)
        more = []
        for a, n_later in zip(asks.tolist(), later.tolist(), strict=True):
            prompt, mine = int(done.prompt[a]), np.flatnonzero(r.ask[seen.row] == a)
            nodes = [
                {"rollout": k, "turn": t, "reward": float(r.correct[k]), "value": v}
                for k, t, v in zip(seen.row[mine].tolist(), seen.at[mine].tolist(), value[mine].tolist(), strict=True)
            ]
            if not nodes:
                more.append(Ask(prompt, n_later, why={"value": np.nan, "flip": np.nan}))
                continue
            made = prefix_allocation(nodes, n_later, self.k_max)
            for i in np.flatnonzero(made.k):
                start = Node(f"{r.id[nodes[i]['rollout']]}@{nodes[i]['turn']}")
                why = {"value": nodes[i]["value"], "flip": float(made.flip[i])}
                more.append(Ask(prompt, int(made.k[i]), start, why=why))
        return with_asks(plan, more)

    def branch(self, state: Memory, frontier: Frontier, rng: np.random.Generator) -> Fork:
        """Nothing forks while it grows: rollouts pause behind boundaries, so that the places are known."""
        none = np.full(len(frontier), -1, np.int64)
        return Fork(np.ones(len(frontier), np.int64), none, none)

    def estimate(self, state: Memory, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Every token of a continued rollout gets the mean advantage of the leaves behind it; shared tokens once."""

        def credit(above: list[int | None], reward: np.ndarray, logprob: np.ndarray) -> np.ndarray:
            parent = np.array([-1 if p is None else p for p in above])
            return tree_advantages(parent, reward).node_advantage

        return credited(advantage, draft.rollouts, credit)


class Prefixes(NamedTuple):
    """Places inside rollouts: row and at (n,) int64 tokens kept; x (n, 4) one, log length, mean log-probability and mean
    entropy so far; prior (n,) the prompt's believed success rate."""

    row: np.ndarray
    at: np.ndarray
    x: np.ndarray
    prior: np.ndarray


def _outcomes(rollouts: Rollouts, row: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(n,) mean success of all judged rollouts that pass the first at (n,) tokens of the rollouts row (n,)."""
    place = {i: k for k, i in enumerate(rollouts.id)}
    judged = np.flatnonzero((rollouts.parent != "") & np.isfinite(rollouts.correct))
    above = np.array([place.get(rollouts.parent[k], -1) for k in judged], np.int64)
    out = np.empty(len(row))
    for i, (k, t) in enumerate(zip(row.tolist(), at.tolist(), strict=True)):
        later = judged[(above == k) & (rollouts.fork_at[judged] >= t)]
        out[i] = np.append(rollouts.correct[later], rollouts.correct[k]).mean()
    return out
