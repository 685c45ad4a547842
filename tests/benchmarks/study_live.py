"""The best of the simulated study on a real model that learns: `python -m tests.benchmarks study --case live`.

The bundled tiny model on its own tasks, on one core: every run trains on as many rollouts. Evaluation rollouts count
as tokens, since a live run has to pay for knowing its skill. A run keeps what it came to, so that the study can be
stopped and gone on with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tests.benchmarks import study_page
from tests.benchmarks.figure import Figure
from tests.benchmarks.study import RESULTS, counted, save
from workbench.analysis.intervals import paired
from workbench.analysis.summary import by_prompt
from workbench.pipeline import Pipeline, advance
from workbench.runs.experiment import Experiment
from workbench.types import Budget

PIPELINES = {
    "uniform": "grpo",
    "dps": "grpo, dps",
    "trace": "grpo, trace",
    "vade": "grpo, vade",
    "insight": "grpo, insight",
    "mopps": "grpo, mopps",
}
"""Uniform GRPO and the five with the largest gain over it in the binary world."""
SEEDS = (0, 1, 2)
STEPS, EVERY = 80, 40
BUDGET = Budget(prompts=8, rollouts=64)
WORLD = {"samples": 8, "threads": 1}


class Lived(NamedTuple):
    """One live run. start, gain, gain_tokens: sampled pass rate on the evaluation prompts before it, won by its end, and
    won at the tokens that uniform GRPO of the same seed used; tokens generated with those of evaluations; mixed = share
    of groups with mixed rewards; seconds of wall time."""

    start: float
    gain: float
    gain_tokens: float
    tokens: float
    mixed: float
    seconds: float


def live(text: str, seed: int, limit: float | None = None) -> Lived:
    """Train the tiny model from its start; limit = tokens at which to compare, None = those of the run itself."""
    world = Experiment(model="tiny", pipeline=text, seed=seed, world=WORLD).build_world()
    pipeline = Pipeline.parse(text)
    pipeline.check(world)
    states = pipeline.init(world.pool)
    tokens, seconds, groups, mixed = 0, 0.0, 0, 0
    curve: list[tuple[float, float]] = []
    for number in range(STEPS + 1):
        if number:
            states, step = advance(pipeline, states, world, BUDGET, step=number, seed=seed)
            _, made, _, several, some = counted(step)
            tokens, groups, mixed = tokens + made, groups + several, mixed + some
            seconds += sum(step.seconds.values())
        if number % EVERY == 0:
            rollouts = world.evaluate(number)
            tokens += int(rollouts.length.sum())
            curve.append((tokens, float(np.nanmean(by_prompt(rollouts)))))
    at, skill = np.array(curve).T
    now = float(np.interp(at[-1] if limit is None else limit, at, skill))
    return Lived(skill[0], skill[-1] - skill[0], now - skill[0], float(tokens), mixed / max(groups, 1), seconds)


def live_study() -> Iterator[Figure]:
    """All pipelines and seeds, seed by seed; what was run before is not run again."""
    path = RESULTS / "selection-live.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    runs: dict[str, list] = kept.get("runs", {}) if kept.get("steps") == STEPS else {}
    for seed in SEEDS:
        for name, text in PIPELINES.items():
            rows = runs.setdefault(name, [])
            if len(rows) > seed:
                continue
            limit = None if name == "uniform" else runs["uniform"][seed][Lived._fields.index("tokens")]
            rows.append([float(v) for v in live(text, seed, limit)])
            save(
                "live",
                {
                    "columns": Lived._fields,
                    "steps": STEPS,
                    "prompts": BUDGET.prompts,
                    "rollouts": BUDGET.rollouts,
                    "runs": runs,
                },
            )
            study_page.write()
            print(f"live {name} seed {seed}: gain {rows[-1][1]:+.3f}", flush=True)
    base = np.array(runs["uniform"])
    for name, rows in runs.items():
        for column in ("gain", "gain_tokens"):
            i = Lived._fields.index(column)
            mean, low, high, n = paired(np.array(rows)[:, i], base[:, i])
            note = f"95 % interval {low:+.4f} to {high:+.4f}, {n} seeds"
            yield Figure(f"live/{name}", f"{column}_over_uniform", mean, "pass rate", "uniform", note=note)
