"""Missing old logits: sampler-trainer discrepancy and staleness as two ratios, each with its own bound."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Literal, NamedTuple

from workbench.stages import Card, Method, State
from workbench.types import Batch, Loss

CARD = Card(
    slug="missing_old_logits",
    title="Missing old logits in asynchronous agentic RL: semantic mismatch and repair methods",
    arxiv="2605.12070",
    code="https://github.com/millioniron/ROLL",
    source="paper",
    deviations=(
        "importance cap 2 is ours; ROLL has further clamps and rejections",
        "tokens outside discrepancy_keep add 0, but still count in the trainer's mean",
        "no world keeps snapshots or an averaged policy: the loss takes the proximal track it is given, the sampler's own, "
        "or an interpolation of both",
        "log ratios are clamped to +-20 before the exponential",
    ),
    watch="discrepancy and staleness apart, by version lag; kept share, clip fraction, share of exact tokens",
)

_CLAMP = 20.0


class Bounds(NamedTuple):
    """Where the total ratio is clipped."""

    low: float
    high: float


def interpolated_bounds(alpha: float, eps_low: float, eps_high: float) -> Bounds:
    """What clipping means with log prox = alpha log infer + (1 - alpha) log pi: (1 -+ eps)^(1 / alpha) of the total."""
    if not alpha > 0:
        raise ValueError(f"alpha={alpha}: at 0 the proximal policy is the current one and nothing is ever clipped")
    return Bounds((1 - eps_low) ** (1 / alpha), (1 + eps_high) ** (1 / alpha))


@dataclass(frozen=True)
class MissingOldLogits(Method):
    """The decoupled loss. route: where the proximal log-probabilities come from: given = the world's track, infer = the
    sampler's own (the entangled ratio), interpolated = alpha of the sampler's and 1 - alpha of the current ones."""

    route: Literal["given", "infer", "interpolated"] = "given"
    alpha: float = 0.5
    eps_low: float = 0.2
    eps_high: float = 0.2
    is_cap: float = 2.0
    discrepancy_keep: tuple[float, float] | None = None

    card = CARD

    def __post_init__(self) -> None:
        interpolated_bounds(self.alpha, self.eps_low, self.eps_high)

    def loss(self, state: State, batch: Batch) -> Loss:
        """min(pi_prox / pi_infer, is_cap), constant, times PPO-clip on pi / pi_prox alone: discrepancy and staleness apart."""
        import torch

        mask, zero = batch.mask.bool(), torch.zeros_like(batch.logp)
        logp, prox, infer = (torch.where(mask, v, zero) for v in (batch.logp, batch.proximal, batch.behaviour))
        if self.route == "infer":
            prox = infer
        elif self.route == "interpolated":
            prox = self.alpha * infer + (1 - self.alpha) * logp.detach()
        s = (logp - prox).clamp(-_CLAMP, _CLAMP).exp()
        drift = (prox - infer).detach().clamp(-_CLAMP, _CLAMP)
        weight = drift.clamp(max=log(self.is_cap)).exp()
        kept = mask
        if self.discrepancy_keep is not None:
            low, high = self.discrepancy_keep
            kept = mask & (drift.exp() >= low) & (drift.exp() <= high)
        a = torch.where(kept, batch.advantage, zero)
        bound = s.clamp(1 - self.eps_low, 1 + self.eps_high)
        term = weight * torch.maximum(-a * s, -a * bound)
        stats = {
            "ratio": s.detach(),
            "importance": weight,
            "discrepancy": drift.exp(),
            "clip_low": ((s < 1 - self.eps_low) & (a < 0)).to(term.dtype),
            "clip_high": ((s > 1 + self.eps_high) & (a > 0)).to(term.dtype),
            "token_kept": kept.to(term.dtype),
        }
        return Loss(term, reduction="token_mean", stats=stats)
