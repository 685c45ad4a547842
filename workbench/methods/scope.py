"""SCOPE: a failing rollout is cut before its first wrong step and continued from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.estimators import group_advantages
from workbench.numerics.hints import Ask, with_asks
from workbench.stages import Card, Effect, Method, State
from workbench.types import Advantage, Draft, Node, Plan, Ragged

CARD = Card(
    slug="scope",
    title="SCOPE: recycling failures by fine-grained off-policy guidance",
    arxiv="2602.24110",
    source="ours",
    deviations=(
        "thresholds, ranking and acceptance are ours: no code was published",
        "the policy itself writes the rest of a repair, so that all of it is on-policy: no teacher is asked",
        "scores of steps come with the task (extra columns step_scores and step_lengths); none of ours has a judge of steps",
    ),
    unspent="repairs come on top of what was allocated",
    watch="where in the rollout the first error is, repairs tried and successful, groups without signal before and after",
)


def first_error(step_scores: ArrayLike, threshold: float = 0.5) -> int | None:
    """The first step scored (S,) below the threshold; None where there is none."""
    below = np.flatnonzero(np.asarray(step_scores, float) < threshold)
    return int(below[0]) if len(below) else None


class Prefix(NamedTuple):
    """tokens kept, and their share of the rollout."""

    tokens: int
    share: float


def kept_prefix(step_lengths: ArrayLike, error_step: int | None) -> Prefix:
    """All tokens before the wrong step; the whole rollout where there is none."""
    length = np.asarray(step_lengths, np.int64)
    tokens = int(length[:error_step].sum())
    return Prefix(tokens, tokens / int(length.sum()) if length.sum() else 0.0)


class Repair(NamedTuple):
    """rollout (row of the group), its first wrong step, and the tokens before it."""

    rollout: int
    error_step: int
    prefix_tokens: int


def choose_repairs(
    rewards: ArrayLike,
    step_scores: Sequence[ArrayLike],
    step_lengths: Sequence[ArrayLike],
    max_repairs: int = 1,
    threshold: float = 0.5,
    min_prefix_tokens: int = 1,
) -> list[Repair]:
    """Failing rollouts (reward 0 or less) with a prefix worth keeping, the longest kept share first, ties by row."""
    found: list[tuple[float, Repair]] = []
    for i, reward in enumerate(np.asarray(rewards, float)):
        step = first_error(step_scores[i], threshold) if reward <= 0 else None
        if step is not None:
            kept = kept_prefix(step_lengths[i], step)
            if kept.tokens >= max(min_prefix_tokens, 1):
                found.append((kept.share, Repair(i, step, kept.tokens)))
    found.sort(key=lambda f: -f[0])
    return [repair for _, repair in found[:max_repairs]]


@dataclass(frozen=True)
class Scope(Method):
    """Failing rollouts go on once from before their first wrong step; where that succeeds, the repair takes their place.

    Needs `prm`, which a task offers whose verifier leaves extra step_scores and step_lengths (ragged: of every step its
    score in 0..1 and its tokens). max_repairs a prompt; steps below the threshold are wrong.
    """

    threshold: float = 0.5
    max_repairs: int = 1
    min_prefix_tokens: int = 1
    eps: float = 1e-6

    card = CARD
    effects = frozenset({Effect.COMPARES_CONTEXTS})
    needs: ClassVar[frozenset[str]] = frozenset({"prm", "nodes"})

    def amend(self, state: State, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """Once the step's rollouts are judged, ask for the repairs of each prompt."""
        done, r = draft.plan, draft.rollouts
        if done is None or r is None or any(c.startswith("repair:") for c in done.context):
            return plan
        scores, lengths = r.extra.get("step_scores"), r.extra.get("step_lengths")
        if not isinstance(scores, Ragged) or not isinstance(lengths, Ragged):  # no step of these was judged
            return plan
        asks = []
        plain = np.flatnonzero(r.plain & (r.ask >= 0) & np.isfinite(r.reward))
        for p in np.unique(r.prompt[plain]).tolist():
            mine = plain[r.prompt[plain] == p].tolist()
            found = choose_repairs(
                r.reward[mine], [scores.row(k) for k in mine], [lengths.row(k) for k in mine],
                self.max_repairs, self.threshold, self.min_prefix_tokens,
            )  # fmt: skip
            for repair in found:
                k = mine[repair.rollout]
                why = {"kept_share": repair.prefix_tokens / max(int(r.length[k]), 1)}
                asks.append(Ask(p, 1, Node(f"{r.id[k]}@{repair.prefix_tokens}"), f"repair:{r.id[k]}", why))
        return with_asks(plan, asks)

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Advantages over every group with its successful repairs; failed repairs and replaced parents are dropped."""
        r = draft.rollouts
        repair = np.array([c.startswith("repair:") for c in r.context], bool)
        if not repair.any():
            return advantage
        row_of = {i: k for k, i in enumerate(r.id)}
        won = repair & (r.reward > 0) & advantage.keep
        parent = {k: row_of.get(c[7:]) for k, c in enumerate(r.context) if won[k]}
        gone = np.zeros(len(r), bool)
        gone[[p for p in parent.values() if p is not None]] = True
        advantage = advantage.drop(repair & ~won, "repair_failed").drop(gone, "repaired")
        group = r.group.copy()
        for k, p in parent.items():
            group[k] = r.group[p] if p is not None else group[k]
        touched = advantage.keep & np.isin(group, group[won])
        made = group_advantages(np.where(touched, r.reward, np.nan), group, "grpo", self.eps)
        return advantage.revalued(touched, made.advantages, made.baseline)
