"""Verifiers at work while rollouts are generated: they hold up nothing, and say what they would have said at the end."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from tests.timing import patience
from workbench.analysis.diagnose import diagnose
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.runs.verdicts import VerifierFailed
from workbench.stages import Checkpoint, Prune
from workbench.store import Store
from workbench.tasks.isolated import Isolated
from workbench.tasks.task import Task
from workbench.types import Budget, Cut, Plan, Ragged, Rollouts
from workbench.worlds.engines.graph_engine import GraphEngine
from workbench.worlds.live.verification import Verification, filled
from workbench.worlds.live.world import LiveWorld

from .conftest import pool_of, toy_model, toy_tokenizer
from .grading import digits

PLAN = Plan(np.array([0, 3, 11]), np.array([4, 2, 3]), step=1)


def world_of(verify, engine: str = "transformers", **options) -> LiveWorld:
    verifier = Isolated(verify, workers=1, **{"sandbox": False} | options)  # the verifiers of these tests leave files
    task = Task("toy", pool_of(range(2, 14)), pool_of(range(50, 53)), 12, ("\n",), verifier)
    world = LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3)
    if engine == "graph":
        world.engine = GraphEngine(world.policy.model)
    return world


def appears(path: str, seconds: float = 30.0) -> bool:
    """Wait for a file."""
    until = time.monotonic() + patience(seconds)
    while not Path(path).exists() and time.monotonic() < until:
        time.sleep(0.01)
    return Path(path).exists()


@pytest.mark.parametrize("engine", ["transformers", "graph"])
def test_a_hanging_verifier_does_not_hold_generation(tmp_path, engine):
    begun, generated = str(tmp_path / "begun"), str(tmp_path / "generated")

    def hangs(completion: str, answer: str) -> float:
        import time
        from pathlib import Path

        Path(begun).touch()
        for _ in range(3000):
            if Path(generated).exists():
                return 1.0
            time.sleep(0.01)
        return 0.0

    world = world_of(hangs, engine, timeout=30.0)
    generate, ended_before_the_end = world.engine.generate, []

    def watched(request):
        def on_end(row, tokens):
            request.on_end(row, tokens)
            ended_before_the_end.append(row)

        made = generate(request._replace(on_end=on_end))
        assert appears(begun)  # a group is being judged, and generation has got to its end
        Path(generated).touch()
        return made

    world.engine.generate = watched
    rows = world.sample(PLAN)
    assert sorted(ended_before_the_end) == list(range(9))
    assert rows.reward.tolist() == [1.0] * 9
    assert rows.failure.tolist() == [""] * 9
    world.task.verifier.close()


def test_the_first_group_is_judged_while_the_others_are_generated(tmp_path):
    judged = str(tmp_path / "judged")

    def touches(completion: str, answer: str) -> float:
        from pathlib import Path

        Path(judged).touch()
        return 1.0

    world = world_of(touches)
    world.engine.max_rows = 4  # the prompts one after the other
    generate, seen = world.engine.generate, []

    def watched(request):
        def on_end(row, tokens):
            if row == 8:  # the last one waits for a verdict on an earlier one
                seen.append(appears(judged))
            request.on_end(row, tokens)

        return generate(request._replace(on_end=on_end))

    world.engine.generate = watched
    assert world.sample(PLAN).reward.tolist() == [1.0] * 9
    assert seen == [True]
    world.task.verifier.close()


def test_a_verifier_that_never_answers_costs_rewards_and_not_the_step():
    def never(completion: str, answer: str) -> float:
        while True:
            pass

    world = world_of(never, timeout=0.2)
    with pytest.warns(RuntimeWarning, match="no verdict within"):
        rows = world.sample(Plan(np.array([0, 3]), np.array([1, 1]), step=1))
    assert np.isnan(rows.reward).all()
    assert set(rows.failure) == {"verifier_timeout"}
    assert (rows.length > 0).all()
    world.task.verifier.close()


@pytest.mark.parametrize("grown", [False, True])
def test_verdicts_are_those_given_at_the_end(grown, monkeypatch):
    def half(frontier) -> Cut:
        b = len(frontier)
        out = (frontier.branch % 2 == 1) & (frontier.n_tokens == 2)
        return Cut((~out).astype(np.int64), np.where(out, "half", ""), np.ones(b))

    hooks = (None, Prune(half, Checkpoint(2))) if grown else ()
    early = world_of(digits)
    rows = early.sample(PLAN, *hooks)
    late = world_of(digits)
    make = Verification.__init__

    def waits(self, task, pool):
        make(self, task, pool)
        self.early = False

    monkeypatch.setattr(Verification, "__init__", waits)
    expected = late.sample(PLAN, *hooks)
    for name in ("id", "text", "answer", "failure", "finish"):
        assert getattr(rows, name).tolist() == getattr(expected, name).tolist(), name
    for a, b in ((rows.reward, expected.reward), (rows.correct, expected.correct), *zip(rows.rewards.values(), expected.rewards.values(), strict=True)):  # fmt: skip
        assert np.array_equal(a, b, equal_nan=True)
    assert np.isnan(rows.reward).sum() == (rows.finish == "pruned").sum()
    assert len(set(rows.reward[rows.finish != "pruned"])) > 2
    for world in (early, late):
        world.task.verifier.close()


def test_extra_columns_of_the_task_go_along_with_the_verdicts():
    rows = Rollouts.of_plan(PLAN, pool_of(range(2, 14)))
    rows = rows.with_(extra={"mine": np.arange(9)})
    seen = [rows.take(np.array(k)) for k in ([4, 1], [7])]
    parts = [
        part.with_(
            extra={
                **part.extra,
                "steps": Ragged.of([[i] * 2 for i in part.extra["mine"]], np.int32),
                "whole": part.extra["mine"] * 10,
                "pair": np.stack([part.extra["mine"]] * 2, 1).astype(np.float32),
                "said": np.array([f"row {i}" for i in part.extra["mine"]]),
            }
        )
        for part in seen
    ]
    extra = filled(rows, parts).extra
    there = np.isin(np.arange(9), [1, 4, 7])
    assert extra["mine"].tolist() == list(range(9))
    assert [row.tolist() for row in extra["steps"].rows()] == [[i, i] if there[i] else [] for i in range(9)]
    assert extra["steps"].values.dtype == np.int32
    assert np.array_equal(extra["whole"], np.where(there, np.arange(9) * 10.0, np.nan), equal_nan=True)
    assert extra["pair"].dtype == np.float32
    assert np.array_equal(np.isnan(extra["pair"]).all(1), ~there)
    assert extra["said"].tolist() == [f"row {i}" if there[i] else "" for i in range(9)]
    everybody = rows.with_(extra={"mine": rows.extra["mine"], "whole": np.arange(9)})
    assert filled(rows, [everybody]).extra["whole"].dtype == everybody.extra["whole"].dtype


def test_a_broken_engine_leaves_no_verifier_behind():
    world = world_of(digits)

    def breaks(request):
        for row in range(4):
            request.on_end(row, np.array([5, 6, 7]))
        raise RuntimeError("boom")

    world.engine.generate = breaks
    with pytest.raises(RuntimeError, match="boom"):
        world.sample(PLAN)
    del world.engine.generate
    assert np.isfinite(world.sample(PLAN).reward).all()
    world.task.verifier.close()


def test_why_verifiers_failed_is_recorded_and_found(tmp_path):
    def strict(completion: str, answer: str) -> object:
        if len(completion) % 2:
            raise ValueError("<b>odd</b> \udcff")
        return "nonsense"

    experiment = Experiment(
        pipeline="grpo", budget=Budget(3, 12), steps=1, store=str(tmp_path), eval_every=0, checkpoint_every=0
    )
    world = world_of(strict)
    told = pytest.warns(RuntimeWarning, match="odd|not a number"), pytest.raises(VerifierFailed, match="any of 12")
    with told[0], told[1], Run(experiment, world=world) as run:
        run.step()
    step = run.last
    world.task.verifier.close()
    odd = np.array([len(t) % 2 == 1 for t in step.rollouts.text])
    assert 0 < odd.sum() < 12
    with Store.open(tmp_path) as store:
        told = {
            e.subject: (e.message, e.count) for e in next(iter(store.steps(run.run_id))).events if e.kind == "warning"
        }
        assert told == {
            "verifier_invalid": (
                f"{12 - odd.sum()} rollouts got no reward: verifier invalid; first: TypeError: reward is str, not a number",
                12 - odd.sum(),
            ),
            "verifier_raised": (
                f"{odd.sum()} rollouts got no reward: verifier raised; first: ValueError: <b>odd</b> ?",
                odd.sum(),
            ),
        }
        found = {f.rule: f for f in diagnose(store)}["verifier_failures"]
    assert found.evidence == {"verifier_raised": odd.sum(), "verifier_invalid": 12 - odd.sum()}
    assert "100.0% of the rollouts got no reward, most: verifier " in found.what
    assert "odd" in found.what or "not a number" in found.what
