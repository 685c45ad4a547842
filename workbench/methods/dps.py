"""DPS: a three-state Markov chain per prompt, and the prompts that are most surely partly solved at the next step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.picks import largest, smallest
from workbench.stages import Card, Method
from workbench.types import Draft, Picked, Pool, Step

CARD = Card(
    slug="dps",
    title="DPS: dynamics-predictive sampling for active RL finetuning",
    arxiv="2603.10887",
    code="https://github.com/maoyixiu/DPS",
    source="C*",
    deviations=(
        "all prompts of the pool are known from the start; the code meets a prompt when it first is a candidate, which "
        "matters only with a prior other than uniform",
        "a transition that the prior makes impossible adds no count; the code divides by zero there",
        "a group of one says nothing of state 1 and is not observed (singles=True observes it)",
        "candidates are a fresh random subset of the pool, and ties are in random order; the code takes the next of a "
        "shuffled loader and sorts unstably",
    ),
    watch="share of the batch that turns out partly solved, predicted against observed state, times sampled",
)

NONE, PARTLY, ALL = range(3)
"""States of a prompt: no rollout correct, some, all."""

Prior: TypeAlias = Literal["uniform", "progress", "stability", "local"]

PRIORS: Mapping[str, np.ndarray] = {
    "uniform": np.ones((3, 3)),
    "progress": np.array([[1, 0.5, 0.5], [1, 1, 0.5], [1, 1, 1]]),
    "stability": np.where(np.eye(3) > 0, 1.0, 0.5),
    "local": np.array([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]]),
}
"""Dirichlet counts of the transition matrix before any evidence; row = state arrived at, column = state left."""


def discretise(success_rates: ArrayLike) -> np.ndarray:
    """The state seen at each success rate (M,): 0 at 0, 2 at 1, else 1; int64."""
    rate = np.asarray(success_rates, float)
    return np.where(rate <= 0, NONE, np.where(rate >= 1, ALL, PARTLY)).astype(np.int64)


def expected_transition(alpha: ArrayLike) -> np.ndarray:
    """Mean transition matrix of the counts (3, 3) or (3, 3, N): every column divided by its sum."""
    alpha = np.asarray(alpha, float)
    return alpha / alpha.sum(axis=0)


def soft_count(alpha: np.ndarray, mu_prev_post: np.ndarray, mu_post: np.ndarray) -> np.ndarray:
    """Probability of each (arrived, left) pair given both filtered states; (3, 3) or (3, 3, K).

    xi_ij proportional to mu_post_i P_ij mu_prev_j with P from before the update; zeros where no pair is possible."""
    joint = mu_post[:, None] * expected_transition(alpha) * mu_prev_post[None]
    total = joint.sum(axis=(0, 1))
    return joint / np.where(total > 0, total, 1.0)


def predict(alpha: ArrayLike, mu_post: ArrayLike) -> np.ndarray:
    """State distribution of the coming step, P mu_post, normalised; alpha (3, 3[, N]), mu_post (3,[ N])."""
    mu = (expected_transition(alpha) * np.asarray(mu_post, float)[None]).sum(axis=1)
    return mu / mu.sum(axis=0)


def score(mu_prior: np.ndarray, entropy_weight: float = 0.0) -> np.ndarray:
    """(M,) chance of being partly solved plus entropy_weight times the entropy of the prediction; mu_prior (3, M)."""
    if not entropy_weight:
        return mu_prior[PARTLY]
    return mu_prior[PARTLY] - entropy_weight * (mu_prior * np.log(mu_prior + 1e-10)).sum(axis=0)


class Chains(NamedTuple):
    """The chains of N prompts, prompts last: alpha (3, 3, N), mu_prior, mu_post (3, N), times_sampled (N,) int64."""

    alpha: np.ndarray
    mu_prior: np.ndarray
    mu_post: np.ndarray
    times_sampled: np.ndarray


def filtered(chains: Chains, rows: np.ndarray, rate: np.ndarray, prior: np.ndarray, decay: float) -> Chains:
    """The chains after a step that saw success rates (K,) at prompts `rows` (K,); prior (3, 3) counts.

    Forget towards the prior and add what was seen: alpha' = decay alpha + (1 - decay) prior + soft count of the transition.
    A prompt that was not seen is where it was predicted to be."""
    mu_post = chains.mu_prior.copy()
    mu_post[:, rows] = np.eye(3)[:, discretise(rate)]
    alpha = decay * chains.alpha
    alpha += (1 - decay) * prior[:, :, None]
    alpha[:, :, rows] += soft_count(chains.alpha[:, :, rows], chains.mu_post[:, rows], mu_post[:, rows])
    times = chains.times_sampled.copy()
    times[rows] += 1
    return Chains(alpha, predict(alpha, mu_post), mu_post, times)


@dataclass(frozen=True)
class Dps(Method):
    """Every prompt's state (none, some, all correct) is filtered and predicted; the surest "some" are rolled out.

    decay is the memory of the transition counts: the paper's scripts have 0.7 (MATH) and 0.5 (Countdown, Geometry3k).
    An unvisited prompt drifts back to the prior, which is the only exploration while entropy_weight is 0.
    candidate_ratio: random candidates for each place. prior: see PRIORS. singles=True observes groups of one.
    """

    decay: float = 0.7
    entropy_weight: float = 0.0
    candidate_ratio: float = 32
    prior: Prior = "uniform"
    singles: bool = False

    card = CARD

    def __post_init__(self) -> None:
        if self.prior not in PRIORS:
            raise ValueError(f"no prior {self.prior!r}; there are {', '.join(get_args(Prior))}")

    def init(self, pool: Pool) -> Chains:
        """Prior counts, and no idea of any prompt's state."""
        n = len(pool)
        alpha = np.repeat(PRIORS[self.prior][:, :, None], n, axis=2)
        third = np.full((3, n), 1 / 3)
        return Chains(alpha, third, third.copy(), np.zeros(n, np.int64))

    def observe(self, state: Chains, step: Step) -> Chains:
        """Filter the prompts that were rolled out, forget and predict for all."""
        rows, solved, tried = step.evidence(state.alpha.shape[2])
        if not self.singles:
            several = tried > 1
            rows, solved, tried = rows[several], solved[several], tried[several]
        return filtered(state, rows, solved / np.maximum(tried, 1), PRIORS[self.prior], self.decay)

    def reveal(self, state: Chains) -> Mapping[str, np.ndarray]:
        """mean = success rate that the prediction implies, partly solved counted as one half; low and high = the rate
        if every partly solved prompt were hardly or nearly solved; then the three probabilities, the score, and how
        often a prompt was observed."""
        none, partly, all_ = np.clip(state.mu_prior, 0, 1)
        return {
            "mean": np.clip(all_ + partly / 2, 0, 1),
            "low": np.clip(all_, 0, 1),
            "high": np.clip(all_ + partly, 0, 1),
            "none": none,
            "partly": partly,
            "all": all_,
            "score": score(state.mu_prior, self.entropy_weight),
            "times_sampled": state.times_sampled.astype(float),
        }

    def select(self, state: Chains, draft: Draft, rng: np.random.Generator) -> Picked:
        """The candidates with the best scores; which are candidates, and who wins a tie, is drawn."""
        rows = draft.candidates()
        uniform = rng.random(len(state.times_sampled))[rows]
        rows = rows[smallest(uniform, ceil(self.candidate_ratio * draft.wanted))]
        worth = score(state.mu_prior[:, rows], self.entropy_weight)
        return Picked.among(rows, largest(worth, draft.wanted), partly=state.mu_prior[PARTLY, rows], score=worth)
