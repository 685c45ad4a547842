"""What a method and a world must offer: verbs, effects, `Method`, `Only`, `World`."""

from workbench.stages.effects import Effect
from workbench.stages.method import PAUSE, Card, Method, State
from workbench.stages.only import Only
from workbench.stages.verbs import DECIDES, REFINES, VERBS
from workbench.stages.world import Branch, LossFn, Prune, World
from workbench.types.checkpoint import Checkpoint

__all__ = [
    "DECIDES",
    "PAUSE",
    "REFINES",
    "VERBS",
    "Branch",
    "Card",
    "Checkpoint",
    "Effect",
    "LossFn",
    "Method",
    "Only",
    "Prune",
    "State",
    "World",
]
