"""What a world must offer, and what it is given to decide with while it generates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from workbench.stages.method import PAUSE
from workbench.types import Advantage, Cut, Fork, Frontier, Loss, Plan, Pool, Rollouts
from workbench.types.checkpoint import Checkpoint, Pauses


@dataclass(frozen=True)
class Branch:
    """What all methods that branch make of a frontier, and where rollouts pause for it."""

    act: Callable[[Frontier], Fork]
    checkpoint: Checkpoint | Pauses = PAUSE

    def __call__(self, frontier: Frontier) -> Fork:
        """Decide."""
        return self.act(frontier)


@dataclass(frozen=True)
class Prune:
    """What all methods that prune make of a frontier, and where rollouts pause for it."""

    act: Callable[[Frontier], Cut]
    checkpoint: Checkpoint | Pauses = PAUSE

    def __call__(self, frontier: Frontier) -> Cut:
        """Decide."""
        return self.act(frontier)


LossFn: TypeAlias = Callable[..., Loss]


class World(Protocol):
    """Where rollouts come from: a simulation, a recorded run, a live model."""

    pool: Pool
    offers: frozenset[str]
    """What methods may name in `needs`."""

    @property
    def version(self) -> int:
        """Updates the current policy has seen."""
        ...

    def sample(self, plan: Plan, branch: Branch | None = None, prune: Prune | None = None) -> Rollouts:
        """Generate and verify what the plan asks for; one row per rollout, ids as `Rollouts.of_plan` gives them."""
        ...

    def score(self, rollouts: Rollouts, needs: frozenset[str]) -> Rollouts:
        """Add the columns named in needs (proximal logprobs, embeddings, ...) before estimate."""
        ...

    def update(
        self, rollouts: Rollouts, advantage: Advantage, loss: LossFn, penalties: list[LossFn]
    ) -> Mapping[str, float | np.ndarray]:
        """One optimiser step on the kept rows; scalars, and (R,) columns where they are per rollout."""
        ...
