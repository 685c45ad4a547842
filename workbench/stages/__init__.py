"""What a method and a world must offer: verbs, effects, `Method`, `Only`, `World`, `BaseWorld`."""

from workbench.stages.effects import Effect
from workbench.stages.method import PAUSE, Card, Method, State
from workbench.stages.only import Only
from workbench.stages.verbs import DECIDES, REFINES, VERBS
from workbench.stages.world import BaseWorld, Branch, HeldSampler, LossFn, Overlapping, Prune, Trainable, World
from workbench.types.checkpoint import Checkpoint

__all__ = [
    "DECIDES",
    "PAUSE",
    "REFINES",
    "VERBS",
    "BaseWorld",
    "Branch",
    "Card",
    "Checkpoint",
    "Effect",
    "HeldSampler",
    "LossFn",
    "Method",
    "Only",
    "Overlapping",
    "Prune",
    "State",
    "Trainable",
    "World",
]
