"""DORA without a learner: a scripted search with scored partial answers, `python -m tests.benchmarks study --case test-time`.

A problem has a few directions; a solution that ends in direction d is right with chance v[d], and wrong ones of a
direction agree on one wrong answer. A process reward model scores a partial solution by v[d] with an error that all
solutions of the direction share and one of its own, smaller at every checkpoint; the samples fall on the directions
unevenly, as a model's own preferences do. The number of branches is kept at every checkpoint. What is compared is the
allocation alone: the same problems, first samples and luck for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tests.benchmarks.figure import Figure
from workbench.analysis.intervals import Interval, paired
from workbench.methods.dora import allocation, largest_remainder, similarity, vote

BRANCHES, CHECKPOINTS, DIRECTIONS, WIDTH = 16, 3, 5, 16
PROBLEMS, SEEDS = 100, tuple(range(12))

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(k,) scores and (k, k) cosines of the branches to (k,) slots, together k."""


def _by_quality(score: np.ndarray, alike: np.ndarray) -> np.ndarray:
    """Softmax of the score alone: a direction counts as often as it was sampled."""
    return largest_remainder(allocation(score, np.eye(len(score)), len(score)).weight, len(score))


def _best_quarter(score: np.ndarray, alike: np.ndarray) -> np.ndarray:
    """The best quarter of the branches, four times each: beam search."""
    n = np.zeros(len(score), np.int64)
    n[np.argsort(-score, kind="stable")[: len(score) // 4]] = 4
    return n


RULES: Mapping[str, Rule] = {
    "no reallocation": lambda score, alike: np.ones(len(score), np.int64),
    "beam": _best_quarter,
    "quality alone": _by_quality,
    "dora": lambda score, alike: largest_remainder(allocation(score, alike, len(score)).weight, len(score)),
}
"""The first is what the others are held against."""


class Solved(NamedTuple):
    """Of a seed: share of problems that the weighted vote solves, and where any branch is right."""

    vote: float
    any_right: float


def solve(rule: Rule, rng: np.random.Generator, *, shared: float = 0.15, own: float = 0.1, stray: float = 0.1) -> tuple:
    """One problem: (vote is right, any branch is right). shared, own: errors of the scores; stray: chance that a copy
    leaves its direction at a checkpoint."""
    v = rng.beta(0.5, 1.5, DIRECTIONS)
    popular = rng.dirichlet(np.full(DIRECTIONS, 0.7))
    face = rng.standard_normal((DIRECTIONS, WIDTH))
    bias = shared * rng.standard_normal(DIRECTIONS)
    direction = rng.choice(DIRECTIONS, BRANCHES, p=popular)
    luck = rng.random((CHECKPOINTS + 1, BRANCHES, 3))
    noise = rng.standard_normal((CHECKPOINTS + 1, BRANCHES, WIDTH))
    score = np.empty(BRANCHES)
    for checkpoint in range(CHECKPOINTS + 1):
        fade = 1 - checkpoint / (CHECKPOINTS + 1)
        error = fade * (bias[direction] + own * noise[checkpoint, :, 0])
        score = np.clip(v[direction] + error, 0, 1)
        if checkpoint == CHECKPOINTS:
            break
        seen = face[direction] + 0.05 * noise[checkpoint]
        parent = np.repeat(np.arange(BRANCHES), rule(score, similarity(seen)))
        elsewhere = np.searchsorted(np.cumsum(popular), luck[checkpoint, :, 1]).clip(max=DIRECTIONS - 1)
        direction = np.where(luck[checkpoint, :, 0] < stray, elsewhere, direction[parent])
    right = luck[-1, :, 2] < v[direction]
    answers = ["right" if ok else f"wrong {d}" for ok, d in zip(right, direction, strict=True)]
    return vote(answers, score).answer == "right", bool(right.any())


def test_time() -> dict[str, list[Solved]]:
    """Rule -> what it solves, one entry a seed of `PROBLEMS` problems."""
    return {
        name: [
            Solved(*map(float, np.mean([solve(rule, np.random.default_rng([s, p])) for p in range(PROBLEMS)], axis=0)))
            for s in SEEDS
        ]
        for name, rule in RULES.items()
    }


def compared(runs: Mapping[str, list[Solved]]) -> dict[str, list[Interval]]:
    """Rule -> differences of both shares to the first rule, with their intervals."""
    base = np.array(next(iter(runs.values())))
    return {name: [paired(np.array(rows)[:, i], base[:, i]) for i in (0, 1)] for name, rows in runs.items()}


def answer_time() -> Iterator[Figure]:
    """The study, kept for the page."""
    from tests.benchmarks.study import save

    runs = test_time()
    save("test-time", {"columns": Solved._fields, "runs": {k: [list(s) for s in v] for k, v in runs.items()}})
    for name, (voted, found) in compared(runs).items():
        for metric, (mean, low, high, n) in (("vote", voted), ("any_right", found)):
            note = f"95 % interval {low:+.4f} to {high:+.4f}, {n} seeds of {PROBLEMS} problems"
            yield Figure(f"test-time/{name}", f"{metric}_over_none", mean, "share", "no reallocation", note=note)
