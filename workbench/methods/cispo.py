"""CISPO: the ratio is a capped constant weight, so that no token loses its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.methods.grpo import Grpo, Kind, Reduction
from workbench.stages import Card

CARD = Card(
    slug="cispo",
    title="MiniMax-M1: clipped importance sampling policy optimization (CISPO)",
    arxiv="2506.13585",
    code="https://github.com/huggingface/trl",
    source="C*",
    deviations=(
        "w = min(ratio, 5), as TRL recommends; kind='cispo_verl' clips to 1 - eps_low .. 1 + eps_high instead, where "
        "verl's examples have 10 and 0.2: eps_high means two things",
        "truncated importance weight between sampler and trainer, as in grpo; truncation=None turns it off",
    ),
    watch="share of tokens whose weight is capped",
    golden="baselines",
)


@dataclass(frozen=True)
class Cispo(Grpo):
    """-sg(w) A log pi, averaged over all tokens."""

    kind: Kind = "cispo_trl"
    eps_high: float = 5.0
    reduction: Reduction = "token_mean"

    card = CARD
