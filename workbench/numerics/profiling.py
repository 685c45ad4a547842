"""Difficulty profiling: rollouts that only say how hard a prompt is, asked for in the loop and paid from its budget."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from workbench.numerics.apportion import apportion
from workbench.types import Draft, Plan, Rollouts


class Profile(NamedTuple):
    """(N,) rollouts of a first look by prompt: made, scored or not; tried, those scored; solved, those right."""

    made: np.ndarray
    tried: np.ndarray
    solved: np.ndarray

    @classmethod
    def none(cls, n_prompts: int) -> Profile:
        """No prompt was looked at."""
        return cls(*np.zeros((3, n_prompts)))

    def add(self, rollouts: Rollouts, purpose: str) -> Profile:
        """With the plain rollouts of that purpose counted. Null rewards count as made, so that a verifier that always
        fails on a prompt does not keep it owed for ever."""
        n = len(self.made)
        look = (rollouts.purpose == purpose) & (rollouts.context == "")
        scored = look & np.isfinite(rollouts.correct)
        return Profile(
            self.made + np.bincount(rollouts.prompt[look], minlength=n),
            self.tried + np.bincount(rollouts.prompt[scored], minlength=n),
            self.solved + np.bincount(rollouts.prompt[scored], rollouts.correct[scored], minlength=n),
        )

    def owed(self, n_rollouts: int) -> np.ndarray:
        """(N,) int64 rollouts missing for n_rollouts of each prompt."""
        return np.maximum(n_rollouts - self.made, 0).astype(np.int64)


def profile_plan(fresh: np.ndarray, owed: np.ndarray, share: int, purpose: str) -> Plan:
    """What fresh prompts (K,) are owed (K,), as far as `share` rollouts go, with that purpose."""
    n = apportion(owed, min(share, int(owed.sum())), cap=owed)
    return Plan(fresh, n, purpose=np.full(len(fresh), purpose, dtype=object))


def affordable(draft: Draft, waiting: int, price: int) -> int:
    """Further prompts that a step can take in: at most those waiting, what the unspent budget pays for at `price`
    rollouts each, and the prompts of a round."""
    asked = 0 if draft.plan is None else draft.plan.n_rollouts  # profiling asks are probes, and a part of the budget
    return max(min(waiting, (draft.budget.rollouts - asked) // price, draft.budget.prompts), 0)
