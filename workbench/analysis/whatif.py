"""Off-policy replay (what if): the rounds of a recorded run again, with another pipeline deciding.

What it can say: what would have been asked, how mixed those groups were or would have been, what they cost, how far it
agrees with what was asked, and how much of it the recording cannot answer. What it cannot say: how well the model would
have learned from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from workbench.analysis.html import cell, table
from workbench.numerics.success_over_time import HeldOut, Skill, held_out, mixed_chance
from workbench.pipeline import Pipeline, advance
from workbench.types import Budget, Pool, Step
from workbench.worlds.replay import Recording, ReplayWorld, Serve

if TYPE_CHECKING:
    from workbench.store import Store

THIN = 0.5
"""Share of the asked rollouts that must have been recorded before groups of recorded rollouts are compared."""

METRICS = ("mixed", "mixed_expected", "tokens", "agreement")


@dataclass(frozen=True, eq=False)
class WhatIf:
    """One pipeline replayed over T steps of a run.

    Columns (T,): asked and served rollouts; mixed = share of served groups whose outcomes differ; mixed_expected = the
    same by the fitted skill, for all that was asked; tokens of what was served; agreement = rollouts asked of the same
    prompts by both pipelines, over those asked by either. shortfall (N,) int64 rollouts by prompt that were asked and
    never recorded. calibration: how well the skill predicts steps it did not see.
    """

    run: str
    pipeline: str
    serve: Serve
    window: int
    step: np.ndarray
    asked: np.ndarray
    served: np.ndarray
    mixed: np.ndarray
    mixed_expected: np.ndarray
    tokens: np.ndarray
    agreement: np.ndarray
    shortfall: np.ndarray
    pool: Pool = field(repr=False)
    calibration: HeldOut = field(repr=False)
    plans: dict[int, dict[int, int]] = field(repr=False, default_factory=dict)

    @property
    def coverage(self) -> float:
        """Share of the asked rollouts that could be served."""
        total = int(self.asked.sum())
        return float(self.served.sum() / total) if total else float("nan")

    @property
    def verdict(self) -> str:
        """What may be read off, in words."""
        if self.serve == "fitted":
            h = self.calibration
            good = h.brier < h.base_brier
            return (
                f"all outcomes are drawn from the fitted skill; on held-out steps its Brier score is {h.brier:.3f} "
                f"against {h.base_brier:.3f} of the mean rate"
                + ("" if good else ": it knows nothing, do not rank by it")
            )
        if self.coverage < THIN:
            return (
                f"only {self.coverage:.0%} of what it asks was recorded: too thin to compare recorded groups; "
                "mixed_expected and serve='fitted' go beyond the recording"
            )
        return f"{self.coverage:.0%} of what it asks was recorded"

    def interval(self, metric: str, level: float = 0.95, resamples: int = 2000) -> tuple[float, float, float]:
        """(mean, low, high) of a metric over steps, by bootstrap over blocks of neighbouring steps."""
        return block_bootstrap(getattr(self, metric), level, resamples)

    def most_missing(self, n: int = 10) -> list[tuple[str, int]]:
        """Prompts asked for most and recorded least: (prompt id, rollouts)."""
        rows = np.argsort(-self.shortfall, kind="stable")[:n]
        return [(str(self.pool.ids[r]), int(self.shortfall[r])) for r in rows if self.shortfall[r]]

    def summary(self) -> dict[str, object]:
        """One row for a table: means with 95 % intervals."""
        row: dict[str, object] = {"pipeline": self.pipeline, "asked": int(self.asked.sum()), "coverage": self.coverage}
        for metric in METRICS:
            mean, low, high = self.interval(metric)
            row |= {metric: mean, f"{metric}_low": low, f"{metric}_high": high}
        return row

    def _repr_html_(self) -> str:
        s = self.summary()
        cells = "".join(f"<tr><td>{escape(k)}</td><td>{cell(v)}</td></tr>" for k, v in s.items())
        return f"<table><caption>{escape(self.run)}: {escape(self.verdict)}</caption>{cells}</table>"


def block_bootstrap(
    values: np.ndarray, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """(mean, low, high) over a series (T,) of steps; blocks of about sqrt(T) neighbours, since neighbours are alike."""
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    if len(known) < 2:
        mean = float(known.mean()) if len(known) else float("nan")
        return mean, float("nan"), float("nan")
    size = max(1, round(len(known) ** 0.5))
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, len(known), (resamples, -(-len(known) // size)))
    at = (starts[:, :, None] + np.arange(size)).reshape(resamples, -1)[:, : len(known)] % len(known)
    means = known[at].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(known.mean()), float(low), float(high)


def record(store: Store, run: str | None = None, needs: frozenset[str] = frozenset()) -> tuple[str, Recording]:
    """A run's steps, read once for any number of replays."""
    chosen = run or store.latest()
    pool, _ = store.pool(chosen)
    return str(chosen), Recording.of(store.steps(chosen, pool), pool, needs)


