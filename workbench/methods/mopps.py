"""MoPPS: a Beta belief per prompt, one draw from each candidate, the draws nearest to a target are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics import beliefs
from workbench.numerics import beta as beta_law
from workbench.numerics.beliefs import Belief, check_counts, posterior_update, set_rows
from workbench.numerics.picks import smallest
from workbench.stages import Card, Method
from workbench.types import Draft, Picked, Pool, Step

CARD = Card(
    slug="mopps",
    title="MoPPS: can prompt difficulty be online predicted?",
    arxiv="2507.04632",
    code="https://github.com/thu-rllab/MoPPS",
    source="C*",
    deviations=(
        "a group of one counts as one rollout; the released code sets alpha and beta to 8 there",
        "successes and tries are those that were scored; the code multiplies the rate by the configured group size",
        "candidates are a fresh random subset of what is left of the pool; the code takes the next of a shuffled loader",
    ),
    watch="rank correlation of the posterior mean with the observed rate of the batch, the share of mixed groups",
)


def warm_start(
    successes: ArrayLike, n: ArrayLike, weight: float = 3.0, alpha0: float = 1.0, beta0: float = 1.0
) -> Belief:
    """The belief from an offline profile: prior plus `weight` times its successes and failures."""
    check_counts(successes, n)
    s, n = np.asarray(successes, float), np.asarray(n, float)
    return Belief(alpha0 + weight * s, beta0 + weight * (n - s))


def draw(alpha: ArrayLike, beta: ArrayLike, rng: np.random.Generator) -> np.ndarray:
    """(M,) one success rate from each belief; the only random part."""
    return beliefs.draw(np.asarray(alpha, float), np.asarray(beta, float), rng)


def select_topk(draws: ArrayLike, batch_size: int, target: float = 0.5) -> np.ndarray:
    """Positions of the batch_size draws (M,) nearest to the target, nearest first; ties in candidate order."""
    return smallest((np.asarray(draws, float) - target) ** 2, batch_size)


def select_threshold_fallback(draws: ArrayLike, batch_size: int, low: float = 0.3, high: float = 0.7) -> np.ndarray:
    """Positions of the batch_size draws nearest to the band [low, high]; those inside come first, in candidate order."""
    return smallest(_outside(np.asarray(draws, float), low, high), batch_size)


def _outside(draws: np.ndarray, low: float, high: float) -> np.ndarray:
    """(M,) distance of each draw to the band [low, high], 0 inside."""
    return np.maximum(np.maximum(low - draws, draws - high), 0.0)


def expected_sq_distance(alpha: ArrayLike, beta: ArrayLike, target: float = 0.5) -> np.ndarray:
    """E (p - target)^2 for p ~ Beta(alpha, beta): variance plus squared bias; what a draw is worth on average."""
    a, b = np.asarray(alpha, float), np.asarray(beta, float)
    return a * b / ((a + b) ** 2 * (a + b + 1)) + (a / (a + b) - target) ** 2


@dataclass(frozen=True)
class Mopps(Method):
    """Thompson draws over `ts_ratio` candidates per place; the nearest to `target` are rolled out.

    strategy: topk; threshold = a random choice among draws inside [low, high], filled up with the nearest to the band;
    uniform = a random choice of the candidates. decay pulls a belief back to the prior whenever its prompt is rolled
    out. warm_weight > 0 starts from the pool's extra columns "profile_successes" and "profile_n".
    """

    target: float = 0.5
    strategy: Literal["topk", "threshold", "uniform"] = "topk"
    low: float = 0.3
    high: float = 0.7
    decay: float = 1.0
    ts_ratio: float = 16
    alpha0: float = 1.0
    beta0: float = 1.0
    warm_weight: float = 0.0

    card = CARD

    def init(self, pool: Pool) -> Belief:
        """The prior for every prompt, or the offline profile."""
        if not self.warm_weight:
            return Belief(np.full(len(pool), float(self.alpha0)), np.full(len(pool), float(self.beta0)))
        missing = [c for c in ("profile_successes", "profile_n") if c not in pool.extra]
        if missing:
            raise ValueError(f"warm_weight={self.warm_weight} needs the pool's extra columns {', '.join(missing)}")
        return warm_start(
            pool.extra["profile_successes"], pool.extra["profile_n"], self.warm_weight, self.alpha0, self.beta0
        )

    def observe(self, state: Belief, step: Step) -> Belief:
        """Count the plain outcomes of the prompts that were rolled out."""
        rows, solved, tried = step.evidence(len(state.alpha))
        new = posterior_update(state.alpha[rows], state.beta[rows], solved, tried, self.decay, self.alpha0, self.beta0)
        return Belief(set_rows(state.alpha, rows, new.alpha), set_rows(state.beta, rows, new.beta))

    def reveal(self, state: Belief) -> Mapping[str, np.ndarray]:
        """mean with its central 90 % interval, alpha, beta, and the expected squared distance from the target."""
        low, high = beta_law.interval(*state)
        return {
            "mean": state.mean,
            "low": low,
            "high": high,
            "alpha": state.alpha,
            "beta": state.beta,
            "distance": expected_sq_distance(*state, self.target),
        }

    def select(self, state: Belief, draft: Draft, rng: np.random.Generator) -> Picked:
        """The candidates whose draws lie best. All draws are columns over the whole pool, so that a prompt meets the
        same draws whatever else is in the pipeline. draw = the drawn rate, distance = its own to the target or the band."""
        rows, n = draft.candidates(), len(state.alpha)
        uniform, order = rng.random(n), rng.random(n)
        rows = rows[np.sort(smallest(uniform[rows], ceil(self.ts_ratio * draft.wanted)))]
        if self.strategy == "uniform":
            return Picked.among(rows, smallest(order[rows], draft.wanted))
        draws = draw(*state, rng)[rows]
        if self.strategy == "topk":
            best = select_topk(draws, draft.wanted, self.target)
            return Picked.among(rows, best, draw=draws, distance=np.abs(draws - self.target))
        inside = np.flatnonzero((draws >= self.low) & (draws <= self.high))
        if len(inside) < draft.wanted:
            best = select_threshold_fallback(draws, draft.wanted, self.low, self.high)
        else:
            best = inside[smallest(order[rows[inside]], draft.wanted)]
        return Picked.among(rows, best, draw=draws, distance=_outside(draws, self.low, self.high))
