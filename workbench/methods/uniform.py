"""Every prompt in turn, every prompt alike: the plain loop that all methods are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from workbench.numerics.apportion import apportion
from workbench.stages import Card, Method
from workbench.types import Draft, Picked, Plan, Pool, Step

CARD = Card(
    slug="uniform",
    title="Shuffled epochs, equal groups",
    source="ours",
    watch="the share of groups whose rewards are all alike",
)


class Visits(NamedTuple):
    """How often each prompt was chosen: (N,) int64."""

    count: np.ndarray


def least_visited(count: np.ndarray, draws: np.ndarray, k: int) -> np.ndarray:
    """The k rows chosen least often, ties by the smallest draw: shuffled epochs without a cursor.

    count, draws (M,); returns (k,) positions. Each pass over the pool is a fresh permutation, and the rule
    needs no loader position to be saved."""
    return np.lexsort((draws, count))[:k]


@dataclass(frozen=True)
class Uniform(Method):
    """Shuffled epochs over the pool and the same number of rollouts for every prompt."""

    card = CARD

    def init(self, pool: Pool) -> Visits:
        """No prompt was chosen yet."""
        return Visits(np.zeros(len(pool), np.int64))

    def observe(self, state: Visits, step: Step) -> Visits:
        """Count the prompts of the step."""
        count = state.count.copy()
        count[step.prompts] += 1
        return Visits(count)

    def select(self, state: Visits, draft: Draft, rng: np.random.Generator) -> Picked:
        """The candidates chosen least often, in random order; count = how often."""
        rows = draft.candidates()
        draws = rng.random(len(state.count))[rows]
        count = state.count[rows]
        return Picked.among(rows, least_visited(count, draws, draft.wanted), count=count)

    def allocate(self, state: Visits, draft: Draft, rng: np.random.Generator) -> Plan:
        """The budget in equal parts over the fresh prompts; a refill costs the same per prompt."""
        share = round(draft.budget.rollouts * len(draft.fresh) / draft.budget.prompts)
        n = apportion(np.ones(len(draft.fresh)), share, floor=0) if len(draft.fresh) else draft.fresh
        return Plan(draft.fresh, n)
