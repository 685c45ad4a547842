"""Batch sizes of the CUDA-graph decoder: numbers of rows with a graph, rows let in, prefixes in a pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1024, 1280, 1536, 1792, 2048)
"""Numbers of rows for which a step is captured."""

PREFILL = 32_768
"""Padded prefix tokens computed in one pass."""


def bucket(rows: int) -> int:
    """The smallest number of rows with a graph that holds these."""
    return next((b for b in BUCKETS if b >= rows), -(-rows // 512) * 512)


def admitted(waiting: np.ndarray, owner: np.ndarray, free: int) -> tuple[np.ndarray, np.ndarray]:
    """The next rows for free places and those that wait on; cut between prefixes where one is not larger than that."""
    cut = min(free, len(waiting))
    if cut < len(waiting):
        border = cut
        while border and owner[waiting[border]] == owner[waiting[border - 1]]:
            border -= 1
        cut = border or cut
    return waiting[:cut], waiting[cut:]


def cuts(lengths: Sequence[int]) -> list[int]:
    """Where to cut prefixes into passes of at most PREFILL padded tokens."""
    found, start, widest = [], 0, 0
    for i, length in enumerate(lengths):
        widest = max(widest, length)
        if i > start and widest * (i + 1 - start) > PREFILL:
            found.append(i)
            start, widest = i, length
    return found
