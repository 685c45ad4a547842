"""Majority vote labels: what a group of answers says where nobody knows the right one (TTRL, 2504.16084)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from workbench.types import Rollouts


class Vote(NamedTuple):
    """label = the most frequent answer, None where all are null; ratio of all rollouts that gave it; rewards (n,)."""

    label: Hashable | None
    ratio: float
    rewards: np.ndarray


def majority_label(answers: Sequence[Hashable | None]) -> Vote:
    """The answer that most rollouts gave, and 1 for those that agree with it; None is no answer, a tie goes to the first seen."""
    counts = Counter(a for a in answers if a is not None)
    if not counts:
        return Vote(None, 0.0, np.zeros(len(answers)))
    label, n = counts.most_common(1)[0]
    return Vote(label, n / len(answers), np.array([float(a == label) for a in answers]))


def voted(rollouts: Rollouts) -> np.ndarray:
    """(R,) rewards where nobody verifies: 1 for agreeing with the majority of the prompt, null where nobody answered.

    Only plain training rollouts vote; those that no verifier was to see (pruned, carried) or that failed keep theirs."""
    reward = rollouts.reward.copy()
    finished = ~np.isin(rollouts.finish, ("pruned", "carried"))
    votes = (rollouts.purpose == "train") & (rollouts.context == "") & (rollouts.failure == "") & finished
    for p in np.unique(rollouts.prompt[votes]):
        mine = np.flatnonzero(votes & (rollouts.prompt == p))
        vote = majority_label([None if a is None else str(a) for a in rollouts.answer[mine]])
        reward[mine] = np.nan if vote.label is None else vote.rewards
    return reward
