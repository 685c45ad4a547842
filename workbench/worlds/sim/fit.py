"""Fit of the simulated policy to a recorded run: the recording, and a least-squares search.

Start, spread and lengths are moments of the recording. What training moves is found by least squares between the
recorded curves and those of simulated runs: a local random search over nine or more numbers (gradients would have to
pass through Bernoulli draws; a grid is too large). One recording cannot tell forgetting from a plateau, so these two
stand in for each other; family gains are held near 1 by a penalty. Methods compared in the simulation play no part:
the recorded loop was plain GRPO over shuffled prompts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from workbench.types import Advantage, Plan
from workbench.worlds.sim.dynamics import Dynamics, Family, sigmoid
from workbench.worlds.sim.world import SimWorld

G, P = 8, 16


class Recording(NamedTuple):
    """Curves of a recorded GRPO run of P = 16 prompts x G = 8 rollouts a step.

    reward, live, length (B,): means over B equal parts of the run's steps (binary reward, share of groups that are
    neither all right nor all wrong, tokens). eval_step (E,); eval_rate (E, S): sampled pass rate of each family.
    """

    families: tuple[str, ...]
    steps: int
    reward: np.ndarray
    live: np.ndarray
    length: np.ndarray
    eval_step: np.ndarray
    eval_rate: np.ndarray

    @classmethod
    def of(cls, run: dict, parts: int = 9) -> Recording:
        """From a table of the form {"tasks": [...], "log": [{reward, live, len}], "evals": [{step, by: {...}}]}."""
        reward, live, length = (_parts([row[c] for row in run["log"]], parts) for c in ("reward", "live", "len"))
        rate = np.array([[e["by"][family] for family in run["tasks"]] for e in run["evals"]])
        at = np.array([e["step"] for e in run["evals"]])
        return cls(tuple(run["tasks"]), len(run["log"]), reward, live, length, at, rate)


RECORDED = Recording(
    families=("sub <=20", "mul 2dx1d", "max of 3 2d", "rg basic_arithmetic 2-3t 1d", "add 2d+2d"),
    steps=89,
    reward=np.array([0.349, 0.481, 0.621, 0.649, 0.618, 0.63, 0.673, 0.676, 0.708]),
    live=np.array([0.531, 0.463, 0.4, 0.319, 0.281, 0.312, 0.269, 0.181, 0.257]),
    length=np.array([5.3, 5.201, 5.267, 5.319, 5.216, 4.903, 4.933, 4.959, 5.073]),
    eval_step=np.array([0, 20, 40, 60, 80, 89]),
    eval_rate=np.array(
        [
            [0.2969, 0.3281, 0.3906, 0.4062, 0.2188],
            [0.6719, 0.4062, 0.6094, 0.5312, 0.4375],
            [0.375, 0.4844, 0.875, 0.4844, 0.5312],
            [0.625, 0.4062, 0.9375, 0.5156, 0.625],
            [0.5625, 0.5, 0.9688, 0.5, 0.6719],
            [0.6719, 0.4688, 0.9375, 0.4844, 0.6094],
        ]
    ),
)
"""SmolLM2-135M-Instruct, five-task mix, GRPO, AdamW 1e-5, gradient clipped to 1, binary reward, 2026-11-27.

Evaluation: 16 prompts a family, 4 samples each at temperature 1, so a family's rate has a standard error near 0.06."""


class Curves(NamedTuple):
    """reward, live, length (steps,) of a simulated run; eval_rate (E, S) true pass rates; world as it ended."""

    reward: np.ndarray
    live: np.ndarray
    length: np.ndarray
    eval_rate: np.ndarray


def simulate(dynamics: Dynamics, steps: int, eval_step: np.ndarray, seed: int = 0) -> Curves:
    """Plain GRPO with binary reward over uniformly drawn prompts, as the recorded loop did it."""
    world = SimWorld(n_prompts=900, n_eval=1000, dynamics=dynamics, seed=seed)
    rng = np.random.default_rng([seed, 1])
    s = len(dynamics.families)
    rates, rows = [], []
    for step in range(steps + 1):
        if step:
            prompts = rng.choice(len(world.pool), P, replace=False)
            got = world.sample(Plan(prompts, np.full(P, G), step=step))
            correct = got.correct.reshape(P, G)
            mean = correct.mean(1, keepdims=True)
            value = (correct - mean) / (correct.std(1, ddof=1, keepdims=True) + 1e-4)
            world.update(got, replace(Advantage.start(got), value=value.ravel()))
            rows.append((mean.mean(), ((mean > 0) & (mean < 1)).mean(), got.length.mean()))
        if step in eval_step:
            rate = world.pass_rate(evaluation=True)
            rates.append([rate[i::s].mean() for i in range(s)])
    reward, live, length = np.array(rows).T
    return Curves(reward, live, length, np.array(rates))


