"""A probe set: now and then, many rollouts of the same few prompts by one policy, to hold other measurements against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.stages import Card, Method
from workbench.types import Draft, Plan, Pool

CARD = Card(
    slug="probe_set",
    title="A probe set of prompts, sampled often and never trained on",
    source="ours",
    watch="its mean reward over steps; its rollouts are spent beside the budget of the step",
)


@dataclass(frozen=True)
class ProbeSet(Method):
    """Rollouts with purpose "probe" for the same prompts in the first step and every few steps after it.

    prompts stand at equal distances in the pool; rollouts: of each, 64 make a reference for sign flips. They come on top
    of what the step's budget allows, and reach neither the loss nor any belief.
    """

    prompts: int = 16
    rollouts: int = 64
    every: int = 10

    card = CARD

    def __post_init__(self) -> None:
        if min(self.prompts, self.rollouts, self.every) < 1:
            raise ValueError(f"{self.prompts} prompts, {self.rollouts} rollouts every {self.every} steps probe nothing")

    def init(self, pool: Pool) -> np.ndarray:
        """(P,) int64 rows of the probe set."""
        n = min(self.prompts, len(pool))
        return np.arange(n) * len(pool) // n

    def amend(self, state: np.ndarray, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """Add the probes to the first round of the steps that have some."""
        if draft.round or (draft.step - 1) % self.every:
            return plan
        n = len(state)
        purpose = np.full(n, "probe", dtype=object)
        probes = Plan(state, np.full(n, self.rollouts), purpose=purpose)
        return Plan.concat([plan, probes])
