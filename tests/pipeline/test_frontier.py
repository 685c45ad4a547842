"""Several methods at one frontier: whose place and whose token a fork takes."""

from __future__ import annotations

import numpy as np

from workbench.pipeline.frontier import Hook, branch_of
from workbench.types import Fork, Frontier, Paused, Ragged
from workbench.types.checkpoint import Checkpoint

PAUSE = Checkpoint(every=4)


def hook(*forks: Fork):
    return branch_of([Hook(PAUSE, lambda frontier, fork=fork: fork) for fork in forks])


def frontier(b: int) -> Frontier:
    index, none = np.arange(b), Ragged.of([[]] * b, np.float32)
    tail = np.full(b, "", dtype=object)
    return Frontier(
        index,
        index,
        index,
        index - b,
        np.full(b, 4),
        none,
        none,
        none,
        tail,
        9,
        paused={PAUSE: Paused(index >= 0, tail)},
    )


def fork(width, at, token) -> Fork:
    return Fork(*(np.array(column) for column in (width, at, token)))


def test_widths_multiply_and_the_last_one_that_forks_a_row_says_where():
    made = hook(
        fork([2, 1, 2, 1], [1, -1, 1, -1], [5, -1, 5, -1]),
        fork([2, 2, 1, 1], [2, 2, -1, -1], [6, 6, -1, -1]),
        fork([2, 1, 1, 1], [3, -1, -1, -1], [7, -1, -1, -1]),
    )(frontier(4))
    assert made.width.tolist() == [8, 2, 2, 1]
    assert made.at.tolist() == [3, 2, 1, -1]
    assert made.token.tolist() == [7, 6, 5, -1]


def test_tokens_of_their_own_for_each_fork_keep_their_places():
    made = hook(fork([3, 1], [-1, -1], [[5, 8], [-1, -1]]), fork([1, 3], [-1, 2], [-1, 6]))(frontier(2))
    assert made.token.tolist() == [[5, 8], [6, 6]]  # one token is that of all forks of its row
    assert made.at.tolist() == [-1, 2]
