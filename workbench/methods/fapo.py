"""FAPO: right answers by wrong steps get a smaller reward, which turns against them as the policy gets better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.stages import Card, Method, State
from workbench.types import Rollouts

CARD = Card(
    slug="fapo",
    title="FAPO: flawed-aware policy optimization for efficient and reliable reasoning",
    arxiv="2510.22543",
    code="https://github.com/yyDing1/FAPO",
    source="code",
    deviations=(
        "verdicts are read from the extra column 'flawed' (1, 0, NaN = not judged) or from a named part of the reward; no "
        "world has a judge yet, and without verdicts nothing is flawed",
        "the rule's reward is replaced by -1, 1 - lam or 1 from `correct`; it stays as the part 'rule'",
    ),
    watch="sound, flawed and wrong shares, the sign of flawed advantages against difficulty",
)


class FapoRewards(NamedTuple):
    """rewards (n,), NaN where correct is null; judge_called (n,) bool, on correct rollouts only."""

    rewards: np.ndarray
    judge_called: np.ndarray


def fapo_rewards(correct: ArrayLike, flawed: ArrayLike, lam: float = 1.0) -> FapoRewards:
    """-1 wrong, 1 right, 1 - lam right but flawed. correct, flawed (n,), None or NaN = null; not judged is not flawed."""
    correct, flawed = np.asarray(correct, float), np.asarray(flawed, float)
    right = correct > 0
    reward = np.where(right, np.where(flawed > 0, 1 - lam, 1.0), -1.0)
    return FapoRewards(np.where(np.isfinite(correct), reward, np.nan), right)


@dataclass(frozen=True)
class Fapo(Method):
    """Rewards of -1, 1 - lam and 1 for wrong, flawed and sound rollouts, before any estimator.

    part: a named part of the reward that judges the way to the answer; a correct rollout below 0.5 of it is flawed."""

    lam: float = 1.0
    part: str | None = None

    card = CARD

    def reward(self, state: State, rollouts: Rollouts) -> Rollouts:
        """The new reward; the rule's own and the verdict (NaN = not judged) become named parts."""
        none = np.full(len(rollouts), np.nan)
        flawed = np.asarray(rollouts.extra.get("flawed", none), float)
        if self.part is not None and self.part in rollouts.rewards:
            score = np.asarray(rollouts.rewards[self.part], float)
            flawed = np.where(np.isfinite(score), (score < 0.5).astype(float), np.nan)
        made = fapo_rewards(rollouts.correct, flawed, self.lam)
        reward = np.where(np.isfinite(rollouts.reward), made.rewards, np.nan)
        verdict = np.where(made.judge_called, flawed, np.nan)
        parts = {**rollouts.rewards, "rule": rollouts.reward, "flawed": verdict}
        return rollouts.with_(reward=reward, rewards=parts)
