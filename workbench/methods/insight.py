"""InSight: the prompts about whose success rate the next rollouts will tell most, weighted towards the harder half."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics import beta as beta_law
from workbench.numerics.beliefs import Belief, posterior_update, set_rows
from workbench.numerics.beta import digamma, log_beta, log_gamma
from workbench.numerics.picks import largest, smallest
from workbench.stages import Card, Method
from workbench.types import Draft, Picked, Pool, Step

CARD = Card(
    slug="insight",
    title="InSight: RLVR training via weighted mutual information data selection",
    arxiv="2603.01907",
    source="paper",
    deviations=(
        "mu = 0.3: the appendix prints 3.0, which makes every weight about 1e-10; the paper's two tables agree on 0.3",
        "from 1e5 rollouts of evidence on the information is ln((n + K) / n) / 2, where the closed form cancels",
    ),
    watch="mean evidence and mean success rate of the chosen prompts, the share that was never seen before",
)

_MANY = 1e5
"""Evidence from which the closed form of the information loses its digits."""


def beta_entropy(alpha: ArrayLike, beta: ArrayLike) -> np.ndarray:
    """Differential entropy of Beta(alpha, beta) in nats; may be negative."""
    a, b = np.asarray(alpha, float), np.asarray(beta, float)
    return log_beta(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b)


def beta_binomial_pmf(alpha: ArrayLike, beta: ArrayLike, K: int) -> np.ndarray:
    """Chance of s = 0..K successes in the next K rollouts: (K + 1,), or (M, K + 1) for M beliefs."""
    a, b = np.asarray(alpha, float)[..., None], np.asarray(beta, float)[..., None]
    s = np.arange(K + 1.0)
    log_choose = log_gamma(K + 1) - log_gamma(s + 1) - log_gamma(K - s + 1)
    return np.exp(log_choose + log_beta(a + s, b + K - s) - log_beta(a, b))


def mutual_information(alpha: ArrayLike, beta: ArrayLike, K: int) -> np.ndarray:
    """Nats that K more rollouts are expected to tell about the success rate; floats or (M,), never negative.

    H(alpha, beta) - sum over s of P(s) H(alpha + s, beta + K - s). A belief with a zero count knows all: 0."""
    a, b = np.broadcast_arrays(np.asarray(alpha, float), np.asarray(beta, float))
    proper, many = (a > 0) & (b > 0), a + b >= _MANY
    # beliefs outside the closed form's range are replaced before it, so that it cannot overflow
    closed = proper & ~many
    x, y = np.where(closed, a, 1.0), np.where(closed, b, 1.0)
    s = np.arange(K + 1.0)
    after = beta_entropy(x[..., None] + s, y[..., None] + K - s)
    information = beta_entropy(x, y) - (beta_binomial_pmf(x, y, K) * after).sum(axis=-1)
    information = np.where(many, 0.5 * np.log1p(K / np.where(many, a + b, 1.0)), information)
    return np.where(proper, np.maximum(information, 0.0), 0.0)


class Worth(NamedTuple):
    """phi_bar = mean of the belief, weight, mutual_information, score = weight times information; floats or (M,)."""

    phi_bar: np.ndarray
    weight: np.ndarray
    mutual_information: np.ndarray
    score: np.ndarray


def wmi(alpha: ArrayLike, beta: ArrayLike, K: int, eta: float = 3.0, mu: float = 0.3) -> Worth:
    """Weighted mutual information: phi (1 - phi) exp(-eta (phi - mu)^2) times what K rollouts tell.

    phi = alpha / (alpha + beta), 0 where both are 0."""
    a, b = np.asarray(alpha, float), np.asarray(beta, float)
    phi = a / np.where(a + b > 0, a + b, 1.0)
    weight = phi * (1 - phi) * np.exp(-eta * (phi - mu) ** 2)
    information = mutual_information(a, b, K)
    return Worth(phi, weight, information, weight * information)


Criterion: TypeAlias = Literal["wmi", "difficulty", "evidence"]


@dataclass(frozen=True)
class Insight(Method):
    """Difficulty weight times expected information of K more rollouts, over random candidates; no draw from beliefs.

    K: rollouts a prompt will get. eta, mu: width and centre of the difficulty weight. decay < 1 pulls a belief back to
    the prior when its prompt is rolled out. criterion: wmi, or the paper's simpler rivals difficulty (mean nearest to
    one half) and evidence (fewest rollouts).
    """

    K: int = 8
    eta: float = 3.0
    mu: float = 0.3
    decay: float = 1.0
    candidate_ratio: float = 16
    alpha0: float = 1.0
    beta0: float = 1.0
    criterion: Criterion = "wmi"

    card = CARD

    def __post_init__(self) -> None:
        if self.criterion not in get_args(Criterion):
            raise ValueError(f"no criterion {self.criterion!r}; there are {', '.join(get_args(Criterion))}")

    def init(self, pool: Pool) -> Belief:
        """The prior for every prompt."""
        return Belief(np.full(len(pool), float(self.alpha0)), np.full(len(pool), float(self.beta0)))

    def observe(self, state: Belief, step: Step) -> Belief:
        """Count the plain outcomes of the prompts that were rolled out."""
        rows, solved, tried = step.evidence(len(state.alpha))
        new = posterior_update(state.alpha[rows], state.beta[rows], solved, tried, self.decay, self.alpha0, self.beta0)
        return Belief(set_rows(state.alpha, rows, new.alpha), set_rows(state.beta, rows, new.beta))

    def reveal(self, state: Belief) -> Mapping[str, np.ndarray]:
        """mean with its central 90 % interval, evidence = rollouts counted with the prior, and the score's two factors.

        Equal beliefs are computed once."""
        pairs, which = np.unique(state.alpha + 1j * state.beta, return_inverse=True)
        a, b = pairs.real, pairs.imag
        low, high = beta_law.interval(a, b)
        worth = wmi(a, b, self.K, self.eta, self.mu)
        columns = {
            "mean": worth.phi_bar,
            "low": low,
            "high": high,
            "evidence": a + b,
            "weight": worth.weight,
            "information": worth.mutual_information,
            "score": worth.score,
        }
        return {name: column[which] for name, column in columns.items()}

    def select(self, state: Belief, draft: Draft, rng: np.random.Generator) -> Picked:
        """The best of `candidate_ratio` random candidates for each place; among equals, who was drawn first."""
        rows = draft.candidates()
        uniform = rng.random(len(state.alpha))[rows]
        rows = rows[smallest(uniform, ceil(self.candidate_ratio * draft.wanted))]
        a, b = state.alpha[rows], state.beta[rows]
        if self.criterion == "wmi":
            worth = wmi(a, b, self.K, self.eta, self.mu)
            information = {"weight": worth.weight, "information": worth.mutual_information}
            return Picked.among(rows, largest(worth.score, draft.wanted), **information, score=worth.score)
        if self.criterion == "difficulty":
            phi_bar = a / (a + b)
            return Picked.among(rows, smallest(np.abs(phi_bar - 0.5), draft.wanted), phi_bar=phi_bar)
        return Picked.among(rows, smallest(a + b, draft.wanted), evidence=a + b)
