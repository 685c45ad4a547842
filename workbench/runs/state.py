"""State of a run: what changes from step to step, and what commands may change between two steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.pipeline import NO_PROMPT_SETTINGS, Pipeline, PromptSettings, States, rehearse
from workbench.stages import Overlapping
from workbench.types import Budget, Plan


@dataclass
class RunState:
    """step: training steps made. pipeline, budget, available (N,) bool, prompt_settings and target, the step after which
    the run is done, are those of the next step. states: of the pipeline's methods, after `step` steps."""

    world: Overlapping
    pipeline: Pipeline
    budget: Budget
    available: np.ndarray
    states: States
    target: int
    seed: int = 0
    prompt_settings: PromptSettings = NO_PROMPT_SETTINGS
    step: int = 0

    def row(self, prompt: object) -> int | None:
        """The row of a prompt in the pool by its id; None where the run has no such prompt."""
        found = np.flatnonzero(self.world.pool.ids == prompt)
        return int(found[0]) if len(found) else None

    def settings_of(self, row: int) -> dict[str, object]:
        """What is set for one prompt: pinned, available, and the factor of its boost."""
        pinned, boost = self.prompt_settings
        factor = 1.0 if boost is None else float(boost[row])
        return {"pinned": row in pinned, "available": bool(self.available[row]), "factor": factor}

    def with_prompt(self, row: int, to: Mapping[str, Any]) -> tuple[PromptSettings, np.ndarray]:
        """Prompt settings and available prompts with those of one prompt replaced; pinned prompts stay in the order in which
        they were pinned."""
        pinned = [r for r in self.prompt_settings.pinned.tolist() if r != row or to["pinned"]]
        pinned += [row] if to["pinned"] and row not in pinned else []
        boost = self.prompt_settings.boost
        boost = np.ones(len(self.world.pool)) if boost is None else boost.copy()
        boost[row] = to["factor"]
        available = self.available.copy()
        available[row] = to["available"]
        return PromptSettings(np.array(pinned, np.int64), boost if (boost != 1).any() else None), available

    def rehearse(
        self,
        *,
        budget: Budget | None = None,
        available: np.ndarray | None = None,
        prompt_settings: PromptSettings | None = None,
    ) -> Plan:
        """The next step as the pipeline would plan it, with some settings replaced. What a method objects to is raised as
        ValueError, the reason of a refusal."""
        try:
            return rehearse(
                self.pipeline,
                self.states,
                budget or self.budget,
                step=self.step + 1,
                seed=self.seed,
                available=self.available if available is None else available,
                prompt_settings=prompt_settings or self.prompt_settings,
            )
        except Exception as error:
            raise ValueError(f"the pipeline {self.pipeline.text} cannot plan such a step: {error}") from error
