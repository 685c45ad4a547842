"""Entropy and confidence along a rollout: where to fork and how wide, when to stop, how both shape advantages and clip (ECHO).

All are asked one token at a time, for many rollouts at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    import torch

LOG_FLOOR = 1e-9
"""Inside the released controller's logarithm of a probability."""

FLOOR = 1e-8
"""In the counts and the variance of the released whitening."""


def entropy_and_confidence(
    logprobs: np.ndarray, top_k: int = 5, conf_mode: Literal["mean_prob", "neg_mean_logprob"] = "mean_prob"
) -> tuple[np.ndarray, np.ndarray]:
    """(B,) entropy in nats and confidence of renormalised log-probabilities (B, K); -inf is no token."""
    z = np.asarray(logprobs, float)
    if not len(z):
        return np.zeros(0), np.zeros(0)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(1)
    k = np.minimum(np.isfinite(z).sum(1), top_k)
    top = -np.sort(-p, axis=1)[:, :top_k]
    of = top if conf_mode == "mean_prob" else -np.log(top + LOG_FLOOR)
    taken = np.arange(top.shape[1]) < k[:, None]
    return entropy, np.where(taken, of, 0.0).sum(1) / k


class Width(NamedTuple):
    """raw width, and the number of branches it is rounded and held to."""

    raw: float
    width: int


def branch_width(
    entropy: float,
    group_conf: float,
    entropy_low: float = 1.0,
    entropy_high: float = 3.5,
    branch_threshold: float = 1.2,
    alpha: float = 2.0,
    beta: float = 1.0,
    min_branches: int = 1,
    max_branches: int = 4,
) -> Width:
    """min + alpha (H - low) / (high - low) - beta (confidence - threshold) / |threshold|; halves round to the even."""
    raw = (
        min_branches
        + alpha * (entropy - entropy_low) / (entropy_high - entropy_low)
        - beta * (group_conf - branch_threshold) / abs(branch_threshold)
    )
    return Width(raw, int(np.clip(round(raw), min_branches, max_branches)))


def may_fork(
    entropy: np.ndarray,
    group: np.ndarray,
    rise: np.ndarray,
    entropy_high: float,
    branch_threshold: float,
    entropy_delta_threshold: float,
) -> np.ndarray:
    """(B,) bool: all three gates are open, of entropy, windowed confidence and the rise of entropy, (B,) each."""
    return (entropy >= entropy_high) & (group <= branch_threshold) & (rise >= entropy_delta_threshold)


def end_reason(
    track: Track,
    rise: np.ndarray,
    prune_threshold: float,
    tail_decline_steps: int,
    tail_threshold: float,
    delta_rise_steps: int,
    delta_upper: float,
) -> np.ndarray:
    """(B,) str: why a branch ends here, confidence too low, its tail declines, or entropy keeps rising; "" = it goes on."""
    low = track.low < prune_threshold
    tail = (track.declines >= tail_decline_steps) & (track.tail <= tail_threshold)
    spike = (track.rises >= delta_rise_steps) & (rise > delta_upper)
    return np.select([low, tail, spike], ["low_confidence", "tail_decline", "entropy_spike"], "").astype(object)


class Hybrid(NamedTuple):
    """score, advantages (B, T); 0 outside the mask."""

    score: np.ndarray
    advantages: np.ndarray


