"""DAPO: a higher upper clip, the mean over all tokens, and a soft punishment of overlong answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from workbench.methods.dapo_dynamic_sampling import overlong_penalty
from workbench.methods.grpo import Grpo, Reduction
from workbench.stages import Card, State
from workbench.types import Rollouts

CARD = Card(
    slug="dapo",
    title="DAPO: decoupled clip and dynamic sampling policy optimization",
    arxiv="2503.14476",
    code="https://github.com/BytedTsinghua-SIA/DAPO",
    source="C*",
    deviations=(
        "its dynamic sampling is a method of its own: Pipeline(Dapo(), DapoDynamicSampling())",
        "the overlong punishment has a floor of -factor (TRL); verl's goes on falling beyond max_len",
        "truncated importance weight between sampler and trainer, as in grpo; truncation=None turns it off",
    ),
    watch="clip fraction above, entropy, share of answers inside the buffer before max_len",
    golden="baselines",
)


@dataclass(frozen=True)
class Dapo(Grpo):
    """GRPO's advantages with clip 0.8 .. 1.28 and the token mean.

    max_len: answer tokens at which the punishment is full; it begins buffer_len before. None leaves rewards alone.
    """

    eps_high: float = 0.28
    reduction: Reduction = "token_mean"
    max_len: int | None = 20480
    buffer_len: int = 4096
    factor: float = 1.0

    card = CARD
    acts_if: ClassVar[Mapping[str, str]] = {"reward": "max_len"}

    def reward(self, state: State, rollouts: Rollouts) -> Rollouts:
        """Add the overlong punishment, also kept as the part "overlong"."""
        assert self.max_len is not None
        penalty = overlong_penalty(rollouts.length, self.max_len, self.buffer_len, self.factor)
        return rollouts.with_(reward=rollouts.reward + penalty, rewards={**rollouts.rewards, "overlong": penalty})
