"""Every selector and allocator against uniform GRPO: `python -m tests.benchmarks study`, published in docs/results/selection.md.

All runs of a seed share their prompts, their luck and the policy they start from, so that differences between methods
are paired. A run goes on until it has generated as many rollouts, and as many tokens, as uniform GRPO had when it
stopped; probe, profile and dropped rollouts count like any other. Skill is the true pass rate on the evaluation
prompts, which the simulation knows, so that no evaluation is paid for by any run. The page says what each column is.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.benchmarks.figure import Figure, machine
from workbench.analysis.intervals import Interval, paired, ratio
from workbench.numerics.groups import describe
from workbench.pipeline import Pipeline, advance, catalog
from workbench.stages import Card, Method
from workbench.types import Budget, Draft, Step
from workbench.worlds.sim.dynamics import FITTED
from workbench.worlds.sim.world import SimWorld

SEEDS = tuple(range(10))
STEPS = 120
"""Steps of uniform GRPO."""
BUDGET = Budget(prompts=16, rollouts=128)
PROMPTS = 1000
SETTINGS = {"gdro": "gdro(controller='rollout')", "mssr": "Only(mssr(curriculum=True), 'select')"}
"""Methods whose selector or allocator is not on by default."""
_FIRST_NORM = 0.25  # of uniform GRPO's first steps: there the two kinds of step are equally long
UNCLIPPED = replace(
    FITTED, clip=1.0, **{name: getattr(FITTED, name) / _FIRST_NORM for name in ("rate", "forgetting", "sharpening")}
)
WORLDS: dict[str, dict] = {
    "binary": {"graded": False},
    "graded": {"graded": True},
    "unclipped": {"graded": False, "dynamics": UNCLIPPED},
}
"""Rewards of right and wrong alone, as in the papers and in the recorded run; the graded rewards of the tasks; and
binary rewards without the clip, where a batch of settled groups makes a short step."""
LONG = ("uniform", "dps", "sgpo", "cures")
"""Run four times as long, since what a profile costs at the start may pay later."""
REACHED = 0.9
"""Share of uniform's final gain that the target skill stands for."""


@dataclass(frozen=True)
class Oracle(Method):
    """Selects by the true pass rates, which no method has: what knowing difficulty is worth in this world.

    width: prompts are drawn among those with a rate within width of 1/2; 0 takes the nearest."""

    rate: Callable[[], np.ndarray]
    width: float = 0.0

    card = Card("oracle", "Selection by the true pass rate", source="ours")

    def select(self, state: object, draft: Draft, rng: np.random.Generator) -> np.ndarray:
        """The candidates nearest to 1/2, or any of those within the width of it."""
        luck = rng.random(len(draft.available))
        rows = draft.candidates()
        off = np.abs(self.rate()[rows] - 0.5)
        return rows[np.lexsort((luck[rows], np.where(off <= self.width, 0.0, off)))[: draft.wanted]]


class Case(NamedTuple):
    """A row of the study: pipeline made for a world, budget of a step, and the method whose belief is scored."""

    pipeline: Callable[[SimWorld], Pipeline]
    budget: Budget = BUDGET
    belief: str = ""