def starts(rate: np.ndarray, live: float) -> tuple[np.ndarray, float]:
    """(S,) mean logits and their common spread that give families these pass rates (S,) and this share of live groups.

    Both are expectations over logit ~ normal(start, spread), by Gauss-Hermite quadrature and bisection."""
    x, weight = np.polynomial.hermite_e.hermegauss(61)
    weight = weight / weight.sum()

    def at(spread: float) -> tuple[np.ndarray, float]:
        low, high = np.full(len(rate), -20.0), np.full(len(rate), 20.0)
        for _ in range(60):
            middle = (low + high) / 2
            below = sigmoid(middle[:, None] + spread * x) @ weight < rate
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        p = sigmoid(low[:, None] + spread * x)
        return low, float(((1 - p**G - (1 - p) ** G) @ weight).mean())

    low, high = 0.01, 10.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle)[1] > live else (low, middle)
    return at(low)[0], low


def lengths(recording: Recording, spread: float = 0.3) -> tuple[float, float]:
    """(log_length, wrong_longer) by regression of tokens on the share of wrong answers."""
    wrong = 1 - recording.reward
    slope, right = np.polyfit(wrong, recording.length, 1)
    right = max(float(right), 1.0)
    return float(np.log(right) - spread**2 / 2), float(np.log(max(right + slope, right) / right))


_MOVES = ("rate", "general", "specific", "noise", "sharpening", "forgetting")
_GUESS = (0.1424, 0.029, 1.888, 0.3702, 0.019, 0.01505)


def misfit(dynamics: Dynamics, recording: Recording, seeds: int = 3) -> float:
    """Mean squared error of the simulated curves, each in units of the recording's standard error."""
    runs = [simulate(dynamics, recording.steps, recording.eval_step, seed) for seed in range(seeds)]
    mean = Curves(*(np.mean(column, axis=0) for column in zip(*runs, strict=True)))
    parts = len(recording.live)
    live = (_parts(mean.live, parts) - recording.live) / 0.05
    reward = (_parts(mean.reward, parts) - recording.reward) / 0.06
    family = (mean.eval_rate - recording.eval_rate) / 0.09
    total = (mean.eval_rate.mean(1) - recording.eval_rate.mean(1)) / 0.03
    gain = np.log([f.gain for f in dynamics.families])
    return float(
        (total**2).mean() + (live**2).mean() + 0.5 * ((reward**2).mean() + (family**2).mean() + (gain**2).sum())
    )


def fit(recording: Recording, *, trials: int = 500, seeds: int = 3, seed: int = 0) -> Dynamics:
    """Dynamics of a recorded run; about 0.2 s a trial, the same numbers for the same seed."""
    start, spread = starts(recording.eval_rate[0], float(recording.live[0]))
    log_length, wrong_longer = lengths(recording)
    rng = np.random.default_rng(seed)
    s = len(recording.families)

    def at(theta: np.ndarray) -> Dynamics:
        value = np.exp(theta)
        families = zip(recording.families, start, [spread] * s, value[len(_MOVES) :], strict=True)
        return Dynamics(
            families=tuple(Family(f, float(a), float(b), float(c)) for f, a, b, c in families),
            log_length=log_length,
            wrong_longer=wrong_longer,
            **dict(zip(_MOVES, value[: len(_MOVES)].tolist(), strict=True)),
        )

    best = np.log([*_GUESS, *np.ones(s)])
    least = misfit(at(best), recording, seeds)
    for trial in range(trials):
        move = rng.standard_normal(len(best)) * (rng.random(len(best)) < 0.4)
        theta = best + 0.6 * 0.998**trial * move
        error = misfit(at(theta), recording, seeds)
        if error < least:
            best, least = theta, error
    return at(best)


def _parts(values: np.ndarray | list[float], parts: int) -> np.ndarray:
    return np.array([part.mean() for part in np.array_split(np.asarray(values, float), parts)])
