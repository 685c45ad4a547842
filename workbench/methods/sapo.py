"""SAPO: nodes share decoded rollouts, and each trains on a mix of its own groups and those of the swarm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from workbench.methods.grpo import Grpo
from workbench.numerics.groups import describe
from workbench.numerics.picks import smallest
from workbench.stages import Card, Effect, Method
from workbench.types import Advantage, Batch, Draft, Loss, Pool, Rollouts, Step

CARD = Card(
    slug="sapo",
    title="Sharing is caring: efficient LM post-training with collective RL experience sharing (SAPO)",
    arxiv="2509.08721",
    code="https://github.com/gensyn-ai/rl-swarm",
    source="code",
    deviations=(
        "not to be confused with soft adaptive policy optimization",
        "shares of a step (external=0.5) in the place of I = J = 4 groups of 8",
        "groups of other nodes are rows that no ask made, of context 'swarm:<node>', as a world delivers them, verified and "
        "encoded here; no world does yet, and alone in the network the method is GRPO with all of its own groups",
        "missing external groups are filled with own ones; the first own groups in order are the local part",
        "ranked=True ranks the groups that teach something; the released variant ranks all, and applies an index of arrival to "
        "the sorted list",
    ),
    watch="reward against the external share, its rolling spread, own log-probability of external text",
)


class Composition(NamedTuple):
    """Numbers of groups: local (filled ones included), external, filled_from_local, shortfall;
    external_inclusion_probability of an eligible group."""

    local: int
    external: int
    filled_from_local: int
    shortfall: int
    external_inclusion_probability: float


def compose(n_local: int, n_eligible: int, I: int, J: int) -> Composition:  # noqa: E741  the paper's name
    """I own and J external groups; missing external ones are filled with unused own ones, the rest is short."""
    external = min(J, n_eligible)
    local = min(I, n_local)
    filled = min(J - external, n_local - local)
    short = I + J - local - filled - external
    return Composition(local + filled, external, filled, short, external / n_eligible if n_eligible else 0.0)


class Counters(NamedTuple):
    """Groups produced here and consumed from others, so far."""

    produced: int
    consumed: int


@dataclass(frozen=True)
class Sapo(Method):
    """Up to `external` of a step's groups from other nodes, drawn at random among those that teach something.

    ranked: the best by total reward in the place of random ones. max_age: steps an external group may be old."""

    external: float = 0.5
    ranked: bool = False
    max_age: int | None = None
    eps: float = 1e-8
    clip_low: float = 0.2
    clip_high: float = 0.28

    card = CARD
    effects = frozenset({Effect.REPLACES_ADVANTAGES})

    def __post_init__(self) -> None:
        if not 0 <= self.external <= 1:
            raise ValueError(f"external={self.external}: the share of groups from other nodes lies in 0..1")

    def init(self, pool: Pool) -> Counters:
        """Nothing was shared."""
        return Counters(0, 0)

    def observe(self, state: Counters, step: Step) -> Counters:
        """Count the groups of the step."""
        foreign = step.rollouts.ask < 0
        n = [len(np.unique(step.rollouts.group[rows])) for rows in (~foreign, foreign)]
        return Counters(state.produced + n[0], state.consumed + n[1])

    def replay(self, state: Counters, rollouts: Rollouts, draft: Draft, rng: np.random.Generator) -> Rollouts:
        """Of the foreign groups that the world delivered, those that this node takes."""
        foreign = _foreign(rollouts)
        if not foreign.any():
            return rollouts
        n_groups = int(rollouts.group.max()) + 1
        uniform = rng.random(n_groups)
        stats = describe(rollouts.reward, rollouts.group, n_groups)
        theirs = np.zeros(n_groups, bool)
        theirs[rollouts.group[foreign]] = True
        age = np.zeros(n_groups)
        age[rollouts.group] = draft.step - rollouts.step
        fresh = np.full(n_groups, True) if self.max_age is None else age <= self.max_age
        size = np.bincount(rollouts.group, minlength=n_groups)
        own = np.unique(rollouts.group[~foreign])
        right = np.isin(size, size[own])
        eligible = np.flatnonzero(theirs & fresh & right & ~stats.settled)
        total = -(stats.mean * stats.n)[eligible] if self.ranked else uniform[eligible]
        chosen = eligible[smallest(total, compose(len(own), len(eligible), *self._parts(len(own))).external)]
        return rollouts.take(~foreign | np.isin(rollouts.group, chosen))

    def admit(self, state: Counters, rollouts: Rollouts, draft: Draft) -> np.ndarray:
        """Own groups in order, as many as the external ones leave room for."""
        foreign = _foreign(rollouts)
        own, theirs = np.unique(rollouts.group[~foreign]), np.unique(rollouts.group[foreign])
        mix = compose(len(own), len(theirs), *self._parts(len(own)))
        return foreign | np.isin(rollouts.group, own[: mix.local])

    def _parts(self, n_own: int) -> tuple[int, int]:
        """(I, J): own and external groups of a step of n_own groups."""
        j = round(self.external * n_own)
        return n_own - j, j

    def estimate(self, state: Counters, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Advantages of the kept rollouts in their groups, by the node's own verifier."""
        return Grpo(eps=self.eps).estimate((), advantage, draft, rng)

    def loss(self, state: Counters, batch: Batch) -> Loss:
        """Clipped around the own policy before the update, mean over tokens, no KL."""
        clipped = Grpo(eps_low=self.clip_low, eps_high=self.clip_high, reduction="token_mean", truncation=None)
        return clipped.loss((), batch)


def _foreign(rollouts: Rollouts) -> np.ndarray:
    """(R,) bool rows that another node generated."""
    return (rollouts.ask < 0) & np.char.startswith(rollouts.context.astype(str), "swarm:")
