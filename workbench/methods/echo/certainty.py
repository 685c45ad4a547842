"""Entropy and confidence along a rollout: where to fork and how wide, when to stop, and how both shape advantages (ECHO).

The scans look at a finished rollout; `look` says the same one token at a time, for many rollouts at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import exp
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.types import Ragged

LOG_FLOOR = 1e-9
"""Inside the released controller's logarithm of a probability."""

FLOOR = 1e-8
"""In the counts and the variance of the released whitening."""


class TokenStats(NamedTuple):
    """(T,) columns: entropy in nats and confidence of the top K, their windowed means, entropy's rise."""

    entropy: np.ndarray
    confidence: np.ndarray
    group_conf: np.ndarray
    tail_conf: np.ndarray
    delta_entropy: np.ndarray


def _trailing(x: np.ndarray, window: int) -> np.ndarray:
    """Mean of the last `window` values up to each place."""
    total = np.concatenate([[0.0], np.cumsum(x)])
    start = np.maximum(np.arange(1, len(x) + 1) - window, 0)
    return (total[1:] - total[start]) / np.maximum(np.arange(1, len(x) + 1) - start, 1)


def token_stats(
    step_logprobs: Sequence[ArrayLike],
    entropy_window: int = 4,
    group_window: int = 4,
    tail_window: int = 8,
    confidence_top_k: int = 5,
    conf_mode: Literal["mean_prob", "neg_mean_logprob"] = "mean_prob",
) -> TokenStats:
    """From the K returned log-probabilities of each of T steps, renormalised.

    mean_prob is the mean of the k largest probabilities (paper); neg_mean_logprob minus the mean of their logs, where
    low means confident (released controller). Thresholds of the two are not interchangeable."""
    if conf_mode not in ("mean_prob", "neg_mean_logprob"):
        raise ValueError(f"conf_mode must be mean_prob or neg_mean_logprob, not {conf_mode!r}")
    rows = Ragged.of([np.asarray(row, float) for row in step_logprobs], float)
    wide = np.full((rows.n_rows, int(rows.lengths.max(initial=1))), -np.inf)
    wide[np.arange(wide.shape[1]) < rows.lengths[:, None]] = rows.values
    entropy, confidence = certainty(wide, confidence_top_k, conf_mode)
    before = np.concatenate([entropy[:1], _trailing(entropy, entropy_window)[:-1]])
    return TokenStats(
        entropy, confidence, _trailing(confidence, group_window), _trailing(confidence, tail_window), entropy - before
    )


def certainty(
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


class Branch(NamedTuple):
    """Where and how wide; None for no fork."""

    position: int | None
    width: int | None


DEFAULTS: Mapping[str, float] = {
    "min_depth": 4,
    "entropy_high": 3.5,
    "entropy_low": 1.0,
    "branch_threshold": 1.2,
    "entropy_delta_threshold": 0.2,
    "alpha": 2.0,
    "beta": 1.0,
    "min_branches": 1,
    "max_branches": 4,
    "prune_threshold": 0.4,
    "tail_decline_steps": 3,
    "tail_threshold": 1.0,
    "delta_rise_steps": 3,
    "delta_upper": 0.5,
}
"""The released controller's settings, under the names of `cfg`."""


def plan_branch(entropy: ArrayLike, group_conf: ArrayLike, delta_entropy: ArrayLike, cfg: Mapping[str, Any]) -> Branch:
    """The first position at or after min_depth that passes all three gates; (T,) columns. A width of 1 ends the scan."""
    c = {**DEFAULTS, **cfg}
    h, conf, rise = (np.asarray(x, float) for x in (entropy, group_conf, delta_entropy))
    if not len(h):
        return Branch(None, None)
    gates = (h >= c["entropy_high"]) & (conf <= c["branch_threshold"]) & (rise >= c["entropy_delta_threshold"])
    gates[: int(min(c["min_depth"], len(h) - 1))] = False
    if not gates.any():
        return Branch(None, None)
    t = int(gates.argmax())
    width = branch_width(
        float(h[t]),
        float(conf[t]),
        c["entropy_low"],
        c["entropy_high"],
        c["branch_threshold"],
        c["alpha"],
        c["beta"],
        int(c["min_branches"]),
        int(c["max_branches"]),
    ).width
    return Branch(t, width) if width > 1 else Branch(None, None)


class Prune(NamedTuple):
    """Where and why a branch ends; None where it does not."""

    position: int | None
    reason: str | None


def prune_scan(group_conf: ArrayLike, tail_conf: ArrayLike, delta_entropy: ArrayLike, cfg: Mapping[str, Any]) -> Prune:
    """The first position where confidence is too low, its tail declines, or entropy keeps rising; (T,) columns."""
    c = {**DEFAULTS, **cfg}
    group, tail, rise = (np.asarray(x, float) for x in (group_conf, tail_conf, delta_entropy))
    low = np.minimum.accumulate(group) < c["prune_threshold"] if len(group) else np.empty(0, bool)
    declines = _run_lengths(np.concatenate([[False], tail[1:] < tail[:-1]])[: len(tail)])
    rises = _run_lengths(rise > 0)
    for t in range(len(group)):
        if low[t]:
            return Prune(t, "low_confidence")
        if declines[t] >= c["tail_decline_steps"] and tail[t] <= c["tail_threshold"]:
            return Prune(t, "tail_decline")
        if rises[t] >= c["delta_rise_steps"] and rise[t] > c["delta_upper"]:
            return Prune(t, "entropy_spike")
    return Prune(None, None)


def _run_lengths(flag: np.ndarray) -> np.ndarray:
    """(T,) how many times in a row the flag has held up to each place."""
    count = np.cumsum(flag)
    return count - np.maximum.accumulate(np.where(flag, 0, count)) if len(flag) else count


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

    tail_confidence: np.ndarray
    clip_epsilon: np.ndarray


def adaptive_clip(
    confidences: ArrayLike,
    mask: ArrayLike,
    tail_window: int = 16,
    eps_min: float = 0.05,
    eps_max: float = 0.2,
    kappa: float = 4.0,
) -> Clip:
    """One clip range per sequence: eps_min + (eps_max - eps_min) sigmoid(kappa (1 - tail confidence)); (B, T) inputs.

    The tail is the last tail_window real tokens; a row without any counts as fully confident."""
    conf, valid = np.asarray(confidences, float), np.asarray(mask, float) > 0
    tail = np.array([c[v][-tail_window:].mean() if v.any() else 1.0 for c, v in zip(conf, valid, strict=True)])
    return Clip(tail, np.array([eps_min + (eps_max - eps_min) / (1 + exp(-kappa * (1 - t))) for t in tail]))


class Track(NamedTuple):
    """What a branch has shown so far, (B,) each but the windows (B, W), latest last: the scans above, one token at a time.

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
    """Entropy and confidence (B,) of one token more; what `token_stats` and the scans say of all so far."""
    n = track.count + 1
    rise = np.where(track.count > 0, entropy - _recent(track.entropies, track.count, entropy_window), 0.0)
    entropies = np.concatenate([track.entropies[:, 1:], entropy[:, None]], 1)
    confidences = np.concatenate([track.confidences[:, 1:], confidence[:, None]], 1)
    group, tail = _recent(confidences, n, group_window), _recent(confidences, n, tail_window)
    low = np.where(track.count > 0, np.minimum(track.low, group), group)
    declines = np.where((track.count > 0) & (tail < track.tail), track.declines + 1, 0.0)
    rises = np.where(rise > 0, track.rises + 1, 0.0)
    return Look(entropy, group, rise, Track(n, low, tail, declines, rises, entropies, confidences))