def replay(
    recording: Recording,
    pipeline: Pipeline | str,
    budget: Budget,
    *,
    run: str = "",
    seed: int = 0,
    serve: Serve = "recorded",
    window: int = 0,
    skill: Skill | None = None,
) -> WhatIf:
    """Let a pipeline decide over every recorded step, its states built from what it was served.

    seed: that of the run, so that a pipeline replayed over its own run asks what it asked. Raises ValueError for methods
    that shape rewards (recorded ones are shaped already) and for what the recording does not hold.

    >>> from workbench import Budget, Store
    >>> with Store.sample() as store:
    ...     run, recording = record(store, "sample-uniform")
    >>> int(replay(recording, "grpo + mopps", Budget(prompts=8, rollouts=64), run=run).asked.sum())
    3072
    """
    pipeline = Pipeline.parse(pipeline)
    if pipeline.actors("reward"):
        names = ", ".join(m.name for m in pipeline.actors("reward"))
        raise ValueError(f"{names} shapes rewards, and recorded rewards were shaped already; leave it out of a replay")
    skill = skill or fitted(recording)
    world = ReplayWorld(recording, serve=serve, window=window, skill=skill, seed=seed)
    pipeline.check(world)
    states = pipeline.init(recording.pool)
    rows: list[tuple] = []
    plans: dict[int, dict[int, int]] = {}
    for number, original in recording.steps.items():
        states, done = advance(pipeline, states, world, budget, step=number, seed=seed)
        asked, before = _by_prompt(done), _by_prompt(original)
        plans[number] = asked
        rows.append(_measure(number, done, asked, before, skill))
    step, asked, served, mixed, expected, tokens, agreement = (np.array(column) for column in zip(*rows, strict=True))
    return WhatIf(
        run, pipeline.text, serve, window, step, asked, served, mixed, expected, tokens, agreement, world.shortfall,
        recording.pool, held_out(skill), plans,
    )  # fmt: skip


def fitted(recording: Recording) -> Skill:
    """The success rates that explain a recording best."""
    return Skill.fit(*recording.outcomes(), recording.pool.stratum)


def _by_prompt(step: Step) -> dict[int, int]:
    """Rollouts asked of each prompt for training."""
    train = step.plan.purpose == "train"
    prompts, place = np.unique(step.plan.prompt[train], return_inverse=True)
    return dict(zip(prompts.tolist(), np.bincount(place, step.plan.n[train]).astype(int).tolist(), strict=True))


def _measure(number: int, done: Step, asked: dict[int, int], before: dict[int, int], skill: Skill) -> tuple:
    both = {*asked, *before}
    agreed = sum(min(asked.get(p, 0), before.get(p, 0)) for p in both)
    either = sum(max(asked.get(p, 0), before.get(p, 0)) for p in both)
    _, solved, tried = done.evidence(len(skill.family))
    groups = tried >= 2
    mixed = ((solved > 0) & (solved < tried))[groups].mean() if groups.any() else np.nan
    alpha, beta = skill.at(number)
    prompts = np.fromiter(asked, np.int64, len(asked))
    expected = mixed_chance(np.fromiter(asked.values(), float, len(asked)), alpha[prompts], beta[prompts])
    return (
        number,
        done.plan.n_rollouts,
        len(done.rollouts),
        float(mixed),
        float(expected.mean()) if len(expected) else np.nan,
        int(done.rollouts.length.sum()),
        agreed / either if either else np.nan,
    )


@dataclass(frozen=True, eq=False)
class Ranking:
    """Pipelines by a metric, best first, with paired differences to the first over the same steps."""

    metric: str
    results: Sequence[WhatIf]
    difference: list[tuple[float, float, float]]
    note: str

    def rows(self) -> list[dict[str, object]]:
        """One dict per pipeline."""
        out = []
        for result, (mean, low, high) in zip(self.results, self.difference, strict=True):
            row = {"pipeline": result.pipeline, "coverage": result.coverage}
            value, value_low, value_high = result.interval(self.metric)
            row |= {self.metric: value, "low": value_low, "high": value_high}
            out.append(row | {"to_first": mean, "to_first_low": low, "to_first_high": high})
        return out

    def _repr_html_(self) -> str:
        return table(self.rows(), self.note)


def rank(results: Sequence[WhatIf], metric: str = "mixed_expected") -> Ranking:
    """Order replays of the same steps by a metric; differences are paired by step.

    "mixed" compares recorded groups and is refused (ValueError) where coverage is too thin for any of them."""
    if not results:
        raise ValueError("there is nothing to rank")
    if metric == "mixed":
        thin = [r.pipeline for r in results if r.serve != "fitted" and r.coverage < THIN]
        if thin:
            raise ValueError(
                f"too little of what {', '.join(thin)} asks was recorded (under {THIN:.0%}) to rank recorded groups; "
                "rank by mixed_expected, or replay with a window, or serve='fitted'"
            )
    ordered = sorted(results, key=lambda r: -np.nanmean(getattr(r, metric)))
    first = getattr(ordered[0], metric)
    differences = [block_bootstrap(getattr(r, metric) - first) for r in ordered]
    note = f"by {metric}; it says how mixed the groups would be, not how well the model would learn"
    return Ranking(metric, ordered, differences, note)
