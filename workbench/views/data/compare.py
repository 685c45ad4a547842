"""Comparison of runs of one store, for the compare page. Named questions in, plain records out.

Each run's columns are kept and asked for the steps that are new. Runs that differ only in their seed are pooled by
`analysis.compare`, which also knows what makes a comparison unfair.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from workbench.analysis.compare import POINTS, Comparison, Curve, unfair
from workbench.pipeline import Pipeline
from workbench.views.data.records import CURVES, EMPTY, WINDOW, Columns, column, smooth

if TYPE_CHECKING:
    from workbench.views.data.run import Source

AXES = ("rollouts", "tokens", "seconds")

METRICS = {
    "evaluation pass rate": "solved",
    "evaluation reward": "eval_reward",
    "training reward": "reward",
    "training pass rate": "pass_rate",
    "zero-advantage share": "zero_advantage",
}
"""What runs can be compared by -> its column."""

SHARES = ("evaluation pass rate", "training pass rate", "zero-advantage share")
EVALUATED = ("evaluation pass rate", "evaluation reward")
FEW = 12
"""Runs compared where none were chosen: the newest of them."""

_kept: WeakKeyDictionary[Source, dict[str, RunColumns]] = WeakKeyDictionary()


@dataclass(eq=False)
class RunColumns:
    """What is known of one run. costs: cumulative by step (S,); train by step (T,); evaluated by step (E,)."""

    run: str
    label: str
    seed: int | None
    experiment: Mapping[str, object]
    eval_prompts: frozenset[str]
    attempt: int
    step: np.ndarray = field(default_factory=lambda: EMPTY)
    cost: Mapping[str, np.ndarray] = field(default_factory=lambda: dict.fromkeys(AXES, EMPTY))
    train: Columns = field(default_factory=lambda: Columns(*CURVES))
    evaluated: Mapping[str, np.ndarray] = field(default_factory=dict)
    seen: tuple = ()

    def curve(self, metric: str, axis: str) -> Curve | None:
        """Cost and value where the metric is known; None for fewer than two places. Training metrics are means over
        the last steps, as on the live page."""
        table = self.evaluated if metric in EVALUATED else vars(self.train)
        if not table:
            return None
        step, y = table["step"], table[METRICS[metric]]
        if metric not in EVALUATED:
            y = smooth(y, WINDOW)
        spent = np.append(0.0, self.cost[axis])
        x = spent[np.searchsorted(self.step, step, "right")]
        on = np.isfinite(y) & np.isfinite(x)
        x, y = x[on], y[on]
        if len(x) < 2:
            return None
        ids = self.eval_prompts if metric in EVALUATED else frozenset[str]()
        return Curve(self.run, self.label, self.seed, x, y, self.experiment, ids)


class Compared(NamedTuple):
    """Runs by one metric. left_out: run -> why it cannot be drawn; comparison: None where there is none, and why."""

    metric: str
    axis: str
    curves: tuple[Curve, ...] = ()
    left_out: Mapping[str, str] = {}
    comparison: Comparison | None = None
    why: str = ""


def columns_of(source: Source, run: str) -> RunColumns:
    """A run's columns with its newest step taken in; a run that has ended and was read is not asked again."""
    with source.lock:
        kept = _kept.setdefault(source, {})
        row = next((r for r in source.runs if r["run"] == run), None)
        if row is None:
            raise LookupError(f"there is no run {run!r} in {source.where}")
        mine = kept.get(run)
        if mine is None or mine.attempt != row["attempt"]:  # a resumed run may have made a step again
            mine = kept[run] = _opened(source, row)
        stamp = (row["status"], row["last_step"], row["last_record"])
        if stamp != mine.seen:
            mine.label = _label(source, run)  # a pipeline can be swapped after any step
            _grow(source, mine)
            mine.seen = stamp
        return mine


def _opened(source: Source, row: Mapping) -> RunColumns:
    found = source.ask("page_run", run=row["run"]).to_pylist()[0]
    experiment = json.loads(found["experiment"] or "{}")
    ids = source.ask("page_eval_prompts", run=row["run"])["prompt_id"].to_pylist()
    return RunColumns(row["run"], "", row["seed"], experiment, frozenset(ids), row["attempt"])


def _label(source: Source, run: str) -> str:
    found = source.ask("page_run", run=run).to_pylist()[0]
    pipeline = json.loads(found["experiment"] or "{}").get("pipeline")
    return named(pipeline, run) + (" (changed on the way)" if found["swapped"] else "")


def named(pipeline: object, run: str) -> str:
    """A pipeline as people write it; the run's name where it cannot be read, so that it is pooled with nothing."""
    if not pipeline:
        return run
    try:
        return Pipeline.recorded({"pipeline": pipeline}).text
    except (ValueError, LookupError, TypeError, ImportError):  # the record holds no pipeline that can be read
        return f"{run} ({pipeline if isinstance(pipeline, str) else 'pipeline unknown here'})"


def _grow(source: Source, mine: RunColumns) -> None:
    last = int(mine.step[-1]) if len(mine.step) else 0
    seen = int(mine.evaluated["step"][-1]) if mine.evaluated else -1
    cost, train = (source.ask(q, run=mine.run, since=last) for q in ("costs_by_step", "reward_by_step"))
    scores = source.ask("page_evaluation", run=mine.run, since=seen)
    before = {a: (c[-1] if len(c) else 0.0) for a, c in mine.cost.items()}
    mine.cost = {a: np.append(mine.cost[a], before[a] + np.cumsum(np.nan_to_num(column(cost, a)))) for a in AXES}
    mine.step = np.append(mine.step, column(cost, "step"))
    mine.train = mine.train.extended(train)
    n, solved = column(scores, "n"), column(scores, "solved")
    share = np.divide(solved, n, out=np.full(len(n), np.nan), where=n > 0)
    fresh = {"step": column(scores, "step"), "solved": share, "eval_reward": column(scores, "reward")}
    mine.evaluated = {k: np.append(mine.evaluated.get(k, EMPTY), v) for k, v in fresh.items()} if len(n) or mine.evaluated else {}  # fmt: skip


def compared(source: Source, runs: Sequence[str], metric: str, axis: str, baseline: str = "") -> Compared:
    """These runs by a metric of METRICS at equal cost. baseline: a pipeline; "" = grpo, or the first one's."""
    curves, left_out = [], {}
    for run in runs:
        try:
            mine = columns_of(source, run)
        except LookupError as problem:
            left_out[run] = str(problem)
            continue
        curve = mine.curve(metric, axis)
        if curve is None:
            what = "evaluations" if metric in EVALUATED else "steps"
            left_out[run] = f"fewer than two {what} so far"
        else:
            curves.append(curve)
    made = Compared(metric, axis, tuple(curves), left_out)
    if len(curves) < 2:
        return made._replace(why="A comparison needs two runs with two points each.")
    start, end = max(c.x[0] for c in curves), min(c.x[-1] for c in curves)
    if not end > start:
        return made._replace(why=f"These runs share no range of {axis}.")
    labels = list(dict.fromkeys(c.label for c in curves))
    chosen = baseline if baseline in labels else "grpo" if "grpo" in labels else labels[0]
    warnings = unfair(curves, end, axis)
    if metric not in EVALUATED:
        warnings.insert(
            0, f"{metric} moves with the choice of prompts: it is no measure of learning, the evaluation is"
        )
    return made._replace(comparison=Comparison(axis, chosen, curves, np.linspace(start, end, POINTS), warnings))  # type: ignore[arg-type]
