"""The bench that holds replays against runs of the pipelines they stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.replay import WAYS, Foretold, foretell, ordered, page, ranking
from workbench.analysis import whatif
from workbench.runs.experiment import Experiment
from workbench.runs.sweep import Sweep
from workbench.store import Store
from workbench.types import Budget


def row(seed: int, pipeline: str, mixed: float, said: float, learned: float) -> Foretold:
    return Foretold(seed, pipeline, mixed, learned, dict.fromkeys(WAYS, said), 0.5)


def test_pairs_are_counted_within_a_seed() -> None:
    rows = [
        row(0, "grpo", 0.3, 0.2, 0.9),
        row(0, "vade", 0.5, 0.4, 0.8),
        row(1, "grpo", 0.3, 0.6, 0.7),
        row(1, "vade", 0.5, 0.5, 0.8),
    ]
    assert ordered(rows, "fitted") == (1, 2)
    assert ordered(rows, "fitted", "learned") == (0, 2)
    assert ranking(rows, "mixed") == [("vade", 0.5), ("grpo", 0.3)]


def test_every_pipeline_is_foretold_from_the_base_and_held_against_its_own_run(tmp_path: Path) -> None:
    experiment = Experiment(
        model="sim", steps=12, budget=Budget(4, 32), eval_every=6, checkpoint_every=0, world={"n_prompts": 20}
    )
    runs = Sweep(experiment, ("grpo", "grpo + mopps"), (0, 1)).run(store=str(tmp_path))
    with Store.open(tmp_path) as store:
        rows = foretell(store, runs)
    assert [(r.seed, r.pipeline) for r in rows] == [(0, "grpo"), (0, "grpo + mopps"), (1, "grpo"), (1, "grpo + mopps")]
    assert [r.coverage for r in rows if r.pipeline == "grpo"] == [1, 1]
    assert all(0 <= v <= 1 for r in rows for v in (r.mixed, *r.predicted.values()))
    assert rows[0].predicted["expected"] == pytest.approx(rows[0].mixed, abs=0.2)
    assert "true share of mixed groups" in page(rows)


def test_tiny_asks_again_what_it_asked(tmp_path: Path) -> None:
    experiment = Experiment(
        model="tiny", pipeline="grpo + mopps", steps=3, budget=Budget(4, 16), eval_every=0, checkpoint_every=0, seed=4,
        store=str(tmp_path), tokens="none", task_options={"size": 16, "evaluation": 4},
    )  # fmt: skip
    steps = list(experiment.run())
    with Store.open(tmp_path) as store:
        run, recording = whatif.record(store)
    made = whatif.replay(recording, "grpo + mopps", experiment.budget, run=run, seed=4)
    assert made.shortfall.tolist() == [0] * 16
    assert made.agreement.tolist() == [1, 1, 1]
    for step in steps:
        asked = dict(zip(step.plan.prompt.tolist(), step.plan.n.tolist(), strict=True))
        assert made.plans[step.step] == asked
