"""A method for tests: every second rollout is cut off after three tokens, and goes on in the next step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from workbench.stages import Card, Checkpoint, Method
from workbench.types import Cut, Frontier, Plan, Resume, Step


@dataclass(frozen=True)
class Carry(Method):
    """State: ((rollout id, prompt), ...) under way, in the order in which they were cut off."""

    after: int = 3
    card: ClassVar[Card] = Card("carry", "cut off and resumed, for tests")
    needs: ClassVar[frozenset[str]] = frozenset({"resume"})

    @property
    def checkpoint(self) -> Checkpoint:
        """Where it cuts."""
        return Checkpoint(every=self.after)

    def init(self, pool) -> tuple:
        """Nothing is under way."""
        return ()

    def observe(self, state: tuple, step: Step) -> tuple:
        """What the step carried out; all that was under way has been resumed by it."""
        out = step.fate == "carried"
        return tuple(zip(step.rollouts.id[out].tolist(), step.rollouts.prompt[out].tolist(), strict=True))

    def amend(self, state: tuple, plan: Plan, draft, rng) -> Plan:
        """One more ask for each rollout under way, in the first round."""
        if not state or draft.round:
            return plan
        start = np.empty(len(state), dtype=object)
        start[:] = [Resume(name) for name, _ in state]
        more = Plan(np.array([p for _, p in state]), np.ones(len(state), np.int64), start=start, step=plan.step)
        return replace(Plan.concat([plan, more]), notes=plan.notes)

    def prune(self, state: tuple, frontier: Frontier, rng) -> Cut:
        """Every second branch, at its first checkpoint."""
        out = (frontier.n_tokens == self.after) & (frontier.branch % 2 == 1)
        b = len(frontier)
        reason, finish = np.where(out, "long", "").astype(object), np.full(b, "carried", dtype=object)
        return Cut((~out).astype(np.int64), reason, np.ones(b), finish=finish)
