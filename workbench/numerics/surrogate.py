"""Clipped policy losses with their gradients, in numpy: the reference that the torch losses are tested against.

Sources: PPO clip as in GRPO 2402.03300, clip-higher DAPO 2503.14476, GSPO 2507.18071, CISPO 2506.13585, constant
length Dr. GRPO 2503.20783; TRL and verl where they differ.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

Kind: TypeAlias = Literal["ppo", "gspo", "cispo_trl", "cispo_verl"]
Reduction: TypeAlias = Literal["seq_mean", "token_mean", "const_len"]


class PolicyLoss(NamedTuple):
    """loss; grad_logp (B, T) its derivative by logp; ratio (B, T), 0 outside the mask; clip_frac share of valid tokens."""

    loss: float
    grad_logp: np.ndarray
    ratio: np.ndarray
    clip_frac: float


def token_weight(mask: np.ndarray, agg: Reduction, max_len: int | None = None) -> np.ndarray:
    """(B, T) weight of every token in the reduced loss; mask (B, T) bool.

    seq_mean: mean over the tokens of a row, then over rows; a fully masked row counts as a row (TRL; verl leaves it
    out). token_mean: mean over all valid tokens. const_len: sum / (B max_len) (TRL; verl does not divide by B).
    Raises ValueError for const_len without max_len."""
    if agg not in get_args(Reduction):
        raise ValueError(f"no reduction {agg!r}; there are {', '.join(get_args(Reduction))}")
    rows = max(len(mask), 1)
    if agg == "seq_mean":
        return mask / (rows * np.maximum(mask.sum(axis=1, keepdims=True), 1))
    if agg == "token_mean":
        return mask / max(mask.sum(), 1)
    if not max_len:
        raise ValueError(f"const_len divides by a constant length: give max_len, got {max_len}")
    return mask / (rows * max_len)


def policy_loss(
    logp: ArrayLike,
    old_logp: ArrayLike,
    advantages: ArrayLike,
    mask: ArrayLike,
    kind: Kind = "ppo",
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    agg: Reduction = "seq_mean",
    delta: float | None = None,
    max_len: int | None = None,
) -> PolicyLoss:
    """Policy loss of a padded batch, and its exact gradient.

    logp, old_logp, mask (B, T); advantages (B,) or (B, T).
    ppo: -min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A); delta caps rho in the first branch where A < 0.
    gspo: the same with one ratio per row, the exponential of its mean log ratio; its gradient flows as in GSPO-token,
    so advantages may differ by token.
    cispo: -w A logp with w held constant, min(rho, eps_high) in TRL, clip(rho, 1 - eps_low, 1 + eps_high) in verl.
    clip_frac: tokens whose gradient the clip stops (cispo: tokens whose weight it changes); delta is not counted."""
    if kind not in get_args(Kind):
        raise ValueError(f"no loss {kind!r}; there are {', '.join(get_args(Kind))}")
    valid = np.asarray(mask, float) > 0
    logp, old = np.where(valid, np.asarray(logp, float), 0.0), np.where(valid, np.asarray(old_logp, float), 0.0)
    a = np.asarray(advantages, float)
    a = np.broadcast_to(a[:, None] if a.ndim == 1 else a, logp.shape)
    weight = token_weight(valid, agg, max_len)

    log_ratio = logp - old
    if kind == "gspo":
        log_ratio = np.broadcast_to(
            log_ratio.sum(axis=1, keepdims=True) / np.maximum(valid.sum(axis=1, keepdims=True), 1), logp.shape
        )
    ratio = np.exp(log_ratio)
    if kind in ("cispo_trl", "cispo_verl"):
        low, high = (-np.inf, eps_high) if kind == "cispo_trl" else (1 - eps_low, 1 + eps_high)
        w = np.clip(ratio, low, high)
        clipped, term, slope = w != ratio, -w * a * logp, -w * a
    else:
        first = np.where(a < 0, np.minimum(ratio, np.inf if delta is None else delta), ratio)
        second = np.clip(ratio, 1 - eps_low, 1 + eps_high)
        clipped = second * a < first * a
        term = -np.minimum(first * a, second * a)
        slope = np.where(clipped | (first != ratio), 0.0, -ratio * a)
    n_valid = max(int(valid.sum()), 1)
    return PolicyLoss(
        float((weight * np.where(valid, term, 0.0)).sum()),
        weight * np.where(valid, slope, 0.0),
        np.where(valid, ratio, 0.0),
        float((clipped & valid).sum() / n_valid),
    )


def kl_k3(logp: ArrayLike, ref_logp: ArrayLike) -> np.ndarray:
    """Schulman's k3 estimate of KL(policy || reference) per token, never negative: exp(d) - d - 1 with d = ref - logp."""
    d = np.asarray(ref_logp, float) - np.asarray(logp, float)
    return np.expm1(d) - d
