"""Does a replay foretell what another pipeline does? Predicted from one run, against runs of the other pipelines.

For every seed all pipelines are run on `tiny`, over a pool small enough to be passed several times. From the run of
one of them (`BASE`) each other is replayed three ways; truth is the share of mixed groups in that pipeline's own run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tests.benchmarks.figure import Figure
from workbench.analysis import compare, whatif
from workbench.runs.experiment import Experiment
from workbench.runs.sweep import Sweep
from workbench.store import Store
from workbench.types import Budget

PIPELINES = ("grpo", "grpo + mopps", "grpo + vade", "grpo + dps")
BASE = PIPELINES[0]
SEEDS = (0, 1, 2)
WINDOW = 8
"""Steps around a step from which resampling may take a prompt's rollouts: about one pass over the pool."""

EXPERIMENT = Experiment(
    model="tiny", steps=40, budget=Budget(prompts=16, rollouts=128), eval_every=10, eval_samples=8, checkpoint_every=0,
    tokens="none", name="replay", task_options={"size": 128},
)  # fmt: skip

WAYS = {
    "expected": "chance of a mixed group by the fitted skill, for what would have been asked of recorded rollouts",
    "resampled": "share of mixed groups among recorded rollouts of the same prompts, drawn again",
    "fitted": "share of mixed groups among outcomes drawn from the fitted skill",
}


@dataclass(frozen=True)
class Foretold:
    """One pipeline of one seed: true share of mixed groups, pass rate at the end, and the predictions by way."""

    seed: int
    pipeline: str
    mixed: float
    learned: float
    predicted: dict[str, float]
    coverage: float


def foretell(store: Store, runs: Sequence[str], base: str = BASE) -> list[Foretold]:
    """Predict every pipeline of a sweep from the run of `base` with the same seed, beside what its own run gave."""
    curves = {c.run: c for c in compare.compare(store, runs, axis="step").curves}
    rows = []
    for seed in sorted({int(c.seed or 0) for c in curves.values()}):
        mine = {c.label: c for c in curves.values() if int(c.seed or 0) == seed}
        rows += _foretell_seed(store, mine, mine[base].run, seed)
    return rows


def _foretell_seed(store: Store, curves: Mapping[str, compare.Curve], base: str, seed: int) -> list[Foretold]:
    budget = Experiment.recorded(store.url, base).budget
    _, recording = whatif.record(store, base)
    common = {"seed": seed, "skill": whatif.fitted(recording)}
    rows = []
    for pipeline, curve in curves.items():
        _, own = whatif.record(store, curve.run)
        truth = whatif.replay(own, pipeline, budget, **common)
        if truth.shortfall.any() or (truth.agreement != 1).any():
            raise ValueError(f"{pipeline} replayed over its own run {curve.run} did not ask what it had asked")
        recorded = whatif.replay(recording, pipeline, budget, **common)
        drawn = whatif.replay(recording, pipeline, budget, serve="resample", window=WINDOW, **common)
        fitted = whatif.replay(recording, pipeline, budget, serve="fitted", **common)
        columns = {"expected": recorded.mixed_expected, "resampled": drawn.mixed, "fitted": fitted.mixed}
        predicted = {way: float(np.nanmean(column)) for way, column in columns.items()}
        mixed, learned = float(np.nanmean(truth.mixed)), float(curve.pass_rate[-1])
        rows.append(Foretold(seed, pipeline, mixed, learned, predicted, recorded.coverage))
    return rows


def ordered(rows: Sequence[Foretold], way: str, truth: str = "mixed") -> tuple[int, int]:
    """(pairs of pipelines of one seed that a way puts in the true order, pairs); truth: "mixed" or "learned"."""
    right = pairs = 0
    for seed in sorted({r.seed for r in rows}):
        for a, b in combinations([r for r in rows if r.seed == seed], 2):
            pairs += 1
            right += (a.predicted[way] - b.predicted[way]) * (getattr(a, truth) - getattr(b, truth)) > 0
    return right, pairs


def ranking(rows: Sequence[Foretold], value: str) -> list[tuple[str, float]]:
    """Pipelines by their mean over seeds, best first; value: a way, "mixed" or "learned"."""
    names = list(dict.fromkeys(r.pipeline for r in rows))

    def of(r: Foretold) -> float:
        return r.predicted[value] if value in r.predicted else getattr(r, value)

    means = [(n, float(np.mean([of(r) for r in rows if r.pipeline == n]))) for n in names]
    return sorted(means, key=lambda m: -m[1])


def page(rows: Sequence[Foretold]) -> str:
    """What was found, in Markdown."""
    names = list(dict.fromkeys(r.pipeline for r in rows))
    lines = ["| pipeline | seed | true mixed | " + " | ".join(WAYS) + " | recorded | evaluation at the end |"]
    lines.append("|---|---|---|" + "---|" * (len(WAYS) + 2))
    for r in sorted(rows, key=lambda r: (names.index(r.pipeline), r.seed)):
        said = " | ".join(f"{r.predicted[w]:.3f}" for w in WAYS)
        lines.append(f"| {r.pipeline} | {r.seed} | {r.mixed:.3f} | {said} | {r.coverage:.0%} | {r.learned:.3f} |")
    others = [r for r in rows if r.pipeline != BASE]
    lines += [
        "",
        f"| order of | ranking, mean over seeds | pairs in true order | without {BASE} | order of learning | error |",
    ]
    lines.append("|---|---|---|---|---|---|")
    for value in ("mixed", *WAYS, "learned"):
        said = ", ".join(f"{n} {m:.3f}" for n, m in ranking(rows, value))
        cells = ["", "", "", ""]
        if value in WAYS:
            counts = (ordered(rows, value), ordered(others, value), ordered(rows, value, "learned"))
            error = np.mean([r.predicted[value] - r.mixed for r in rows])
            cells = [*(f"{right} of {pairs}" for right, pairs in counts), f"{error:+.3f}"]
        name = {"mixed": "true share of mixed groups", "learned": "evaluation at the end"}.get(value, value)
        lines.append(f"| {name} | {said} | {' | '.join(cells)} |")
    return "\n".join(lines)


def bench(case: str | None) -> Iterator[Figure]:
    """Pairs of pipelines that each way of replaying orders as their own runs do, and the error of its share.

    case: a store to keep the runs in, where they stay; made again only where they are missing."""
    with tempfile.TemporaryDirectory() as folder:
        where = case or folder
        runs = Sweep(EXPERIMENT, PIPELINES, SEEDS).run(lambda text: print(text, flush=True), store=where)
        with Store.open(where) as store:
            rows = foretell(store, runs)
    print(page(rows), flush=True)
    note = f"{len(PIPELINES)} pipelines, {len(SEEDS)} seeds, {EXPERIMENT.steps} steps, from the run of {BASE}"
    for way in WAYS:
        right, pairs = ordered(rows, way)
        yield Figure("tiny", f"{way}_pairs_in_order", right / pairs, "share", note=f"{right} of {pairs} pairs; {note}")
        error = float(np.mean([abs(r.predicted[way] - r.mixed) for r in rows]))
        yield Figure("tiny", f"{way}_error_of_mixed", error, "share of groups", note=note)
