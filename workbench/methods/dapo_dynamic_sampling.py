"""DAPO's dynamic sampling: draw more prompts until the batch is full of groups that carry a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.groups import GroupStats, describe
from workbench.stages import Card, Method, State
from workbench.types import Advantage, Draft, Rollouts

CARD = Card(
    slug="dapo_dynamic_sampling",
    title="DAPO: dynamic sampling",
    arxiv="2503.14476",
    code="https://github.com/BytedTsinghua-SIA/DAPO",
    source="code",
    deviations=(
        "a group is mixed when max > min; the recipe tests std > 0, which keeps [0.1, 0.1, 0.1]",
        "groups of one are dropped; the recipe keeps them (keep_singletons=True)",
        "short after the last round: trains on what there is; the recipe stops with an error (on_short='error')",
        "the batch is cut by groups; the recipe cuts by trajectories",
        "the first round draws the prompts of the step and each refill as many again; the recipe draws 3 times the "
        "training batch every round (gen_prompts)",
        "no carry-over of surplus groups: as in the recipe, they are dropped, and stay in the store",
    ),
    watch="rounds per step, rollouts generated for each one trained on, dropped groups all wrong against all right",
)


def mixed_groups(stats: GroupStats, keep_singletons: bool = False) -> np.ndarray:
    """(G,) bool: groups whose rewards differ. A group of one cannot be judged and is kept only with keep_singletons; a group
    without any value never is."""
    return ~stats.settled | (keep_singletons & (stats.n == 1))


def overlong_penalty(length: ArrayLike, max_len: int, buffer_len: int, factor: float = 1.0) -> np.ndarray:
    """DAPO's soft overlong punishment, added to the reward: 0 up to max_len - buffer_len, then linear, -factor from
    max_len on (TRL; verl's reward manager keeps falling). length (N,) tokens; without a buffer it is a step."""
    over = np.asarray(length, float) - (max_len - buffer_len)
    share = np.clip(over / buffer_len, 0, 1) if buffer_len > 0 else (over > 0).astype(float)
    return 0.0 - factor * share


@dataclass(frozen=True)
class DapoDynamicSampling(Method):
    """Ask for further prompts until `prompts` groups of the budget are mixed, and train on the first of them.

    metric: the column that is judged, "correct", "reward" or a named part of the reward. max_rounds <= 0 is no limit.
    gen_prompts: prompts of a refill round, None = as many as the step trains on. on_short: what happens when the rounds
    end before the batch is full; fill_zero_variance fills it with settled groups, whose advantages are 0.
    """

    metric: str = "correct"
    max_rounds: int = 10
    gen_prompts: int | None = None
    on_short: Literal["train_short", "error", "fill_zero_variance"] = "train_short"
    keep_singletons: bool = False

    card = CARD

    def more(self, state: State, draft: Draft) -> int:
        """A whole refill round while mixed groups are missing and rounds and prompts are left, else 0."""
        stats = self._judge(draft.rollouts)
        missing = draft.budget.prompts - int(mixed_groups(stats, self.keep_singletons).sum())
        if missing <= 0 or 0 < self.max_rounds <= draft.round + 1:
            return 0
        return min(self.gen_prompts or draft.budget.prompts, len(draft.candidates()))

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Drop settled groups by their outcome, and whole groups beyond the batch."""
        rollouts, wanted = draft.rollouts, draft.budget.prompts
        stats = self._judge(rollouts)
        n_kept = np.bincount(rollouts.group[advantage.keep], minlength=len(stats.n))
        mixed = mixed_groups(stats, self.keep_singletons) & (n_kept > 0)
        chosen = mixed & (np.cumsum(mixed) <= wanted)  # groups are numbered in the order in which they came
        reason = np.select(
            [mixed, stats.n == 0, stats.n == 1, stats.low >= 1, stats.high <= 0],
            ["surplus", "unscored", "singleton", "zero_variance_all", "zero_variance_none"],
            "zero_variance_equal",
        )
        short = wanted - int(chosen.sum())
        if short > 0 and self.on_short == "error":
            raise ValueError(
                f"step {draft.step}: {wanted - short} of {wanted} groups are mixed after {draft.round + 1} rounds; "
                "raise max_rounds, or let on_short be 'train_short'"
            )
        if short > 0 and self.on_short == "fill_zero_variance":
            settled = ~mixed & (stats.n > 0)
            chosen |= settled & (np.cumsum(settled) <= short)
        for name in np.unique(reason[~chosen]):
            rows = ~chosen & (reason == name)
            advantage = advantage.drop(rows[rollouts.group], str(name))
        return advantage

    def _judge(self, rollouts: Rollouts) -> GroupStats:
        """The metric by group, over the scored training rollouts, whatever other methods have dropped of them."""
        if self.metric in ("correct", "reward"):
            value = getattr(rollouts, self.metric)
        elif self.metric in rollouts.rewards:
            value = rollouts.rewards[self.metric]
        else:
            known = ", ".join(["correct", "reward", *rollouts.rewards])
            raise ValueError(f"metric {self.metric!r} is not recorded; there are {known}")
        judged = (rollouts.purpose == "train") & np.isfinite(rollouts.reward)
        return describe(np.where(judged, value, np.nan), rollouts.group, int(rollouts.group.max(initial=-1)) + 1)
