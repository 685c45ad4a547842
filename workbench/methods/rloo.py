"""RLOO: every rollout against the mean of the others of its group."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.methods.grpo import Grpo, Reduction
from workbench.numerics.estimators import Estimator
from workbench.stages import Card

CARD = Card(
    slug="rloo",
    title="RLOO: back to basics, REINFORCE with a leave-one-out baseline",
    arxiv="2402.14740",
    code="https://github.com/huggingface/trl",
    source="C*",
    deviations=(
        "ratios and clip stand on tokens, whose sum is taken over a constant length; the paper's are on whole sequences. "
        "At the first update after sampling both are REINFORCE",
        "no KL in the reward: 0.05 in TRL",
        "truncated importance weight between sampler and trainer, as in grpo; truncation=None turns it off",
    ),
    watch="the same signs as dr_grpo, n / (n - 1) times as large",
    golden="baselines",
)


@dataclass(frozen=True)
class Rloo(Grpo):
    """A = r - mean of the other rollouts of the group = n / (n - 1) (r - mean)."""

    estimator: Estimator = "rloo"
    reduction: Reduction = "const_len"

    card = CARD
