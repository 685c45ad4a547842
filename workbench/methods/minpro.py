"""MinPRO: weigh a token by its own ratio times the smallest ratio before it, in the place of the product of them all."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

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
    watch="token, product and MinPRO weights by position, share of capped tokens, where the running minimum stands",
)

_CLAMP = 20.0


class PrefixWeights(NamedTuple):
    """token, prefix_product, min_prefix, minpro, each (B, T), 0 on masked tokens."""

    token: np.ndarray
    prefix_product: np.ndarray
    min_prefix: np.ndarray
    minpro: np.ndarray


def prefix_weights(log_ratio: ArrayLike, mask: ArrayLike) -> PrefixWeights:
    """rho_t, prod_{j<=t} rho_j, min_{j<t} rho_j (1 for the first valid token), and min_{j<t} rho_j rho_t.

    log_ratio, mask (B, T). Masked tokens enter neither product nor minimum; both go on across the gap."""
    valid = np.asarray(mask, float) > 0
    x = np.clip(np.where(valid, np.asarray(log_ratio, float), 0.0), -_CLAMP, _CLAMP)
    running = np.minimum.accumulate(np.where(valid, x, np.inf), axis=1)
    before = np.concatenate([np.full((len(x), 1), np.inf), running[:, :-1]], axis=1)
    before = np.where(np.isinf(before), 0.0, before)
    product = np.exp(np.clip(np.cumsum(x, axis=1), -700, 700))  # float64 ends at e^709
    columns = (np.exp(x), product, np.exp(before), np.exp(before + x))
    return PrefixWeights(*(np.where(valid, c, 0.0) for c in columns))


class MinproLoss(NamedTuple):
    """weight, grad_logp (B, T); loss; cap_frac = share of valid tokens at the cap."""

    weight: np.ndarray
    loss: float
    grad_logp: np.ndarray
    cap_frac: float


def minpro_loss(
    logp: ArrayLike, old_logp: ArrayLike, advantages: ArrayLike, mask: ArrayLike, cap: float = 5.0
) -> MinproLoss:
    """-min(minpro_t, cap) A log p_t with the weight held constant, summed and divided by the valid tokens.

    logp, old_logp, mask (B, T), old of the policy that sampled the token; advantages (B,) or (B, T)."""
    valid = np.asarray(mask, float) > 0
    logp, old = (np.where(valid, np.asarray(v, float), 0.0) for v in (logp, old_logp))
    a = np.asarray(advantages, float)
    a = np.where(valid, a[:, None] if a.ndim == 1 else a, 0.0)
    raw = prefix_weights(logp - old, valid).minpro
    weight = np.minimum(raw, cap)
    n = max(int(valid.sum()), 1)
    grad = -weight * a / n
    return MinproLoss(weight, float((grad * logp).sum()), grad, float((raw > cap).sum() / n))


@dataclass(frozen=True)
class Minpro(Method):
    """The off-policy loss with the prefix-minimum weight, against the log-probabilities of the sampler."""

    cap: float = 5.0

    card = CARD

    def loss(self, state: State, batch: Batch) -> Loss:
        """The weighted score per token; `minpro_loss` is its numpy twin."""
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