def _whiten(x: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Over all valid entries: mean by (n + 1e-8), variance with one degree of freedom less, / sqrt(var + 1e-8)."""
    n = int(valid.sum())
    if n < 2:
        return np.zeros(x.shape)
    mean = x[valid].sum() / (n + FLOOR)
    var = ((x[valid] - mean) ** 2).sum() / (n + FLOOR) * (n / (n - 1))
    return np.where(valid, (x - mean) / np.sqrt(var + FLOOR), 0.0)


def hybrid_advantage(
    advantages: ArrayLike,
    entropies: ArrayLike,
    confidences: ArrayLike,
    mask: ArrayLike,
    group_ids: Sequence[Hashable],
    alpha: float = 1.0,
    beta: float = 1.0,
    s_max: float | None = 2.0,
    mult_coeff: float = 0.1,
    add_coeff: float = 0.0,
) -> Hybrid:
    """A (1 + mult S) + add (S - mean of S in the group), S = alpha whiten(H) + beta whiten(1 - C) held to +-s_max.

    All (B, T) but group_ids (B,)."""
    a, h = np.asarray(advantages, float), np.asarray(entropies, float)
    valid = np.asarray(mask, float) > 0
    doubt = 1 - np.clip(np.asarray(confidences, float), 0, 1)
    score = alpha * _whiten(h, valid) + beta * _whiten(doubt, valid)
    if s_max is not None:
        score = np.clip(score, -s_max, s_max)
    score = np.where(valid, score, 0.0)
    shaped = a * (1 + mult_coeff * score)
    if add_coeff:
        group = np.unique(np.asarray(group_ids), return_inverse=True)[1]
        total = np.bincount(group, score.sum(1))
        count = np.bincount(group, valid.sum(1))
        shaped = shaped + add_coeff * (score - (total / np.maximum(count, 1))[group][:, None])
    return Hybrid(score, np.where(valid, shaped, 0.0))


class Clip(NamedTuple):
    """tail_confidence, clip_epsilon (B,)."""

    tail_confidence: torch.Tensor
    clip_epsilon: torch.Tensor


def adaptive_clip(
    confidence: torch.Tensor,
    mask: torch.Tensor,
    sampled: torch.Tensor,
    window: int,
    eps_min: float,
    eps_max: float,
    kappa: float,
) -> Clip:
    """One clip range per sequence: eps_min + (eps_max - eps_min) sigmoid(kappa (1 - tail confidence)); (B, T) inputs.

    The tail is the sampled ones of the last `window` tokens of the mask; a row without any counts as fully confident."""
    import torch

    from_end = mask.flip(1).cumsum(1).flip(1)
    tail = (sampled > 0) & (from_end <= window)
    sure = torch.where(tail, confidence, 0.0).sum(1) / tail.sum(1).clamp(min=1)
    sure = torch.where(tail.any(1), sure, torch.ones_like(sure))
    return Clip(sure, eps_min + (eps_max - eps_min) * torch.sigmoid(kappa * (1 - sure)))


class Track(NamedTuple):
    """What a branch has shown so far, (B,) each but the windows (B, W), latest last.

    count of tokens looked at; low = least windowed confidence; tail confidence; declines and rises in a row."""

    count: np.ndarray
    low: np.ndarray
    tail: np.ndarray
    declines: np.ndarray
    rises: np.ndarray
    entropies: np.ndarray
    confidences: np.ndarray


class Look(NamedTuple):
    """(B,) of the token about to be drawn: entropy, windowed confidence, rise of entropy; and the track with it."""

    entropy: np.ndarray
    group: np.ndarray
    rise: np.ndarray
    track: Track


def _recent(window: np.ndarray, n: np.ndarray, width: int) -> np.ndarray:
    """(B,) mean of the last min(n, width) values, at least one."""
    last = window[:, -width:]
    taken = np.arange(last.shape[1]) >= last.shape[1] - np.clip(n, 1, width)[:, None]
    return np.where(taken, last, 0.0).sum(1) / taken.sum(1)


def look(
    track: Track, entropy: np.ndarray, confidence: np.ndarray, entropy_window: int, group_window: int, tail_window: int
) -> Look:
    """Entropy and confidence (B,) of one token more, and what they make of all so far."""
    n = track.count + 1
    rise = np.where(track.count > 0, entropy - _recent(track.entropies, track.count, entropy_window), 0.0)
    entropies = np.concatenate([track.entropies[:, 1:], entropy[:, None]], 1)
    confidences = np.concatenate([track.confidences[:, 1:], confidence[:, None]], 1)
    group, tail = _recent(confidences, n, group_window), _recent(confidences, n, tail_window)
    grown = counted(track, group, tail, rise)
    return Look(entropy, group, rise, grown._replace(entropies=entropies, confidences=confidences))


def counted(track: Track, group: np.ndarray, tail: np.ndarray, rise: np.ndarray) -> Track:
    """The track with windowed confidence, its tail and the rise of entropy, (B,) each, of one token more."""
    low = np.where(track.count > 0, np.minimum(track.low, group), group)
    declines = np.where((track.count > 0) & (tail < track.tail), track.declines + 1, 0.0)
    rises = np.where(rise > 0, track.rises + 1, 0.0)
    return track._replace(count=track.count + 1, low=low, tail=tail, declines=declines, rises=rises)
