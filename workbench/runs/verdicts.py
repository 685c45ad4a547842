"""The end of a run whose verifier says nothing: every reward is null, and training on would learn nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.types import Rollouts

ROLLOUTS, STEPS, TEXTS = 8, 3, 3
"""Failed rollouts without a verdict before that end a run; steps without one that end it later; texts that are quoted."""


class VerifierFailed(RuntimeError):
    """No completion got a verdict: neither in the beginning nor, later, in three steps one after the other."""

    exit_code = 3


class VerdictWatch:
    """Whether the verifier of a run works at all. name: what it is called, asked where it does not."""

    def __init__(self, name: Callable[[], object]) -> None:
        self._name = name
        self._worked = False
        self._rollouts = self._steps = 0

    def see(self, rollouts: Rollouts) -> None:
        """The verdicts of a step or an evaluation. Raises VerifierFailed where there have been none for too long."""
        if np.isfinite(rollouts.correct).any():
            self._worked, self._rollouts, self._steps = True, 0, 0
            return
        failed = np.flatnonzero([str(kind).startswith("verifier_") for kind in rollouts.failure])
        if not len(failed):
            return
        self._rollouts += len(failed)
        self._steps += 1
        if self._steps < STEPS and (self._worked or self._rollouts < ROLLOUTS):
            return
        told = rollouts.extra.get("failure_text", rollouts.failure)
        why = str(told[failed[-1]])
        texts = list(dict.fromkeys(str(rollouts.text[i]) for i in failed))[:TEXTS]
        denied = "PermissionError" in why
        raise VerifierFailed(
            f"the verifier {self._name()} gave no verdict on any of {self._rollouts} completions, so there is nothing to learn "
            f"from; last: {rollouts.failure[failed[-1]]}: {why}. Completions: {'; '.join(repr(t[:200]) for t in texts)}. "
            + (
                "The sandbox keeps verifiers from network and files (docs/security.md): read what it needs when its module is "
                "imported, or give sandbox=False (task_options)."
                if denied
                else "Call the verifier yourself with one of them."
            )
        )
