"""Success rates over time from recorded outcomes: a Beta belief for every prompt at every step.

Outcomes near in time count for a step with exp(-|distance| / width), on top of `strength` pseudo-rollouts at the rate of
the prompt's family around that step. Smoothing looks both ways: it says what the rate was, it does not forecast. Ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from workbench.numerics.beta import log_gamma

REACH = 8
"""Widths after which an outcome no longer counts."""

WIDTHS = (2.0, 5.0, 10.0, 25.0, 60.0)
STRENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True, eq=False)
class Skill:
    """Evidence as columns (E,): step, prompt, successes, tries; family (N,) int64 of each prompt."""

    step: np.ndarray
    prompt: np.ndarray
    successes: np.ndarray
    tries: np.ndarray
    family: np.ndarray
    width: float = 10.0
    strength: float = 4.0

    def at(self, step: int, without: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(N,) alpha, beta at a step; without (E,) bool leaves evidence out."""
        near = np.abs(self.step - step) <= REACH * self.width
        if without is not None:
            near &= ~without
        weight = np.exp(-np.abs(self.step[near] - step) / self.width)
        prompt, n = self.prompt[near], len(self.family)
        won = np.bincount(prompt, weight * self.successes[near], minlength=n)
        tried = np.bincount(prompt, weight * self.tries[near], minlength=n)
        n_families = int(self.family.max(initial=-1)) + 1
        total_won = np.bincount(self.family, won, minlength=n_families)
        total_tried = np.bincount(self.family, tried, minlength=n_families)
        rate = (total_won.sum() + 1) / (total_tried.sum() + 2)  # of all, where a family was not seen
        prior = ((total_won + 2 * rate) / (total_tried + 2))[self.family]
        return self.strength * prior + won, self.strength * (1 - prior) + tried - won

    @classmethod
    def fit(
        cls, step: np.ndarray, prompt: np.ndarray, successes: np.ndarray, tries: np.ndarray, stratum: np.ndarray
    ) -> Skill:
        """Width and strength with the best likelihood of steps left out, every fifth one; stratum (N,) names families."""
        family = np.unique(np.asarray(stratum).astype(str), return_inverse=True)[1]
        columns = (np.asarray(step), np.asarray(prompt), np.asarray(successes, float), np.asarray(tries, float), family)
        best, chosen = -np.inf, cls(*columns)
        for width in WIDTHS:
            for strength in STRENGTHS:
                skill = cls(*columns, width, strength)
                likelihood = held_out(skill).log_likelihood
                if likelihood > best:
                    best, chosen = likelihood, skill
        return chosen


class HeldOut(NamedTuple):
    """How well rates predict outcomes of steps they did not see.

    log_likelihood: mean per rollout group of the Beta-binomial; brier against the observed rates, and base_brier of the
    mean rate in their place; covered: share of outcomes in the central 90 % of their predicted distribution; predicted, observed, groups
    (10,) by tenth of the predicted rate, NaN where empty."""

    log_likelihood: float
    brier: float
    base_brier: float
    covered: float
    predicted: np.ndarray
    observed: np.ndarray
    groups: np.ndarray


def held_out(skill: Skill, every: int = 5) -> HeldOut:
    """Predict every fifth step's outcomes from the other steps."""
    steps = np.unique(skill.step)[every // 2 :: every]
    left_out = np.isin(skill.step, steps)
    a, b = np.empty(len(skill.step)), np.empty(len(skill.step))
    for t in steps.tolist():
        alpha, beta = skill.at(t, left_out)
        mine = skill.step == t
        a[mine], b[mine] = alpha[skill.prompt[mine]], beta[skill.prompt[mine]]
    if not left_out.any():
        empty = np.full(10, np.nan)
        return HeldOut(-np.inf, np.nan, np.nan, np.nan, empty, empty, np.zeros(10, np.int64))
    a, b, s, n = a[left_out], b[left_out], skill.successes[left_out], skill.tries[left_out]
    rate, observed = a / (a + b), s / n
    rest = ~left_out
    base = skill.successes[rest].sum() / max(skill.tries[rest].sum(), 1)
    tenth = np.minimum((10 * rate).astype(np.int64), 9)
    groups = np.bincount(tenth, minlength=10)
    with np.errstate(invalid="ignore"):
        predicted = np.bincount(tenth, rate, minlength=10) / np.where(groups, groups, np.nan)
        seen = np.bincount(tenth, observed, minlength=10) / np.where(groups, groups, np.nan)
    below = sum(np.where(k < s, np.exp(log_beta_binomial(np.minimum(k, n), n, a, b)), 0.0) for k in range(int(n.max())))
    place = below + 0.5 * np.exp(log_beta_binomial(s, n, a, b))  # of the outcome in its predicted distribution
    inside = (place >= 0.05) & (place <= 0.95)
    return HeldOut(
        float(log_beta_binomial(s, n, a, b).mean()),
        float(((rate - observed) ** 2).mean()),
        float(((base - observed) ** 2).mean()),
        float(inside.mean()),
        predicted,
        seen,
        groups,
    )


def log_beta_binomial(s: np.ndarray, n: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """log chance of s successes in n tries at a rate drawn from Beta(a, b)."""

    def log_beta(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return log_gamma(x) + log_gamma(y) - log_gamma(x + y)

    choose = log_gamma(n + 1) - log_gamma(s + 1) - log_gamma(n - s + 1)
    return choose + log_beta(a + s, b + n - s) - log_beta(a, b)


def mixed_chance(n: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Chance that n rollouts at a rate drawn from Beta(a, b) are neither all right nor all wrong."""
    n = np.asarray(n, float)
    zero = np.zeros_like(n)
    return np.maximum(1 - np.exp(log_beta_binomial(zero, n, a, b)) - np.exp(log_beta_binomial(n, n, a, b)), 0.0)
