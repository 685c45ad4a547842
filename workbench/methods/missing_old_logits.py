"""Missing old logits: sampler-trainer discrepancy and staleness as two ratios, each with its own bound."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

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
        "tokens outside discrepancy_keep add 0, but still count in the trainer's mean; decoupled_loss leaves them out of it",
        "no world keeps snapshots or an averaged policy: the loss takes the proximal track it is given, the sampler's own, "
        "or an interpolation of both; ewma_update and version_plan are functions only",
        "log ratios are clamped to +-20 before the exponential",
    ),
    watch="discrepancy and staleness apart, by version lag; kept share, clip fraction, share of exact tokens",
)

_CLAMP = 20.0


class RatioSplit(NamedTuple):
    """discrepancy pi_prox / pi_infer, staleness pi / pi_prox, total, their product; in the shape of what was given."""

    discrepancy: np.ndarray
    staleness: np.ndarray
    total: np.ndarray


def _ratio(log_ratio: np.ndarray) -> np.ndarray:
    return np.exp(np.clip(log_ratio, -_CLAMP, _CLAMP))


def ratio_split(logp: ArrayLike, prox_logp: ArrayLike, infer_logp: ArrayLike) -> RatioSplit:
    """Policy, proximal policy (trainer) and sampler, per token (B, T): one ratio for each thing that may differ."""
    logp, prox, infer = (np.asarray(v, float) for v in (logp, prox_logp, infer_logp))
    return RatioSplit(_ratio(prox - infer), _ratio(logp - prox), _ratio(logp - infer))


class DecoupledLoss(NamedTuple):
    """loss; grad_logp (B, T); clip_frac of the kept tokens; kept = how many there are."""

    loss: float
    grad_logp: np.ndarray
    clip_frac: float
    kept: float


def decoupled_loss(
    logp: ArrayLike,
    prox_logp: ArrayLike,
    infer_logp: ArrayLike,
    advantages: ArrayLike,
    mask: ArrayLike,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    is_cap: float = 2.0,
    discrepancy_keep: tuple[float, float] | None = None,
) -> DecoupledLoss:
    """min(discrepancy, is_cap), constant, times PPO-clip on the staleness alone, mean over kept tokens.

    All (B, T) but advantages (B,) or (B, T). discrepancy_keep: tokens outside the interval leave the loss."""
    valid = np.asarray(mask, float) > 0
    columns = (np.where(valid, np.asarray(v, float), 0.0) for v in (logp, prox_logp, infer_logp))
    split = ratio_split(*columns)
    a = np.asarray(advantages, float)
    a = np.broadcast_to(a[:, None] if a.ndim == 1 else a, valid.shape)
    kept = valid
    if discrepancy_keep is not None:
        low, high = discrepancy_keep
        kept = valid & (split.discrepancy >= low) & (split.discrepancy <= high)
    s, weight = split.staleness, np.minimum(split.discrepancy, is_cap)
    bound = np.clip(s, 1 - eps_low, 1 + eps_high)
    clipped = kept & (bound * a < s * a)
    n = max(int(kept.sum()), 1)
    term = np.where(kept, weight * np.maximum(-a * s, -a * bound), 0.0)
    grad = np.where(kept & ~clipped, -weight * a * s, 0.0) / n
    return DecoupledLoss(float(term.sum() / n), grad, float(clipped.sum() / n), float(kept.sum()))


class Ewma(NamedTuple):
    """ewma_params (n,) and the total weight behind them."""

    ewma_params: np.ndarray
    total_weight: float


def ewma_update(params: ArrayLike, ewma_params: ArrayLike, total_weight: float, decay: float) -> Ewma:
    """PPO-EWMA's proximal policy after an update: W' = decay W + 1, p_ewma decay W / W' + p / W'. decay 0 copies."""
    total = decay * total_weight + 1
    old = decay * total_weight / total
    return Ewma(np.asarray(ewma_params, float) * old + np.asarray(params, float) / total, total)


class Bounds(NamedTuple):
    """Where the total ratio is clipped."""

    low: float
    high: float


def interpolated_bounds(alpha: float, eps_low: float, eps_high: float) -> Bounds:
    """What clipping means with log prox = alpha log infer + (1 - alpha) log pi: (1 -+ eps)^(1 / alpha) of the total."""
    if not alpha > 0:
        raise ValueError(f"alpha={alpha}: at 0 the proximal policy is the current one and nothing is ever clipped")
    return Bounds((1 - eps_low) ** (1 / alpha), (1 + eps_high) ** (1 / alpha))


class VersionPlan(NamedTuple):
    """use (n,) int64 version to recompute each token with; exact (n,) bool = it is the one that sampled it."""

    use: np.ndarray
    exact: np.ndarray


def version_plan(token_versions: ArrayLike, available_versions: ArrayLike) -> VersionPlan:
    """The token's own version, else the nearest newer one, else the newest. No version at all: ValueError."""
    token, have = np.asarray(token_versions, np.int64), np.unique(np.asarray(available_versions, np.int64))
    if not len(have):
        raise ValueError("no policy version is available; keep one snapshot at least")
    use = have[np.minimum(np.searchsorted(have, token), len(have) - 1)]
    return VersionPlan(use, use == token)


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
        """Capped discrepancy times clipped staleness per token; `decoupled_loss` is its numpy twin."""
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
