"""Rollouts cut off in one step go on in a later one: same draws, also under newer weights, each token with its version."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.timing import patience
from workbench import Store
from workbench.pipeline import Pipeline, run
from workbench.stages import Checkpoint, Prune
from workbench.types import Advantage, Budget, Cut, Loss, Plan, Ragged, Resume, Rollouts
from workbench.worlds.engines.graph_engine import GraphEngine
from workbench.worlds.live.world import LiveWorld
from workbench.worlds.overlap.overlap import run_async

from .carry import Carry
from .conftest import toy_model, toy_tokenizer
from .scripted_engine import ScriptedEngine

SCRIPT = Path(__file__).with_name("run_carried.py")


def uneven(path) -> dict[int, float]:
    """A script: digits and letters, "<end>" one time in ten."""
    last = path[-1]
    return {0: 0.1, 3 + last % 10: 0.5, 17 + last % 8: 0.4}


def world_of(task, engine: str = "transformers") -> LiveWorld:
    world = LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=1e-2, max_tokens=12)
    if engine == "scripted":
        world.engine = ScriptedEngine(uneven)
    if engine == "graph":
        world.engine = GraphEngine(world.policy.model)
    return world


def after(n: int) -> Prune:
    """Carries everything that has n tokens."""

    def act(frontier) -> Cut:
        b = len(frontier)
        out = frontier.n_tokens >= n
        return Cut((~out).astype(np.int64), np.where(out, "late", ""), np.ones(b), finish=np.full(b, "carried", object))

    return Prune(act, Checkpoint(every=n))


def begun(step: int = 1) -> Plan:
    return Plan(np.array([0, 3, 11]), np.array([4, 2, 3]), step=step)


def resumed(rows: Rollouts, step: int) -> Plan:
    """One ask for each of the rows."""
    start = np.empty(len(rows), dtype=object)
    start[:] = [Resume(i) for i in rows.id]
    ordinal = np.array([(rows.prompt[:i] == p).sum() for i, p in enumerate(rows.prompt)])
    return Plan(rows.prompt, np.ones(len(rows), np.int64), start=start, ordinal=ordinal, step=step)


def push(batch) -> Loss:
    return Loss(-batch.advantage * (batch.logp - batch.proximal).exp())


def finish_step(world: LiveWorld, rows: Rollouts, trained: bool) -> None:
    """Carry what has no reward; train on the rest, or on nothing."""
    advantage = Advantage.start(rows)
    if trained:
        value = np.where(advantage.keep, 1.0 + np.arange(len(rows)), 0.0)
        world.update(rows, Advantage(value, *list(vars(advantage).values())[1:]), push, [])
    else:
        world.update(rows, advantage.drop(advantage.keep, "carried"), push, [])


@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("engine", ["transformers", "scripted", "graph"])
def test_a_resumed_rollout_is_the_uninterrupted_one_at_fixed_weights(task, engine, grown):
    whole = world_of(task, engine).sample(begun())
    assert (whole.length > 5).sum() >= 3
    world = world_of(task, engine)
    rows = world.sample(begun(), None, after(2))
    for step, n in ((2, 5), (3, 100)):
        assert set(rows.finish) <= {"carried", "stop"}
        assert np.isnan(rows.reward[rows.finish == "carried"]).all()
        finish_step(world, rows, trained=False)
        assert world.version == 0
        last = step == 3 and not grown
        rows = world.sample(resumed(rows, step), *(() if last else (None, after(n))))
    for name in ("text", "finish", "reward", "length"):
        assert getattr(rows, name).tolist() == getattr(whole, name).tolist(), name
    assert rows.tokens.values.tolist() == whole.tokens.values.tolist()
    assert rows.logp.values == pytest.approx(whole.logp.values, abs=1e-5)
    assert rows.entropy.values == pytest.approx(whole.entropy.values, abs=1e-5)
    assert rows.extra["token_version"].values.tolist() == [0] * len(whole.tokens.values)


def test_tokens_of_two_versions_keep_the_log_probabilities_they_were_sampled_with(task):
    world = world_of(task)
    first = world.sample(begun(), None, after(3))
    out = first.take(first.finish == "carried")
    assert 0 < len(out) < len(first)
    finish_step(world, first, trained=True)
    assert world.version == 1
    rows = world.sample(resumed(out, 2))
    current = world.score(rows, frozenset({"current"})).current
    for i in range(len(rows)):
        n = int(rows.length[i])
        assert rows.extra["token_version"].row(i).tolist() == [0] * 3 + [1] * (n - 3)
        assert rows.tokens.row(i)[:3].tolist() == out.tokens.row(i).tolist()
        assert rows.logp.row(i)[:3].tolist() == out.logp.row(i).tolist()
        assert rows.logp.row(i)[3:] == pytest.approx(current.row(i)[3:], abs=1e-4)
        assert np.abs(rows.logp.row(i)[:3] - current.row(i)[:3]).max() > 1e-3
    assert set(rows.version) == {1}
    assert np.isfinite(rows.reward).all()


@pytest.mark.parametrize("hooks", [(), (None, after(3))])
def test_what_has_ended_waits_for_its_group_and_is_not_made_again(task, hooks):
    world = world_of(task)
    rows = world.sample(begun())
    finish_step(world, rows, trained=False)
    again = world.sample(resumed(rows, 2), *hooks)
    done = world.update(again, Advantage.start(again).drop(np.ones(len(again), bool), "x"), push, [])
    assert done["decoded_tokens"] == 0
    assert done["prefilled_tokens"] < 30  # a session has a prefix, though nothing goes on from it
    for name in ("text", "finish", "reward", "length"):
        assert getattr(again, name).tolist() == getattr(rows, name).tolist(), name
    assert again.logp.values.tolist() == rows.logp.values.tolist()


def test_the_first_row_of_an_ask_goes_on_and_the_others_fork(task):
    world = world_of(task)
    whole = world_of(task).sample(begun())
    first = world.sample(begun(), None, after(2))
    finish_step(world, first, trained=False)
    row = int(np.flatnonzero(whole.length > 5)[0])
    start = np.empty(1, dtype=object)
    start[0] = Resume(first.id[row])
    rows = world.sample(Plan(first.prompt[[row]], np.array([4]), start=start, step=2))
    assert rows.tokens.row(0).tolist() == whole.tokens.row(row).tolist()
    assert {tuple(t[:2]) for t in rows.tokens.rows()} == {tuple(whole.tokens.row(row)[:2])}
    assert len({tuple(t) for t in rows.tokens.rows()}) > 1


def test_only_what_is_under_way_can_be_resumed_and_once(task):
    world = world_of(task)
    first = world.sample(begun(), None, after(2))
    with pytest.raises(ValueError, match="no such rollout was carried out of an earlier step"):
        world.sample(resumed(first, 2))
    finish_step(world, first, trained=False)
    one = resumed(first.take(np.array([0])), 2)
    with pytest.raises(ValueError, match=r"Resume.* of prompt q5: .* of this prompt there are 1:q5:0, 1:q5:1"):
        world.sample(Plan(np.array([3]), np.array([1]), start=one.start, step=2))
    rows = world.sample(one)
    with pytest.raises(ValueError, match="another ask goes on with this rollout already"):
        world.sample(one)
    finish_step(world, rows, trained=False)
    with pytest.raises(ValueError, match="of this prompt there are 1:q2:1, 1:q2:2, 1:q2:3"):
        world.sample(resumed(first.take(np.array([0])), 3))


def test_a_saved_world_goes_on_with_what_was_under_way(task, tmp_path):
    world = world_of(task)
    first = world.sample(begun(), None, after(2))
    finish_step(world, first, trained=True)
    world.save(tmp_path / "checkpoint")
    other = world_of(task)
    other.load(tmp_path / "checkpoint")
    out = first.take(first.finish == "carried")
    a, b = world.sample(resumed(out, 2)), other.sample(resumed(out, 2))
    assert a.tokens.values.tolist() == b.tokens.values.tolist()
    assert a.logp.values.tolist() == b.logp.values.tolist()
    assert a.extra["token_version"].values.tolist() == b.extra["token_version"].values.tolist()


def test_a_run_carries_records_and_balances(task, tmp_path):
    from workbench.store import Writer

    world, pipeline = world_of(task), Pipeline(*Pipeline.parse("grpo").chosen, Carry())
    with Writer(tmp_path, {}, world.pool, world.evaluation) as writer:
        steps = []
        for states, step in run(pipeline, world, Budget(prompts=3, rollouts=12), steps=4, seed=3):
            writer.append(step, pipeline.reveal(states))
            steps.append(step)
    assert [int((s.fate == "carried").sum()) > 2 for s in steps] == [True] * 4
    with Store.open(tmp_path) as store:
        ledger = store.sql("SELECT step, sum(carried_in) AS i, sum(carried_out) AS o, bool_and(balanced) AS b FROM ledger"
                           " GROUP BY step ORDER BY step").to_pylist()  # fmt: skip
        kept = list(store.steps(writer.run, world.pool, needs=frozenset({"tokens"})))
    assert all(row["b"] for row in ledger)
    assert [row["i"] for row in ledger] == [0] + [row["o"] for row in ledger[:-1]]
    for mine, made in zip(kept, steps, strict=True):
        assert mine.fate.tolist() == made.fate.tolist()
        if made.step > 1:
            there, here = mine.rollouts.extra["token_version"], made.rollouts.extra["token_version"]
            assert isinstance(there, Ragged) and there.values.tolist() == here.values.tolist()
            mixed = [len(set(v.tolist())) for v in here.rows()]
            assert max(mixed) == 2
    assert pipeline.fold(world.pool, kept)["carry"] == states["carry"]


@pytest.mark.slow
def test_killed_and_resumed_carries_on_as_if_uninterrupted(tmp_path):
    def process(*arguments: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, str(SCRIPT), *arguments], stdout=subprocess.PIPE, text=True)

    def lines_of(running: subprocess.Popen) -> list[dict]:
        out, _ = running.communicate(timeout=patience(300))
        assert running.returncode == 0
        return [json.loads(line) for line in out.splitlines()]

    cut = process(str(tmp_path / "cut"), "6")
    head = json.loads(cut.stdout.readline())
    for line in cut.stdout:
        if json.loads(line)["step"] == 3:
            break
    os.kill(cut.pid, signal.SIGKILL)
    assert cut.wait() == -signal.SIGKILL
    cut.stdout.close()
    expected = lines_of(process(str(tmp_path / "whole"), "5"))
    again = lines_of(process(str(tmp_path / "cut"), "5", head["run"]))
    assert again[0] == {"run": head["run"], "from": 2}
    assert again[1:] == expected[3:]
    assert all(line["resumed"] > 0 and line["carried"] > 0 for line in again[1:])


@pytest.mark.parametrize("staleness", [0, 1])
def test_overlapped_steps_resume_what_finished_ones_carried(task, staleness):
    def facts(steps) -> list[tuple]:
        return [
            (s.rollouts.id.tolist(), s.rollouts.tokens.values.tolist(), s.rollouts.version.tolist(), s.update["loss"])
            for _, s in steps
        ]

    budget = Budget(prompts=3, rollouts=12)
    pipeline = Pipeline(*Pipeline.parse("grpo").chosen, Carry())
    once, again = (
        list(run_async(pipeline, world_of(task), budget, steps=5, seed=3, staleness=staleness)) for _ in range(2)
    )
    assert facts(once) == facts(again)
    if staleness == 0:
        assert facts(once) == facts(run(pipeline, world_of(task), budget, steps=5, seed=3))
    for _, step in once[2:]:
        newest = step.step - 1 - staleness
        made = step.rollouts.extra["token_version"]
        assert made.values.max() == step.rollouts.version.max() == newest
        mixed = [sorted(set(v.tolist())) for v in made.rows()]
        assert max(map(len, mixed)) == 2
        resumed_by = {s.rollout for s in step.plan.start if isinstance(s, Resume)}
        assert resumed_by == set(once[newest - 1][1].rollouts.id[once[newest - 1][1].fate == "carried"])
