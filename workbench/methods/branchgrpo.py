"""BranchGRPO: values of a rollout tree's nodes, compared with those of the same depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.forks import credited
from workbench.stages import Card, Checkpoint, Effect, Method, State
from workbench.types import Advantage, Draft, Fork, Frontier, Plan

CARD = Card(
    slug="branchgrpo",
    title="BranchGRPO: structured branching",
    arxiv="2509.06040",
    code="https://github.com/Fredreic1849/BranchGRPO",
    source="C*",
    deviations=(
        "written for diffusion; a fork falls between token segments here, each child sampled on its own",
        "no depth window and no width of what is trained: every segment is trained, once",
        "rollouts that end before a fork leave the tree with fewer leaves",
    ),
    watch="variance between siblings by depth, tokens generated against the flat equivalent",
)

EPS = 1e-8
SETTLED = 1e-6
"""Std under which the nodes of a depth count as alike."""


class NodeValues(NamedTuple):
    """value (N,), NaN where no leaf below has a reward; n_leaves (N,) int64 rewarded leaves below."""

    value: np.ndarray
    n_leaves: np.ndarray


def _parents(parent: Sequence[int | None]) -> np.ndarray:
    """(N,) int64 with -1 for the root; raises ValueError where parents do not stand first."""
    p = np.array([-1 if x is None else x for x in parent], np.int64)
    if (p >= np.arange(len(p))).any() or (len(p) and p[0] != -1):
        raise ValueError("a tree starts with its root, and every parent stands before its children")
    return p


def node_values(
    parent: Sequence[int | None],
    leaf_reward: ArrayLike,
    edge_logprob: ArrayLike,
    fusion: Literal["uniform", "prob"] = "uniform",
    temperature: float = 1.0,
) -> NodeValues:
    """Values bottom up: the mean over leaf descendants, or children weighed by softmax(temperature x edge_logprob).

    leaf_reward (N,) None inside; edge_logprob (N,) nats of the segment that leads to the node."""
    p, reward = _parents(parent), np.asarray(leaf_reward, float)
    logprob = np.asarray(edge_logprob, float)
    leaves = np.isfinite(reward).astype(np.int64)
    total = np.where(leaves > 0, np.nan_to_num(reward), 0.0)
    for i in range(len(p) - 1, 0, -1):
        leaves[p[i]] += leaves[i]
        total[p[i]] += total[i]
    value = np.where(leaves > 0, total / np.maximum(leaves, 1), np.nan)
    if fusion == "prob":
        for i in range(len(p) - 1, -1, -1):
            children = np.flatnonzero((p == i) & (leaves > 0))
            if len(children):
                z = temperature * logprob[children]
                weight = np.exp(z - z.max())
                value[i] = float((weight * value[children]).sum() / weight.sum())
    elif fusion != "uniform":
        raise ValueError(f"fusion must be uniform or prob, not {fusion!r}")
    return NodeValues(value, leaves)


class DepthAdvantages(NamedTuple):
    """depth (N,) int64; advantage (N,), 0 for a lone node and for depths whose values are alike."""

    depth: np.ndarray
    advantage: np.ndarray


def depth_advantages(parent: Sequence[int | None], value: ArrayLike, clip: float | None = None) -> DepthAdvantages:
    """(V - mean) / (std + 1e-8) over all nodes of a depth, one degree of freedom less; nodes without a value get 0."""
    p, v = _parents(parent), np.asarray(value, float)
    depth = np.zeros(len(p), np.int64)
    for i in range(1, len(p)):
        depth[i] = depth[p[i]] + 1
    advantage = np.zeros(len(p))
    for d in range(int(depth.max(initial=-1)) + 1):
        here = np.flatnonzero((depth == d) & np.isfinite(v))
        if len(here) > 1 and (std := v[here].std(ddof=1)) >= SETTLED:
            advantage[here] = (v[here] - v[here].mean()) / (std + EPS)
    return DepthAdvantages(depth, advantage if clip is None else np.clip(advantage, -clip, clip))


@dataclass(frozen=True)
class Branchgrpo(Method):
    """Every rollout forks in `width` at tokens every, 2 every, ..., `forks` times; credit depth by depth.

    A group of n rollouts is grown from n / width^forks roots. Stands behind an estimator whose rows it replaces where
    rollouts forked: Pipeline(Grpo(), Branchgrpo()).
    """

    forks: int = 2
    width: int = 2
    every: int = 4
    fusion: Literal["uniform", "prob"] = "uniform"
    temperature: float = 1.0
    clip: float = 5.0

    card = CARD
    effects = frozenset({Effect.LEAVES_ROOTS})

    def __post_init__(self) -> None:
        if self.forks < 1 or self.width < 2 or self.every < 1:
            raise ValueError(f"{self}: a tree forks once at least, in two at least, after one token at least")

    @property
    def checkpoint(self) -> Checkpoint:
        """Where a fork falls."""
        return Checkpoint(every=0, at=tuple(self.every * k for k in range(1, self.forks + 1)))

    def amend(self, state: State, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """Fewer roots: their forks make up the rest of the group."""
        roots = np.maximum(plan.n // self.width**self.forks, 1)
        return plan.with_n(np.where(plan.from_prompt, roots, plan.n), plan.n_leaves)

    def branch(self, state: State, frontier: Frontier, rng: np.random.Generator) -> Fork:
        """Fork every branch that is as long as a fork asks."""
        none = np.full(len(frontier), -1, np.int64)
        return Fork(np.where(frontier.due, self.width, 1).astype(np.int64), none, none)

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Every token of a node gets the node's advantage among those of its depth; shared tokens once, in the first row."""

        def credit(above: list[int | None], reward: np.ndarray, logprob: np.ndarray) -> np.ndarray:
            made = node_values(above, reward, logprob, self.fusion, self.temperature)
            return depth_advantages(above, made.value, self.clip).advantage

        return credited(advantage, draft.rollouts, credit)
