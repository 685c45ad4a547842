"""Random number generators, one for each draw, keyed by what it is drawn for (common random numbers).

Swapping one method leaves all other draws alone, so that two pipelines compare on common random numbers.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np


def generator(seed: int, step: int, round_: int, verb: str, method: str) -> np.random.Generator:
    """The one source of draws for a verb of a method in a round of a step."""
    return np.random.default_rng([seed, step, round_, crc32(verb.encode()), crc32(method.encode())])
