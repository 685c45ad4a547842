"""Effects: what a method does to the methods beside it. `pipeline.rules` says which go together, and in which order."""

from __future__ import annotations

from enum import Enum, auto


class Effect(Enum):
    """One thing that a method does to others; `Method.effects` lists those of a method."""

    REPLACES_ADVANTAGES = auto()
    """Its estimate ignores the advantages that stand before it, as Grpo's does."""

    COMPARES_CONTEXTS = auto()
    """Its estimate compares rollouts of a prompt that began differently and stand in different groups, as Scope's does."""

    ADDS_HINTS = auto()
    """Its amend starts rollouts of a prompt behind texts of its own, as SageHint's does."""

    DEFERS_ROLLOUTS = auto()
    """Its amend takes a share of each plain ask, to begin it elsewhere or in the next round (`Plan.defer`), as Trace's does."""

    LEAVES_ROOTS = auto()
    """Its amend leaves few rollouts of each plain ask, sometimes one; the rest of the group grows from them, as Latr's does."""

    CARRIES_GROUPS = auto()
    """Its amend takes up groups again, as plain rollouts, that the step before did not finish, as April's does."""

    PLANS_AFTER_STEP = auto()
    """What it asks for is known only once the step before is finished, as April's groups are; steps cannot overlap."""
