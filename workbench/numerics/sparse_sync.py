"""Sparse weight synchronisation: sending the weights that changed, and only those, without loss.

After an optimiser step most weights round to the bfloat16 number they had before: an update below half a step of the
format, |dw| < |w| / 256 about, vanishes in the copy that samples although the float32 master keeps it. So where the bits
differ is little, and (places, new bits) rebuilds the copy exactly. Source: SparseRL-Sync, 2605.07330; comparison and
application as in the authors' code, the gap encoding is ours (theirs is not public).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Difference(NamedTuple):
    """indices (k,) int64, ascending, where two versions differ; changed_share = k / n, 0 for no elements."""

    indices: np.ndarray
    changed_share: float


def changed(current: np.ndarray, previous: np.ndarray) -> Difference:
    """Where two arrays of bits (n,) differ."""
    if current.shape != previous.shape:
        raise ValueError(f"weights of shape {current.shape} cannot be compared with {previous.shape}")
    indices = np.flatnonzero(current != previous)
    return Difference(indices, len(indices) / current.size if current.size else 0.0)


def union_indices(per_step: Iterable[ArrayLike]) -> np.ndarray:
    """Ascending indices that any of several steps changed, for a receiver that missed them all."""
    parts = [np.asarray(indices, np.int64) for indices in per_step]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def delta_encode(indices: ArrayLike, max_delta: int = 65535) -> np.ndarray | None:
    """Gaps between ascending indices, counted from -1 and minus 1 (0: the next element); None where one is too wide."""
    indices = np.asarray(indices, np.int64)
    gaps = np.diff(indices, prepend=-1) - 1
    if len(gaps) and gaps.min() < 0:
        raise ValueError("indices must be ascending, each once")
    return None if len(gaps) and gaps.max() > max_delta else gaps


def delta_decode(deltas: ArrayLike) -> np.ndarray:
    """Indices (k,) int64 of gaps; the inverse of `delta_encode`."""
    return np.cumsum(np.asarray(deltas, np.int64) + 1) - 1


def apply_update(bits: ArrayLike, indices: ArrayLike, values: ArrayLike) -> np.ndarray:
    """A copy of bits (n,) uint16 with values (k,) at indices (k,). Raises ValueError where they do not fit."""
    out, indices = np.array(bits, np.uint16), np.asarray(indices, np.int64)
    values = np.asarray(values, np.uint16)
    if indices.shape != values.shape:
        raise ValueError(f"{len(indices)} indices for {len(values)} values")
    if len(indices) and not (indices.min() >= 0 and indices.max() < out.size):
        raise ValueError(f"indices {indices.min()} to {indices.max()} do not lie in {out.size} elements")
    out[indices] = values
    return out


def route(
    changed_share: float, value_bytes: float = 2, index_bytes: float = 4, margin: float = 1.0
) -> Literal["sparse", "dense"]:
    """The smaller way for a tensor; equal goes dense. margin > 1 wants sparse to be that much smaller."""
    return "sparse" if changed_share * (value_bytes + index_bytes) * margin < value_bytes else "dense"
