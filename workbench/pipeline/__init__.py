"""Methods put together, and the loop that runs them against a world."""

from workbench.pipeline.loop import advance, run
from workbench.pipeline.pipeline import Pipeline, States
from workbench.pipeline.rounds import NO_PROMPT_SETTINGS, PromptSettings, rehearse

__all__ = ["NO_PROMPT_SETTINGS", "Pipeline", "PromptSettings", "States", "advance", "rehearse", "run"]
