"""Low-precision rollouts as policy mismatch: number formats, how far sampler and trainer differ, cheap exploration.

Sources: Jet-RL 2601.14243 (one precision for rollout and training), Sol-RL 2604.06916 (explore cheaply, train on the
extremes); metrics as in verl's rollout correction. E4M3 ends at 448, E2M1 has the magnitudes 0 .5 1 1.5 2 3 4 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LARGEST = {"e4m3": 448.0, "e2m1": 6.0}


def _quantize(x: ArrayLike, mantissa: int, lowest: int, largest: float) -> np.ndarray:
    """Nearest value with so many bits of fraction, ties to even, saturating; steps stay fixed below 2^lowest."""
    x = np.asarray(x, float)
    exponent = np.maximum(np.frexp(np.abs(x))[1] - 1, lowest)
    step = np.ldexp(1.0, exponent - mantissa)
    return np.clip(np.rint(x / step) * step, -largest, largest)


def quantize_e4m3(x: ArrayLike) -> np.ndarray:
    """x in FP8 E4M3: 3 bits of fraction, smallest normal 2^-6, saturating at 448; any shape."""
    return _quantize(x, 3, -6, LARGEST["e4m3"])


def quantize_e2m1(x: ArrayLike) -> np.ndarray:
    """x in FP4 E2M1: 1 bit of fraction, smallest normal 1, saturating at 6; any shape."""
    return _quantize(x, 1, 0, LARGEST["e2m1"])


class Quantized(NamedTuple):
    """dequantized (R, C) = q(x / s) s; scales (row blocks, column blocks)."""

    dequantized: np.ndarray
    scales: np.ndarray


def block_fake_quant(x: ArrayLike, block: Sequence[int], fmt: Literal["e4m3", "e2m1"] = "e4m3") -> Quantized:
    """Round a matrix (R, C) block by block: s = max |x| / largest, 1 for a block of zeros; ragged edges have their own."""
    if fmt not in LARGEST:
        raise ValueError(f"no format {fmt!r}; there are {', '.join(LARGEST)}")
    x, (rows, columns) = np.asarray(x, float), block
    quantize = quantize_e4m3 if fmt == "e4m3" else quantize_e2m1
    tall, wide = -(-x.shape[0] // rows), -(-x.shape[1] // columns)
    padded = np.zeros((tall * rows, wide * columns))
    padded[: x.shape[0], : x.shape[1]] = np.abs(x)
    scale = padded.reshape(tall, rows, wide, columns).max(axis=(1, 3)) / LARGEST[fmt]
    scale = np.where(scale > 0, scale, 1.0)
    s = scale.repeat(rows, 0).repeat(columns, 1)[: x.shape[0], : x.shape[1]]
    return Quantized(quantize(x / s) * s, scale)


class Mismatch(NamedTuple):
    """Of d = train - rollout and rho = exp d: means over tokens, or over rows where named seq; n_clamped tokens."""

    kl_k1: float
    kl_k3: float
    chi2_token: float
    chi2_seq: float
    ess_token: float
    ess_seq: float
    ppl_ratio: float
    max_abs_logp_diff: float
    n_clamped: int


def _ess(weight: np.ndarray) -> float:
    return float(weight.sum() ** 2 / (len(weight) * (weight**2).sum()))


def mismatch_metrics(train_logp: ArrayLike, rollout_logp: ArrayLike, mask: ArrayLike, clamp: float = 20.0) -> Mismatch:
    """How far the trainer's log-probabilities are from the sampler's, (B, T) each; 0 and 1 without a valid token.

    d is held to +-clamp, sums over rows too. ppl_ratio: mean over rows of the trainer's perplexity over the sampler's."""
    valid = np.asarray(mask, float) > 0
    raw = np.where(valid, np.asarray(train_logp, float), 0.0) - np.where(valid, np.asarray(rollout_logp, float), 0.0)
    if not valid.any():
        return Mismatch(0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0)
    d, rows = np.clip(raw, -clamp, clamp), valid.any(1)
    token, n = d[valid], valid.sum(1)[rows]
    rho, product = np.exp(token), np.exp(np.clip(d.sum(1)[rows], -clamp, clamp))
    return Mismatch(
        float(-token.mean()),
        float((np.expm1(token) - token).mean()),
        float((rho**2).mean() - 1),
        float((product**2).mean() - 1),
        _ess(rho),
        _ess(product),
        float(np.exp(-d.sum(1)[rows] / n).mean()),
        float(np.abs(raw[valid]).max()),
        int((np.abs(raw) > clamp).sum()),
    )


def tis_weights(
    train_logp: ArrayLike,
    rollout_logp: ArrayLike,
    cap: float = 2.0,
    mode: Literal["truncate", "mask"] = "truncate",
    low: float = 0.0,
) -> np.ndarray:
    """exp(train - rollout), any shape: cut off at cap, or 0 outside low .. cap (mask)."""
    if mode not in ("truncate", "mask"):
        raise ValueError(f"mode must be truncate or mask, got {mode!r}")
    rho = np.exp(np.clip(np.asarray(train_logp, float) - np.asarray(rollout_logp, float), -20, 20))
    return np.minimum(rho, cap) if mode == "truncate" else np.where((rho >= low) & (rho <= cap), rho, 0.0)


class Fidelity(NamedTuple):
    """Kendall's tau-b and Spearman's rho, NaN where either side is constant; share of the true top k that is found."""

    kendall: float
    spearman: float
    top_match: float


def _ranks(x: np.ndarray) -> np.ndarray:
    """Average ranks (n,)."""
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def rank_fidelity(proxy: ArrayLike, true: ArrayLike, k: int) -> Fidelity:
    """How well cheap scores (n,) order candidates as the true ones do. Raises ValueError for k over n."""
    p, t = np.asarray(proxy, float), np.asarray(true, float)
    if not 1 <= k <= len(p) or len(p) != len(t):
        raise ValueError(f"the top {k} of {len(p)} proxy and {len(t)} true scores cannot be compared")
    if p.min() == p.max() or t.min() == t.max():
        return Fidelity(np.nan, np.nan, np.nan if p.min() == p.max() else _top_match(p, t, k))
    a, b = np.sign(p[:, None] - p), np.sign(t[:, None] - t)
    tau = (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum())
    return Fidelity(float(tau), float(np.corrcoef(_ranks(p), _ranks(t))[0, 1]), _top_match(p, t, k))


def _top_match(p: np.ndarray, t: np.ndarray, k: int) -> float:
    found, best = (np.argsort(-x, kind="stable")[:k] for x in (p, t))
    return float(np.isin(found, best).mean())


class StageCost(NamedTuple):
    """Cost of exploring cheaply and training on some, of the whole pool at full cost, their ratio, and of no pool."""

    two_stage: float
    full_pool: float
    speedup: float
    no_exploration: float


def stage_cost(pool: int, trained: int, cheap_cost: float, full_cost: float) -> StageCost:
    """Costs of a step with `pool` cheap candidates of which `trained` are made again in full precision."""
    two, full = pool * cheap_cost + trained * full_cost, pool * full_cost
    return StageCost(two, full, full / two if two else np.nan, trained * full_cost)
