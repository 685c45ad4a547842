"""Runs side by side: equal to the comparison in a notebook, pooled by seed, grown as the runs grow."""

import numpy as np
import pytest

from workbench.analysis.compare import compare
from workbench.runs.sweep import Sweep
from workbench.store import Store
from workbench.views.data.compare import METRICS, columns_of, compared, named
from workbench.views.data.run import Source

FILE = """
[experiment]
model = "sim"
steps = 8
eval_every = 4
checkpoint_every = 8
budget = { prompts = 4, rollouts = 32 }
world = { n_prompts = 60 }
[sweep]
pipelines = ["grpo", "grpo + vade"]
seeds = [0, 1]
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "sweep.toml").write_text(FILE)
    Sweep.from_toml(folder / "sweep.toml").run(store=str(folder / "store"))
    return str(folder / "store")


def source_of(store):
    source = Source(store)
    source.refresh(0)
    return source, [r["run"] for r in source.runs]


@pytest.mark.parametrize("axis", ["rollouts", "tokens", "seconds"])
def test_a_comparison_is_that_of_a_notebook(swept, axis):
    source, runs = source_of(swept)
    mine = compared(source, runs, "evaluation pass rate", axis).comparison
    with Store.open(swept) as store:
        theirs = compare(store, axis=axis)
    assert mine.labels == theirs.labels
    assert mine.baseline == theirs.baseline == "grpo"
    np.testing.assert_allclose(mine.x, theirs.x)
    for label in theirs.labels:
        for one, other in zip(mine.band(label), theirs.band(label), strict=True):
            np.testing.assert_allclose(one, other)
    assert sorted(mine.warnings) == sorted(theirs.warnings)


def test_every_metric_compares(swept):
    source, runs = source_of(swept)
    for metric in METRICS:
        made = compared(source, runs, metric, "rollouts")
        assert len(made.curves) == 4 and made.comparison is not None
    assert made.comparison.x[-1] == 8 * 32
    assert made.comparison.warnings[0].startswith("zero-advantage share moves with the choice of prompts")


def test_a_baseline_can_be_chosen(swept):
    source, runs = source_of(swept)
    made = compared(source, runs, "training reward", "rollouts", "grpo + vade").comparison
    assert made.baseline == made.labels[0] == "grpo + vade"
    assert made.rows()[0]["difference"] == 0


def test_runs_grow_and_are_left_alone_once_read(recording):
    rec = recording().go(2)
    source, _ = source_of(recording.store)
    columns_of(source, rec.run)
    rec.go(5)
    source._asked = 0.0
    source.refresh(0)
    grown = columns_of(source, rec.run)
    once = columns_of(source_of(recording.store)[0], rec.run)
    assert grown.step.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert grown.cost["rollouts"].tolist() == [64 * s for s in range(1, 8)]
    for mine, other in (
        (grown.cost, once.cost),
        (vars(grown.train), vars(once.train)),
        (grown.evaluated, once.evaluated),
    ):
        for key, value in other.items():
            np.testing.assert_array_equal(mine[key], value)
    assert grown.evaluated["step"].tolist() == [0, 6]
    asked, ask = [], source.ask
    source.ask = lambda q, **p: asked.append(q) or ask(q, **p)
    columns_of(source, rec.run)
    assert asked == []


def test_a_run_whose_pipeline_is_swapped_after_it_was_read_is_pooled_with_the_others_no_more(recording):
    runs = [recording().go(2) for _ in range(2)]
    source, names = source_of(recording.store)
    assert [columns_of(source, run).label for run in names] == ["grpo + mopps"] * 2
    runs[0].writer.command("swap", {"from": "grpo + mopps", "to": "grpo"}, 3)
    runs[0].go(1)
    source.refresh(0)
    made = compared(source, [r.run for r in runs], "training reward", "rollouts")
    assert [c.label for c in made.curves] == ["grpo + mopps (changed on the way)", "grpo + mopps"]
    assert made.curves[0].x.tolist() == [64, 128, 192]
    assert len(made.comparison.labels) == 2
    assert f"{runs[0].run} changed its pipeline on the way" in made.comparison.warnings


def test_what_cannot_be_compared_says_why(recording):
    rec = recording().go(1)
    source, _ = source_of(recording.store)
    made = compared(source, [rec.run, "gone"], "evaluation pass rate", "tokens")
    assert made.comparison is None and "two runs" in made.why
    assert made.left_out[rec.run] == "fewer than two evaluations so far"
    assert "there is no run 'gone'" in made.left_out["gone"]


def test_an_evaluation_before_the_first_step_costs_nothing(recording):
    rec = recording().go(6)
    source, _ = source_of(recording.store)
    curve = columns_of(source, rec.run).curve("evaluation pass rate", "rollouts")
    assert curve.x.tolist() == [0, 6 * 64]


def test_pipelines_that_cannot_be_read_are_pooled_with_nothing():
    assert named("grpo + mopps", "r-1") == "grpo + mopps"
    assert named([{"method": "nobody_knows", "n": 3}, {"method": "grpo"}], "r-1") == "nobody_knows(n=3) + grpo"
    assert named([{"no_method": 1}], "r-1") == "r-1 (pipeline unknown here)"
    assert named(None, "r-1") == "r-1"
