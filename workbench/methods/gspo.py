"""GSPO: one ratio for a whole rollout, clipped closely."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.methods.grpo import Grpo, Kind
from workbench.stages import Card

CARD = Card(
    slug="gspo",
    title="GSPO: group sequence policy optimization",
    arxiv="2507.18071",
    code="https://github.com/huggingface/trl",
    source="C*",
    deviations=(
        "the gradient reaches a token through its own logp (GSPO-token), the same in sum where advantages are per rollout",
        "truncated importance weight between sampler and trainer, as in grpo; truncation=None turns it off",
    ),
    watch="the clip fractions, far above those of token ratios",
    golden="baselines",
)


@dataclass(frozen=True)
class Gspo(Grpo):
    """The ratio of a rollout is the exponential of its mean log ratio; clip 1 - 3e-4 .. 1 + 4e-4."""

    kind: Kind = "gspo"
    eps_low: float = 3e-4
    eps_high: float = 4e-4

    card = CARD
