"""An overlapped run that is broken off and resumed is the uninterrupted one: what waited waits again."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from workbench import Experiment, Store
from workbench.pipeline import Pipeline
from workbench.runs.run import Run
from workbench.stages import Card, Checkpoint, Method
from workbench.types import Budget, Cut, Plan, Ragged, Resume, Rollouts, Step, Text
from workbench.worlds.live.world import LiveWorld
from workbench.worlds.overlap import waiting
from workbench.worlds.overlap.overlap import Overlap
from workbench.worlds.overlap.waiting import Kept

from .carry import Carry
from .conftest import pool_of, toy_model, toy_tokenizer

BUDGET = Budget(prompts=3, rollouts=12)
KEPT = Kept(7, 5, 4, "abc", (), {"spent": {"decoded_tokens": 3.0}})


def rows() -> Rollouts:
    """Five rows with a column of every kind."""
    asked = Rollouts.of_plan(Plan(np.array([0, 2]), np.array([2, 3]), step=7), pool_of(range(2, 8)), 4)
    ragged = Ragged.of([[1, 2], [], [3], [4, 5, 6], [7]], np.int32)
    comment = np.array(["é", None, "\ud800", "a\0", ""], dtype=object)
    return asked.with_(
        tokens=ragged,
        logp=ragged._replace(values=(np.arange(7) / -3).astype(np.float32)),
        reward=np.array([0.1, np.nan, 1.0, -np.inf, 0.3]),
        rewards={"format": np.arange(5.0)},
        extra={
            "state": np.arange(10, dtype=np.float16).reshape(5, 2),
            "forced": np.array([True, False, True, True, False]),
            "comment": comment,
            "reason": np.array(["", "late", "", "", "x"]),
            "marks": ragged,
        },
    )


def columns(one: Rollouts) -> dict[str, tuple]:
    """Type, shape and values of every column."""

    def told(column) -> tuple:
        if isinstance(column, Ragged):
            return told(column.values), told(column.offsets)
        return column.dtype.str, column.shape, repr(column.tolist())

    named = {k: v for k, v in vars(one).items() if k not in ("rewards", "extra") and v is not None}
    return {k: told(v) for k, v in {**named, **one.rewards, **one.extra}.items()}


def test_rows_come_back_as_they_were(tmp_path):
    assert waiting.save([KEPT._replace(rounds=[("a", rows()), ("b", rows().take(np.array([3])))])], tmp_path) == ""
    [back] = waiting.load(tmp_path)
    assert back._replace(rounds=()) == KEPT
    assert [mark for mark, _ in back.rounds] == ["a", "b"]
    for (_, mine), theirs in zip(back.rounds, (rows(), rows().take(np.array([3]))), strict=True):
        assert columns(mine) == columns(theirs)
        assert set(mine.extra) == set(theirs.extra)


@pytest.mark.parametrize("judge", [[object()] * 5, [(1, 2), (), None, "", 3], [{1: 2}] * 5])
def test_what_is_neither_text_nor_number_is_told_and_left_out(tmp_path, judge):
    column = np.empty(5, object)
    column[:] = judge
    odd = rows().with_(extra={"judge": column})
    steps = [KEPT._replace(rounds=[("a", rows())]), KEPT._replace(step=8, rounds=[("a", odd)]), KEPT._replace(step=9)]
    told = waiting.save(steps, tmp_path)
    assert told.startswith("step 8, which waits, is generated again after a resume: column extra.judge holds more")
    assert [k.step for k in waiting.load(tmp_path)] == [7]


def test_a_table_of_texts_is_told_and_left_out(tmp_path):
    step = KEPT._replace(rounds=[("a", rows().with_(extra={"parts": np.array([["a", "b"]] * 5)}))])
    assert "column extra.parts holds more than texts and numbers" in waiting.save([step], tmp_path)
    assert waiting.load(tmp_path) == []


def test_marks_tell_plans_apart():
    plan = Plan(np.array([0, 2]), np.array([2, 3]), step=7)
    assert waiting.mark_of(plan) == waiting.mark_of(Plan(np.array([0, 2]), np.array([2, 3]), step=7))
    hint = np.array([None, Text("so")], dtype=object)
    others = [replace(plan, step=8), replace(plan, n=np.array([3, 2])), replace(plan, start=hint)]
    others.append(plan.with_n(plan.n, plan.n + 1))  # as many roots, with more room for forks
    assert len({waiting.mark_of(p) for p in (plan, *others)}) == 5


def facts(step: Step) -> dict[str, object]:
    """What a step was and did, to the last bit; seconds aside."""
    r, seconds = step.rollouts, ("seconds", "cpu_seconds", "sync_seconds")
    figures = {k: v.tobytes() if isinstance(v, np.ndarray) else v for k, v in step.update.items()}
    return {
        **columns(r),
        "prompts": step.prompts.tolist(),
        "folded_through": step.plan.folded_through,
        "fate": step.fate.tolist(),
        "update": {k: v for k, v in figures.items() if not k.endswith(seconds)},
        "advantage": step.advantage.value.tobytes(),
    }


@dataclass(frozen=True)
class Cutting(Method):
    """Cuts every second rollout that gets to three tokens."""

    card: ClassVar[Card] = Card("cutting", "for tests")
    checkpoint: ClassVar[Checkpoint] = Checkpoint(every=3)

    def prune(self, state, frontier, rng) -> Cut:
        on = rng.random(len(frontier)) < 0.5
        return Cut(on.astype(np.int64), np.where(on, "", "even"), np.full(len(on), 0.5))


def live(task) -> LiveWorld:
    task.pool = replace(task.pool, extra={"strategies": np.full(len(task.pool.ids), "abc\nhad", dtype=object)})
    return LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=1e-2, max_tokens=8)


PIPELINES = {
    "plain": (Pipeline.parse("grpo + mopps"), lambda s: s.update["version_lag"] > 0),
    "rounds": (Pipeline.parse("grpo + dapo_dynamic_sampling"), lambda s: s.plan.round.max() > 0),
    "texts": (Pipeline.parse("grpo + nudgerl"), lambda s: (s.rollouts.context != "").any()),
    "cuts": (Pipeline(*Pipeline.parse("grpo").chosen, Cutting()), lambda s: (s.fate == "pruned").any()),
    "carried": (
        Pipeline(*Pipeline.parse("grpo").chosen, Carry()),
        lambda s: any(isinstance(start, Resume) for start in s.plan.start),
    ),
}
"""Name -> pipeline, and what makes a step one of its kind."""


@pytest.mark.parametrize("staleness", [1, 2])
@pytest.mark.parametrize("name", PIPELINES)
def test_a_live_world_goes_on_with_what_waited(task, tmp_path, name, staleness):
    (pipeline, is_of_kind), world = PIPELINES[name], live(task)
    states, seen, tests = [pipeline.init(world.pool)], [], []
    overlap = Overlap(world, staleness, lambda: 9)
    for step in range(1, 8):
        after, done = overlap(pipeline, states[-1], world, BUDGET, step=step, seed=3)
        states.append(after)
        seen.append(facts(done))
        tests.append(world.taken_decisions())
        if step == 4:
            world.save(tmp_path / "world")
            assert overlap.save(tmp_path) == ""
    overlap.close()
    kept = waiting.load(tmp_path)
    assert [k.step for k in kept] == [*range(5, 5 + staleness)]
    again = live(task)
    again.load(tmp_path / "world")
    overlap = Overlap(again, staleness, lambda: 9, kept, dict(enumerate(states)))
    state = states[4]
    for step in range(5, 8):
        state, done = overlap(pipeline, state, again, BUDGET, step=step, seed=3)
        assert step > 5 or is_of_kind(done)
        assert facts(done) == seen[step - 1]
        assert again.taken_decisions() == tests[step - 1]
    overlap.close()


SMALL = Experiment(model="sim", steps=8, eval_every=0, checkpoint_every=3, budget=BUDGET, world={"n_prompts": 40})


@pytest.mark.parametrize("model", ["sim", "tiny"])
def test_a_run_that_was_killed_goes_on_as_if_it_had_not(tmp_path, model):
    settings = {"n_prompts": 40} if model == "sim" else {"threads": 1, "max_tokens": 6}
    store = tmp_path / "whole"
    experiment = SMALL.with_(store=str(store), model=model, staleness=2, pipeline="grpo + mopps", world=settings)
    with Run(experiment) as run:
        expected = []
        for _ in range(8):
            expected.append(facts(run.step()))
            if run.n_steps == 4:  # one after the checkpoint
                run.record.writer.flush()
                shutil.copytree(store, tmp_path / "cut")
    with Run(experiment.with_(store=str(tmp_path / "cut")), resume=run.run_id) as again:
        assert again.n_steps == 3
        assert [facts(again.step()) for _ in range(5)] == expected[3:]
    with Store.open(tmp_path / "cut") as cut, Store.open(store) as whole:
        asked = "select step, folded_through, count(*) as n from steps join rollouts using (run, step) group by all order by all"
        assert cut.sql(asked).to_pylist() == whole.sql(asked).to_pylist()


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path):
    experiment = SMALL.with_(store=str(tmp_path / "whole"), staleness=1)
    expected = [facts(step) for step in experiment.run()]
    with Run(experiment.with_(store=str(tmp_path / "cut"))) as run:
        for _ in range(4):
            run.step()
    with Run(experiment.with_(store=str(tmp_path / "cut")), resume=run.run_id) as again:
        assert [facts(again.step()) for _ in range(4)] == expected[4:]


@pytest.mark.parametrize(
    "change", [{"staleness": 2}, {"pipeline": "grpo + vade"}, {"budget": Budget(prompts=2, rollouts=12)}]
)
def test_what_would_be_planned_otherwise_is_generated_anew(tmp_path, change):
    experiment = SMALL.with_(store=str(tmp_path), staleness=1, pipeline="grpo + mopps")
    with Run(experiment) as run:
        for _ in range(3):
            run.step()
    with Run(experiment.with_(**change), resume=run.run_id) as again:
        first = again.step()
    assert (first.plan.folded_through, first.update["version_lag"]) == (3, 0)
