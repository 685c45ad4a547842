"""The nouns of a training step: plain frozen records over numpy columns.

One row per rollout, in memory, in the store and in the pure functions. Ragged columns are
(values, offsets), never lists of lists. Nothing here knows a model, an engine or a store.

All are imported from here. In the order of a step: `pool`, what it asks for (`plan`), where that pauses (`frontier`), what
comes back (`rollouts`), what is made of it (`step`, `loss`).
"""

from workbench.types.columns import Ragged
from workbench.types.frontier import Cut, Fork, Frontier, Paused
from workbench.types.loss import Batch, Loss
from workbench.types.plan import PURPOSES, Budget, Node, Picked, Plan, Resume, Text
from workbench.types.pool import Pool
from workbench.types.rollouts import Rollouts
from workbench.types.step import FATES, Advantage, Draft, Event, Step

__all__ = [
    "FATES",
    "PURPOSES",
    "Advantage",
    "Batch",
    "Budget",
    "Cut",
    "Draft",
    "Event",
    "Fork",
    "Frontier",
    "Loss",
    "Node",
    "Paused",
    "Picked",
    "Plan",
    "Pool",
    "Ragged",
    "Resume",
    "Rollouts",
    "Step",
    "Text",
]
