"""kill -9 of one of two ranks: steps that both committed are whole, no other is seen, and the run goes on as planned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from run_steps import first_plan, make_world, parts_of, pipeline_of, ranked_run
from same import same

from tests.timing import patience
from workbench.store import Store, Writer
from workbench.store.rows.rebuild import merged
from workbench.types import Step

SCRIPT = Path(__file__).with_name("kill_ranks.py")
POINTS, STEPS, SWAP, RANKS = 12, 9, 5, 2


class Uninterrupted:
    """The run nobody killed: its pool, the parts of each rank, steps as all see them, and the states before each."""

    def __init__(self) -> None:
        self.pool = make_world().pool
        made = list(ranked_run(STEPS + 1, SWAP, RANKS))
        self.states = [states for _, states, _, _ in made]
        self.parts = [parts for _, _, parts, _ in made]
        self.steps = [step for _, _, _, step in made]


@pytest.fixture(scope="module")
def whole():
    return Uninterrupted()


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, SCRIPT, folder, str(POINTS), str(STEPS), str(SWAP)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=patience(120))
    return folder, [json.loads(line) for line in done.stdout.splitlines()]


def recorded(step: Step) -> dict:
    """What is compared of a step: all but the clock."""
    return {name: getattr(step, name) for name in ("prompts", "plan", "rollouts", "advantage", "fate", "fate_reason")}


def test_the_parts_of_a_step_make_the_step(whole):
    for parts in whole.parts:
        assert len(parts) == RANKS and all(len(p.rollouts) for p in parts)
        again = merged(parts_of(merged(parts), RANKS))
        assert sorted(again.rollouts.id) == sorted(merged(parts).rollouts.id)


@pytest.mark.slow
def test_each_rank_is_killed_and_ranks_stand_apart(killed):
    assert [k["killed"] for k in killed[1]] == [p % RANKS for p in range(POINTS)]
    assert len({tuple(k["acknowledged"]) for k in killed[1]}) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("point", range(POINTS))
def test_what_both_committed_is_whole_and_the_run_goes_on_as_planned(killed, whole, point):
    folder, told = killed[0] / str(point), killed[1][point]["acknowledged"]
    with Store.open(folder) as store:
        steps = list(store.steps("a", whole.pool)) if store.latest() and store.sql("FROM steps").num_rows else []
        last = len(steps)
        assert last >= min(told)
        assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True if last else None]
    assert_same_run(steps, whole, last)
    writers = [Writer(folder, {"name": "ranks"}, whole.pool, run="a", rank=r, ranks=RANKS) for r in range(RANKS)]
    assert [(w.step, w.attempt) for w in writers] == [(last, 1)] * RANKS
    for parts in whole.parts[last:STEPS]:
        for writer, part in zip(writers, parts, strict=True):
            writer.append(part)
    for writer in writers:
        writer.close()
    with Store.open(folder) as store:
        assert_same_run(list(store.steps("a", whole.pool)), whole, STEPS)
        assert store.runs()["status"].to_pylist() == ["finished"]


def assert_same_run(steps: list[Step], whole: Uninterrupted, last: int) -> None:
    """The steps, the states folded from them and the plan they lead to are those of the run nobody killed."""
    assert [s.step for s in steps] == list(range(1, last + 1))
    for found, wanted in zip(steps, whole.steps, strict=False):
        same(recorded(wanted), recorded(found))
    pipeline = pipeline_of(last + 1, SWAP)
    states = {m.name: m.init(whole.pool) for m in pipeline.methods}
    for step in steps:
        states = pipeline.observe(states, step)
    same(whole.states[last], states)
    same(first_plan(whole.pool, whole.states[last], last + 1, SWAP), first_plan(whole.pool, states, last + 1, SWAP))
