"""MinPRO: weigh a token by its own ratio times the smallest ratio before it, in the place of the product of them all."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from workbench.stages import Card, Method, State
from workbench.types import Batch, Loss

CARD = Card(
    slug="minpro",
    title="MinPRO: a step back, prefix importance ratio stabilizes policy optimization",
    arxiv="2601.22718",
    source="paper",
    deviations=(
        "loss form (REINFORCE with a constant weight) and cap are inferred, after CISPO; the paper's clip is not known",
        "the minimum is over earlier tokens only and may exceed 1",
        "log ratios are clamped to +-20 before the exponential",
    ),
    watch="token, product and MinPRO weights by position, share of capped tokens, value of the running minimum",
)

_CLAMP = 20.0


@dataclass(frozen=True)
class Minpro(Method):
    """The off-policy loss with the prefix-minimum weight, against the log-probabilities of the sampler."""

    cap: float = 5.0

    card = CARD

    def loss(self, state: State, batch: Batch) -> Loss:
        """-min(min_{j<t} rho_j rho_t, cap) A log p_t with the weight held constant; the minimum is 1 before the first token.

        rho is the ratio to the policy that sampled the token. Masked tokens are no prefix; the minimum goes on across a gap."""
        import torch

        mask, zero = batch.mask.bool(), torch.zeros_like(batch.logp)
        logp = torch.where(mask, batch.logp, zero)
        x = torch.where(mask, batch.logp.detach() - batch.behaviour, zero).clamp(-_CLAMP, _CLAMP)
        # the tokens of a hint in front were not sampled: they are no prefix that the policy may have left
        running = torch.where(batch.sampled > 0, x, torch.full_like(x, torch.inf)).cummin(1).values
        before = torch.cat([torch.full_like(x[:, :1], torch.inf), running[:, :-1]], 1)
        before = torch.where(before.isinf(), zero, before)
        raw = before + x
        weight = raw.clamp(max=log(self.cap)).exp()
        a = torch.where(mask, batch.advantage, zero)
        stats = {
            "ratio": x.exp(),
            "min_prefix": before.exp(),
            "importance": weight,
            "truncated": (raw > log(self.cap)).to(weight.dtype),
        }
        return Loss(-weight * a * logp, reduction="token_mean", stats=stats)
