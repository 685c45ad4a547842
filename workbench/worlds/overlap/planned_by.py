"""What a step is planned by, beside the states of its methods: where that changes, steps generated ahead are made anew."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from workbench.pipeline import NO_PROMPT_SETTINGS, Pipeline, PromptSettings
from workbench.types import Budget
from workbench.worlds.overlap import waiting


class PlannedBy(NamedTuple):
    """available (N,) bool: the prompts that are in, None = all. temperature: of the sampler, None where it has none."""

    pipeline: Pipeline
    budget: Budget
    available: np.ndarray | None = None
    prompt_settings: PromptSettings = NO_PROMPT_SETTINGS
    temperature: float | None = None

    def same(self, other: PlannedBy) -> bool:
        """Whether a step planned by the other would be planned alike."""
        mine, theirs = self.available, other.available
        alike = mine is theirs or (mine is not None and theirs is not None and np.array_equal(mine, theirs))
        return (
            alike
            and self.pipeline is other.pipeline
            and self.budget is other.budget
            and self.prompt_settings is other.prompt_settings
            and self.temperature == other.temperature
        )

    def mark(self, staleness: int) -> str:
        """A fingerprint, equal where another process plans alike."""
        free = np.empty(0, bool) if self.available is None else self.available
        pinned, boost = self.prompt_settings
        boost = np.empty(0) if boost is None else boost
        return waiting.mark(self.pipeline, self.budget, free, pinned, boost, self.temperature, staleness)
