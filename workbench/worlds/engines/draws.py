"""Random numbers for sampling tokens: a pure function of (seed, name of the rollout, position).

A counter-based hash instead of a generator: what a rollout draws depends neither on the order of the batch, nor on
who else is in it, nor on how often an engine was called before.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def streams(seed: int, names: Iterable[str]) -> np.ndarray:
    """(R,) uint64: the key of each rollout's random stream."""
    key = int(seed).to_bytes(16, "little", signed=True)
    digests = (blake2b(str(name).encode(), digest_size=8, key=key).digest() for name in names)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def splitmix64(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014): (R,) uint64 to (R,) uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(keys: np.ndarray, position: np.ndarray | int) -> np.ndarray:
    """(R,) float64 strictly between 0 and 1: the draw of each stream at a position.

    The SplitMix64 finaliser of key + (position + 1) * golden ratio; its upper 32 bits, moved to the middle of their cell,
    so that neither 0 nor 1 can come out, also after rounding to float32 products.
    """
    with np.errstate(over="ignore"):
        z = splitmix64(np.asarray(keys, np.uint64) + (np.asarray(position).astype(np.uint64) + np.uint64(1)) * GOLDEN)
    return ((z >> np.uint64(32)).astype(np.float64) + 0.5) * 2.0**-32
