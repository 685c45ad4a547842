"""Dr. GRPO: no division by the group's spread, none by a rollout's own length."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.methods.grpo import Grpo, Reduction
from workbench.numerics.estimators import Estimator
from workbench.stages import Card

CARD = Card(
    slug="dr_grpo",
    title="Dr. GRPO: understanding R1-Zero-like training",
    arxiv="2503.20783",
    code="https://github.com/sail-sg/understand-r1-zero",
    source="C*",
    deviations=(
        "tokens are summed and divided by rollouts times the longest answer allowed (TRL); verl leaves the rollouts out",
        "truncated importance weight between sampler and trainer, as in grpo; truncation=None turns it off",
    ),
    watch="lengths of wrong answers; the weight of groups that are nearly settled",
    golden="baselines",
)


@dataclass(frozen=True)
class DrGrpo(Grpo):
    """A = r - mean of the group, and the clipped loss over a constant length."""

    estimator: Estimator = "dr_grpo"
    reduction: Reduction = "const_len"

    card = CARD