def cases() -> dict[str, Case]:
    """Name -> case: uniform first, then controls, then every selector and allocator that the simulation can serve."""
    half = Budget(BUDGET.prompts // 2, BUDGET.rollouts // 2)
    grpo = Pipeline.parse("grpo")
    out = {
        "uniform": Case(lambda world: grpo),
        "half batch": Case(lambda world: grpo, half),
        "oracle 1/2": Case(lambda world: Pipeline(catalog.make("grpo"), Oracle(world.pass_rate))),
        "oracle 0.1-0.9": Case(lambda world: Pipeline(catalog.make("grpo"), Oracle(world.pass_rate, 0.4))),
    }
    for slug, cls in catalog.methods().items():
        text = SETTINGS.get(slug, slug)
        made = Pipeline.parse(f"grpo, {text}") if slug not in ("grpo", "uniform") else None
        if (
            made is None
            or made.needs - SimWorld.offers
            or not {"select", "allocate", "more"} & set(made.chosen[-1].verbs)
        ):
            continue
        out[slug] = Case(lambda world, made=made: made, belief=cls.card.slug)
    return out


def variants() -> dict[str, Case]:
    """Uniform, then what tells a method from a setting or from the world: changed settings, pairs of a selector and an
    allocator, and the same 128 rollouts over few prompts or many."""
    texts = (
        "cures(n_min=2)",
        "cures(slices=1)",
        "v0(b_max=16)",
        "v0(features='prompt')",
        "dots_rr(sigma=1.0)",
        "dots_rr(capacity=32)",
        "duet(budget=1.0)",
        "dps(candidate_ratio=4)",
        "Only(dars, 'allocate')",
        "Only(duet, 'allocate')",
        "Only(v05, 'allocate')",
        "dps + dars",
        "vade + xrpo",
    )
    out = {"uniform": cases()["uniform"]}
    out |= {text: _case(f"grpo + {text}") for text in texts}
    for prompts in (4, 32, 64):
        out[f"uniform, {prompts} x {BUDGET.rollouts // prompts}"] = _case("grpo", Budget(prompts, BUDGET.rollouts))
    for prompts in (4, 32):
        oracle = cases()["oracle 0.1-0.9"]._replace(budget=Budget(prompts, BUDGET.rollouts))
        out[f"oracle 0.1-0.9, {prompts} x {BUDGET.rollouts // prompts}"] = oracle
    return out


def _case(text: str, budget: Budget = BUDGET) -> Case:
    made = Pipeline.parse(text)
    return Case(lambda world: made, budget)


class Played(NamedTuple):
    """One run, (T,) by step: rollouts, tokens generated so far; train = those meant for training; skill, pass8 (the
    chance that one of eight is right) after the step; groups and mixed among the rollouts of the step. start = (skill,
    pass8) before it. beliefs (L, 3): mean squared errors of the belief, of the belief on prompts of the last 25 steps,
    and of the mean rate, at every look."""

    rollouts: np.ndarray
    tokens: np.ndarray
    train: np.ndarray
    groups: np.ndarray
    mixed: np.ndarray
    skill: np.ndarray
    pass8: np.ndarray
    start: tuple[float, float]
    beliefs: np.ndarray

    def at(self, spent: np.ndarray, amount: float) -> float:
        """Skill won when `amount` was spent, by linear interpolation; spent is rollouts, tokens or train."""
        return float(np.interp(amount, np.append(0, spent), np.append(self.start[0], self.skill))) - self.start[0]

    def until(self, gain: float, limit: float) -> float:
        """Rollouts until so much skill was won; NaN where it was not within the limit."""
        there = np.flatnonzero((self.skill - self.start[0] >= gain) & (self.rollouts <= limit))
        return float(self.rollouts[there[0]]) if len(there) else np.nan

    def summary(self, base: Played, total: float) -> Seed:
        """What the run comes to at `total` rollouts, against a run of uniform GRPO."""
        inside = self.rollouts <= total
        beliefs = self.beliefs.mean(axis=0) if len(self.beliefs) else np.full(3, np.nan)
        pass8 = np.interp(total, np.append(0, self.rollouts), np.append(self.start[1], self.pass8)) - self.start[1]
        return Seed(
            gain=self.at(self.rollouts, total),
            gain_tokens=self.at(self.tokens, float(base.tokens[-1])),
            gain_train=self.at(self.train, total),
            gain_updates=float(self.skill[min(STEPS, len(self.skill)) - 1] - self.start[0]),
            gain_pass8=float(pass8),
            until=self.until(REACHED * base.at(base.rollouts, total), total),
            updates=float(inside.sum()),
            mixed=float(self.mixed[inside].sum() / max(self.groups[inside].sum(), 1)),
            brier=float(beliefs[0]),
            brier_recent=float(beliefs[1]),
            brier_mean=float(beliefs[2]),
        )


class Seed(NamedTuple):
    """What one run comes to. gain...: skill won at uniform's rollouts, tokens, rollouts for training alone, updates;
    gain_pass8: pass@8 won at uniform's rollouts. until: rollouts to the target, NaN = not reached. updates, mixed: steps
    and share of mixed groups within uniform's rollouts. brier...: see `Played.beliefs`."""

    gain: float
    gain_tokens: float
    gain_train: float
    gain_updates: float
    gain_pass8: float
    until: float
    updates: float
    mixed: float
    brier: float
    brier_recent: float
    brier_mean: float


def counted(step: Step) -> tuple[int, int, int, int, int]:
    """Rollouts, tokens, rollouts for training, groups of two or more, and those with mixed rewards, as generated."""
    made = step.rollouts.take(step.rollouts.ask >= 0)
    train = made.take(made.purpose == "train")
    _, group = np.unique(train.group, return_inverse=True)
    several = np.bincount(group, np.isfinite(train.reward)) > 1 if len(train) else np.zeros(0, bool)
    mixed = several & ~describe(train.reward, group, len(several)).settled
    return len(made), int(made.length.sum()), len(train), int(several.sum()), int(mixed.sum())


def play(case: Case, seed: int, options: dict, rollouts: float, tokens: float = 0, look_every: int = 10) -> Played:
    """One run until rollouts for training, tokens and `STEPS` updates are reached, of at most six times as many steps.

    The belief is scored at every `look_every`-th step of the second half."""
    world = SimWorld(n_prompts=PROMPTS, n_eval=400, seed=seed, **options)
    pipeline = case.pipeline(world)
    states = pipeline.init(world.pool)
    seen = np.full(PROMPTS, -np.inf)
    rows, skill, looks = [], [_skill(world)], []
    spent = np.zeros(3)
    while (spent < (0, tokens, rollouts)).any() or len(rows) < STEPS:
        states, step = advance(pipeline, states, world, case.budget, step=len(rows) + 1, seed=seed)
        rows.append(counted(step))
        spent += rows[-1][:3]
        skill.append(_skill(world))
        seen[step.prompts] = len(rows)
        if case.belief and len(rows) % look_every == 0 and rollouts / 2 < spent[0] <= rollouts:
            mean = pipeline.reveal(states).get(case.belief, {}).get("mean")
            if mean is not None:
                looks.append(_errors(mean, world.pass_rate(), seen > len(rows) - 25))
        if len(rows) >= 6 * STEPS:
            break
    columns = np.array(rows, float).T
    learned = np.array(skill[1:]).T
    return Played(*np.cumsum(columns[:3], axis=1), *columns[3:], *learned, skill[0], np.array(looks))


def _skill(world: SimWorld) -> tuple[float, float]:
    p = world.pass_rate(evaluation=True)
    return float(p.mean()), float((1 - (1 - p) ** 8).mean())


def _errors(mean: np.ndarray, true: np.ndarray, recent: np.ndarray) -> tuple[float, float, float]:
    square = (mean - true) ** 2
    return float(square.mean()), float(square[recent].mean()), float(true.var())


def study(
    chosen: dict[str, Case], options: dict, seeds: tuple[int, ...], steps: int | None = None
) -> dict[str, list[Seed]]:
    """Case -> what its runs come to, one a seed; the first case is what the others are held against. steps of uniform
    GRPO, None = `STEPS`."""
    total = float((steps or STEPS) * BUDGET.rollouts)
    out: dict[str, list[Seed]] = {name: [] for name in chosen}
    for seed in seeds:
        base = None
        for name, case in chosen.items():
            run = play(case, seed, options, total, base.tokens[-1] if base else 0)
            base = base or run
            out[name].append(run.summary(base, total))
        print(f"seed {seed} of {len(seeds)}", end="\r", flush=True)
    return out


def compared(runs: dict[str, list[Seed]]) -> dict[str, dict[str, Interval]]:
    """Case -> column -> its mean with a 95 % interval; gains and mixed as differences to the first case, `until` as a
    ratio to it that takes the whole run where the target was not reached; reached counts the seeds where it was."""
    base = np.array(next(iter(runs.values()))).T
    out = {}
    for name, seeds in runs.items():
        own = np.array(seeds).T
        row = {}
        for column, ours, theirs in zip(Seed._fields, own, base, strict=True):
            if column == "until":
                row[column] = ratio(np.where(np.isfinite(ours), ours, STEPS * BUDGET.rollouts), theirs)
                row["reached"] = Interval(float(np.isfinite(ours).sum()), np.nan, np.nan, len(ours))
            elif column.startswith("gain") or column == "mixed":
                row[column] = paired(ours, theirs)
            else:
                row[column] = paired(ours)
        out[name] = row
    return out


def bench(case: str | None) -> Iterator[Figure]:
    """The study in every world, the ablations, and the page; --case names one world, variants, long, live, test-time or page."""
    from tests.benchmarks import study_answer_time, study_live, study_page

    for name, options in WORLDS.items():
        if case in (None, name):
            yield from _kept(name, study(cases(), options, SEEDS))
    if case in (None, "variants"):
        yield from _kept("variants", study(variants(), WORLDS["binary"], SEEDS))
    if case in (None, "long"):
        yield from _kept("long", study({name: cases()[name] for name in LONG}, WORLDS["binary"], SEEDS, 4 * STEPS))
    if case in (None, "live"):
        yield from study_live.live_study()
    if case in (None, "test-time"):
        yield from study_answer_time.answer_time()
    study_page.write()


def _kept(name: str, runs: dict[str, list[Seed]]) -> Iterator[Figure]:
    """Keep what every seed came to for the page, and give the differences in skill as figures."""
    save(
        name, {"columns": Seed._fields, "seeds": len(SEEDS), "runs": {k: [list(s) for s in v] for k, v in runs.items()}}
    )
    for method, row in compared(runs).items():
        for metric in ("gain", "gain_tokens"):
            mean, low, high, n = row[metric]
            note = f"95 % interval {low:+.4f} to {high:+.4f}, {n} seeds"
            yield Figure(f"{name}/{method}", f"{metric}_over_uniform", mean, "pass rate", "uniform", note=note)


RESULTS = Path("docs/results")


def save(name: str, data: dict) -> None:
    """Write docs/results/selection-<name>.json, with the machine and the date."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    data = {"machine": machine(), "date": datetime.date.today().isoformat(), **data}
    (RESULTS / f"selection-{name}.json").write_text(_short(json.dumps(data)) + "\n")


def _short(text: str) -> str:
    """Numbers of a JSON text at five digits."""
    return re.sub(r"-?\d+\.\d{5,}(e-?\d+)?", lambda m: f"{float(m[0]):.5g}", text)
