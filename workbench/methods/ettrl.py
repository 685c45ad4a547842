"""ETTRL: votes in the place of rewards, cast by rollouts that fork where the base rollouts were least certain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.hints import Ask, with_asks
from workbench.numerics.picks import largest
from workbench.numerics.votes import voted
from workbench.stages import Card, Effect, Method, State
from workbench.types import Advantage, Draft, Node, Plan, Ragged, Rollouts

CARD = Card(
    slug="ettrl",
    title="ETTRL: balancing exploration and exploitation in test-time RL by entropy",
    arxiv="2508.11356",
    source="notes",
    deviations=(
        "a group of n rollouts is n / (1 + forks x branches) base rollouts and their forks; answers too short to fork give "
        "fewer",
        "all leaves train; the paper takes a subset it does not name",
        "GRPO with one degree of freedom less and eps 1e-6 under the reshaping",
        "the reshaping of the paper may turn the sign of an advantage (entropy above twice the group's mean); floor=True "
        "stops at 0",
        "votes replace the verifier's reward only with labels=vote; success stays what the verifier says, so that label "
        "accuracy can be drawn",
    ),
    unspent="answers too short to fork leave a part of the group unasked",
    watch="vote ratio against true accuracy, tokens of trees against flat groups, advantages whose sign the scale turned",
)


def fork_positions(token_entropy: ArrayLike, n_forks: int, min_pos: int = 0) -> np.ndarray:
    """The n_forks positions of largest entropy (T,) at or after min_pos, ascending; ties go to the earlier one."""
    entropy = np.asarray(token_entropy, float)[min_pos:]
    return min_pos + np.sort(largest(entropy, min(n_forks, len(entropy)))).astype(np.int64)


def _scale(entropy: np.ndarray) -> np.ndarray:
    mean = entropy.mean() if len(entropy) else 0.0
    return np.ones(len(entropy)) if mean == 0 else 1 + (mean - entropy) / mean


@dataclass(frozen=True)
class Ettrl(Method):
    """Majority votes as rewards, and advantages reshaped by how certain each answer is.

    forks positions of largest entropy in every base rollout get `branches` continuations each; 0 forks is flat.
    labels: vote replaces the reward of training rollouts by agreement with their prompt's majority; verifier keeps it.
    reshape: scale (Adv-Res) or clip (Adv-Clip, beta). Stands behind an estimator: Pipeline(Grpo(), Ettrl()).
    """

    forks: int = 2
    branches: int = 2
    min_pos: int = 1
    labels: Literal["vote", "verifier"] = "vote"
    reshape: Literal["scale", "clip"] = "scale"
    beta: float = 2.0
    floor: bool = False

    card = CARD
    needs: ClassVar[frozenset[str]] = frozenset({"nodes", "token_entropy"})

    @property
    def effects(self) -> frozenset[Effect]:  # type: ignore[override]
        """Where rollouts fork, most of a group waits for its base rollouts."""
        return frozenset({Effect.DEFERS_ROLLOUTS, Effect.LEAVES_ROOTS} if self.forks > 0 else ())

    def amend(self, state: State, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """Base rollouts first; once they are there, continuations from inside them, at their most uncertain tokens."""
        new = self.forks * self.branches
        rows = np.flatnonzero(plan.is_plain & (plan.n > 1))
        base = np.maximum(plan.n[rows] // (1 + new), 1) if new else plan.n[rows]
        plan = plan.defer(self.name, rows, plan.n[rows] - base)
        asks, later = draft.deferred(self.name)
        done, r = draft.plan, draft.rollouts
        if not len(asks) or r.entropy is None:
            return plan
        more = []
        for a, left in zip(asks.tolist(), later.tolist(), strict=True):
            for k in np.flatnonzero((r.ask == a) & (r.length > self.min_pos)):
                for at in fork_positions(r.entropy.row(int(k)), self.forks, self.min_pos):
                    n = min(self.branches, left)
                    if n > 0 and at > 0:
                        more.append(Ask(int(done.prompt[a]), n, Node(f"{r.id[k]}@{at}")))
                        left -= n
        return with_asks(plan, more)

    def reward(self, state: State, rollouts: Rollouts) -> Rollouts:
        """1 for agreeing with the majority of the prompt, null where nobody answered."""
        return rollouts if self.labels == "verifier" else rollouts.with_(reward=voted(rollouts))

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Reshape the advantages that stand before it, group by group."""
        rollouts = draft.rollouts
        if self.reshape == "clip":
            tokens = advantage.tokens
            if tokens is not None:
                tokens = Ragged(np.clip(tokens.values, -self.beta, self.beta), tokens.offsets)
            return replace(advantage, value=np.clip(advantage.value, -self.beta, self.beta), tokens=tokens)
        if rollouts.entropy is None:
            raise ValueError("ettrl scales by the entropy of the answers, and these rollouts have none recorded")
        factor, entropy = np.ones(len(rollouts)), np.nan_to_num(rollouts.entropy.mean())
        for g in np.unique(rollouts.group[advantage.keep]):
            mine = np.flatnonzero(advantage.keep & (rollouts.group == g))
            scale = _scale(entropy[mine])
            factor[mine] = np.maximum(scale, 0) if self.floor else scale
        return advantage.scaled(factor)
