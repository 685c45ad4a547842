"""ARRoL at its checkpoint: protection revives rows, and the propensity that is told stays the chance of the draw."""

from __future__ import annotations

import numpy as np

from workbench.methods.arrol import CARD, Arrol, Quality
from workbench.numerics.heads import Head
from workbench.types import Frontier, Ragged


def test_protected_rows_tell_the_chance_of_the_draw():
    method, b = Arrol(l_detect=2, kappa=0.1, p_max=0.1, warmup=0, protect=2), 4
    head = Quality(Head(np.zeros(4)), np.eye(128, dtype=np.int64)[64], np.eye(128, dtype=np.int64)[64], np.empty(0), 1)
    zeros = np.zeros(b, np.int64)
    flat = Ragged.of([[-1.0, -1.0]] * b, np.float32)
    frontier = Frontier(
        prompt=zeros, group=zeros, branch=np.arange(b), parent=zeros - 1, n_tokens=np.full(b, 2),
        tokens=Ragged.of([[1, 2]] * b, np.int32), logp=flat, entropy=flat, tail=np.full(b, "", dtype=object),
        capacity=8, extra={}, memory={}, born=zeros, n_prompts=1,
    )  # fmt: skip
    for seed in range(20):
        cut = method.prune(head, frontier, np.random.default_rng(seed))
        assert (cut.width > 0).sum() >= 2  # however small the chance
        assert np.allclose(cut.propensity, 0.1)
    assert any("no exact weight" in d for d in CARD.deviations)
