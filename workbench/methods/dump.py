"""DUMP, a curriculum over sources of prompts: drawn by the size of their recent advantages and how rarely they were seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics import beta as beta_law
from workbench.numerics.picks import smallest
from workbench.stages import Card, Method
from workbench.types import Draft, Picked, Pool, Step

CARD = Card(
    slug="dump",
    title="DUMP: automated distribution-level curriculum learning for RL-based LLM post-training",
    arxiv="2504.09710",
    code="https://github.com/ZhentingWang/DUMP",
    source="C*",
    deviations=(
        "a prompt is drawn once a step at most, and the places of a source that has no prompt left go to the others; "
        "the code draws with replacement",
        "the code also feeds the mean reward of each validation set as if it were an advantage; not done here",
    ),
    watch="probability of each source against its success rate: it should leave where accuracy saturates",
)


class Arms(NamedTuple):
    """ucb = learnability plus bonus, probs = chance of being drawn; both (D,)."""

    ucb: np.ndarray
    probs: np.ndarray


def ucb_and_probs(learnability: ArrayLike, counts: ArrayLike, tau: float = 0.1) -> Arms:
    """L_d + sqrt(2 ln(N + 1) / (n_d + 1)) with N = max(1, sum of n), and its softmax at temperature tau; all (D,).

    Raises ValueError for a temperature that is not positive."""
    if not tau > 0:
        raise ValueError(f"the temperature of the softmax must be positive, got tau={tau}")
    worth, n = np.asarray(learnability, float), np.asarray(counts, float)
    ucb = worth + np.sqrt(2 * np.log(max(1.0, n.sum()) + 1) / (n + 1))
    weight = np.exp((ucb - ucb.max(initial=-np.inf)) / tau)
    return Arms(ucb, weight / weight.sum() if len(weight) else weight)


def spread(
    probs: np.ndarray, source: np.ndarray, uniform: np.ndarray, places: int, rng: np.random.Generator
) -> np.ndarray:
    """Positions of `places` candidates: sources drawn by probs (D,), inside a source the smallest uniform number, each once.

    source (M,) int64, uniform (M,) in 0..1. Places that a source cannot fill are drawn again among those that still can."""
    size = np.bincount(source, minlength=len(probs))
    taken = np.zeros(len(probs), np.int64)
    left = min(places, len(source))
    while left:
        weight = np.where(taken < size, probs, 0.0)
        if not weight.sum() > 0:
            weight = (taken < size).astype(float)
        taken = np.minimum(taken + rng.multinomial(left, weight / weight.sum()), size)
        left = min(places, len(source)) - int(taken.sum())
    picked = [
        rows[smallest(uniform[rows], k)]
        for d, k in enumerate(taken.tolist())
        if k
        for rows in [np.flatnonzero(source == d)]
    ]
    return np.concatenate([np.empty(0, np.int64), *picked])


class Bandit(NamedTuple):
    """source (N,) int64 of every prompt; window (D, W) float64 ring of advantages, NaN = empty; counts (D,) int64
    rollouts ever seen; solved, tried (D,) float64 of plain rollouts, for display."""

    source: np.ndarray
    window: np.ndarray
    counts: np.ndarray
    solved: np.ndarray
    tried: np.ndarray

    @property
    def learnability(self) -> np.ndarray:
        """(D,) mean |advantage| over each window, 0 where empty. Zeros of settled groups count: they let a source sink."""
        filled = np.minimum(self.counts, self.window.shape[1])
        return np.nansum(np.abs(self.window), axis=1) / np.maximum(filled, 1)

    def fed(self, source: np.ndarray, advantage: np.ndarray, correct: np.ndarray) -> Bandit:
        """With the advantages (R,) and outcomes (R,) of rollouts of sources (R,), in batch order: the latest W of each stay."""
        n_sources, width = self.window.shape
        new = np.bincount(source, minlength=n_sources)
        order = np.argsort(source, kind="stable")
        rank = np.empty(len(source), np.int64)
        rank[order] = np.arange(len(source)) - np.repeat(np.cumsum(new) - new, new)
        last = rank >= new[source] - width  # a step longer than the window writes its last part only
        window = self.window.copy()
        window[source[last], (self.counts[source] + rank)[last] % width] = advantage[last]
        solved = np.bincount(source, correct, minlength=n_sources)
        return Bandit(self.source, window, self.counts + new, self.solved + solved, self.tried + new)


@dataclass(frozen=True)
class Dump(Method):
    """Sources (strata of the pool) as arms of a bandit, fed by absolute advantages; prompts inside one are drawn evenly.

    window: rollouts of a source that are remembered. With S sources and R rollouts a step it covers about
    window * S / R steps. tau fits advantages divided by the group's std, whose mean size is near 2 sqrt(p (1 - p));
    set it anew for an estimator that does not divide.
    """

    window: int = 300
    tau: float = 0.1

    card = CARD

    def init(self, pool: Pool) -> Bandit:
        """No advantage seen; prompts without a label are of source "default"."""
        label = np.asarray(pool.stratum).astype(str)
        names, source = np.unique(np.where(label == "", "default", label), return_inverse=True)
        none = np.zeros(len(names))
        window = np.full((len(names), self.window), np.nan)
        return Bandit(source.astype(np.int64), window, none.astype(np.int64), none, none.copy())

    def observe(self, state: Bandit, step: Step) -> Bandit:
        """Append the advantage of every scored training rollout to the ring of its source, in batch order."""
        a, r = step.advantage, step.rollouts
        value = a.value if a.tokens is None else np.where(a.tokens.lengths > 0, a.tokens.mean(), 0.0)
        rows = np.flatnonzero(r.plain & (r.ask >= 0))
        return state.fed(state.source[r.prompt[rows]], value[rows], r.correct[rows])

    def reveal(self, state: Bandit) -> Mapping[str, np.ndarray]:
        """mean, low, high = success rate of the prompt's source (Beta(1, 1) prior, central 90 %); learnability, ucb, prob
        and count of the source."""
        a, b = 1 + state.solved, 1 + state.tried - state.solved
        low, high = beta_law.interval(a, b)
        arms = ucb_and_probs(state.learnability, state.counts, self.tau)
        columns = {
            "mean": a / (a + b),
            "low": low,
            "high": high,
            "learnability": state.learnability,
            "ucb": arms.ucb,
            "prob": arms.probs,
            "count": state.counts.astype(float),
        }
        return {name: column[state.source] for name, column in columns.items()}

    def select(self, state: Bandit, draft: Draft, rng: np.random.Generator) -> Picked:
        """A source for every place, then its candidates in random order."""
        rows = draft.candidates()
        uniform = rng.random(len(state.source))[rows]
        arms, source = ucb_and_probs(state.learnability, state.counts, self.tau), state.source[rows]
        best = spread(arms.probs, source, uniform, draft.wanted, rng)
        return Picked.among(rows, best, ucb=arms.ucb[source], prob=arms.probs[source])
