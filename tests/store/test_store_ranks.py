"""Several ranks of one run: a step is shown once all of them recorded it, and comes back as one."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_steps import made_beliefs, made_evaluation, made_pool, made_step

from workbench.pipeline import catalog
from workbench.store import RunBusyError, Store, StoreError, Writer, compact

WRITER = Path(__file__).with_name("write_steps.py")
WHOLE = (
    "SELECT s.step, count(*) AS ranks, sum(s.n_rollouts) AS said,"
    " (SELECT count(*) FROM rollouts r WHERE r.step = s.step) AS rows,"
    " (SELECT count(*) FROM fates f WHERE f.step = s.step) AS fates,"
    " (SELECT count(*) FROM completions c WHERE c.step = s.step) AS texts FROM steps s GROUP BY s.step ORDER BY s.step"
)


def start(folder, rank, steps=1000, ranks=2):
    command = [sys.executable, WRITER, folder, "a", str(steps), str(rank), str(ranks)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def pool():
    return made_pool(8)


@pytest.fixture
def both(tmp_path, pool):
    writers = [Writer(tmp_path, {"name": "x"}, pool, run="a", rank=r, ranks=2) for r in (0, 1)]
    yield writers
    for writer in writers:
        writer.close()


def steps_of(pool, rank, n, seed=0):
    rng = np.random.default_rng(seed + 10 * rank)
    return [made_step(s, pool, rng, prompts=3, n=2, among=np.arange(rank, 8, 2)) for s in range(1, n + 1)]


def seen(folder):
    with Store.open(folder) as store:
        return store.sql("SELECT DISTINCT step FROM steps ORDER BY step")["step"].to_pylist()


def test_a_step_is_shown_once_all_ranks_recorded_it(tmp_path, pool, both):
    zero, one = (steps_of(pool, r, 3) for r in (0, 1))
    rng = np.random.default_rng(0)
    with Store.open(tmp_path) as store:

        def shown():
            for writer in both:
                writer.flush()
            rows = store.sql(WHOLE).to_pylist()
            assert all(r["ranks"] == 2 and r["said"] == r["rows"] == r["fates"] == r["texts"] == 12 for r in rows)
            beliefs = store.sql("SELECT coalesce(max(step), 0) AS step FROM beliefs")["step"][0].as_py()
            return [r["step"] for r in rows], beliefs

        assert shown() == ([], 0)
        both[0].append(zero[0], made_beliefs(pool, rng))
        both[0].append(zero[1], made_beliefs(pool, rng))
        assert shown() == ([], 0)
        both[1].append(one[0])
        assert shown() == ([1], 1)
        both[1].append(one[1])
        both[1].append(one[2])
        assert shown() == ([1, 2], 2)
        both[0].append(zero[2], made_beliefs(pool, rng))
        assert shown() == ([1, 2, 3], 3)
        assert store.runs().select(["run", "status", "last_step"]).to_pylist() == [
            {"run": "a", "status": "running", "last_step": 3}
        ]
        both[0].close()
        assert store.runs()["status"].to_pylist() == ["running"]
        both[1].close()
        assert store.runs()["status"].to_pylist() == ["finished"]
        assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True]
        assert store.ask("reward_by_step")["rollouts"].to_pylist() == [12, 12, 12]
        before = store.sql(WHOLE)
        compact(tmp_path)
        assert store.sql(WHOLE) == before


def test_steps_put_the_ranks_together(tmp_path, pool, both):
    parts = [steps_of(pool, r, 2) for r in (0, 1)]
    for writer, steps in zip(both, parts, strict=True):
        for step in steps:
            writer.append(step)
        writer.flush()
    with Store.open(tmp_path) as store:
        back = list(store.steps("a"))
    for one, two, whole in zip(*parts, back, strict=True):
        assert whole.rollouts.id.tolist() == [*one.rollouts.id, *two.rollouts.id]
        assert whole.prompts.tolist() == [*one.prompts, *two.prompts]
        assert whole.rollouts.group.tolist() == [*one.rollouts.group, *(two.rollouts.group + 3)]
        assert (whole.plan.prompt[whole.rollouts.ask] == whole.rollouts.prompt).all()
        assert whole.rollouts.tokens.values.tolist() == [*one.rollouts.tokens.values, *two.rollouts.tokens.values]
        assert whole.advantage.value.tolist() == [*one.advantage.value, *two.advantage.value]
        assert whole.update["grad"].tolist() == [*one.update["grad"], *two.update["grad"]]
        assert (len(whole.events), whole.seconds, whole.update["loss"]) == (4, one.seconds, one.update["loss"])
    method = catalog.make("uniform")
    state = method.init(pool)
    for step in back:
        state = method.observe(state, step)
    assert state.count.sum() == 2 * 6


def test_two_writers_of_one_rank_are_refused(tmp_path, pool, both):
    with pytest.raises(RunBusyError, match=r"rank 1 of run a is being written by process \d+"):
        Writer(tmp_path, {}, pool, run="a", rank=1, ranks=2)
    with pytest.raises(RunBusyError, match="run a is being written"):
        Writer(tmp_path, {}, pool, run="a")
    with pytest.raises(StoreError, match="rank 1 needs the id of the run"):
        Writer(tmp_path, {}, pool, rank=1, ranks=2)
    with pytest.raises(StoreError, match="rank 2 is not one of 2 ranks"):
        Writer(tmp_path, {}, pool, run="a", rank=2, ranks=2)


def test_ranks_go_back_together(tmp_path, pool):
    for rank, n in ((0, 3), (1, 5)):
        with Writer(tmp_path, {}, pool, run="a", rank=rank, ranks=2) as writer:
            for step in steps_of(pool, rank, n):
                writer.append(step)
    assert seen(tmp_path) == [1, 2, 3]
    again = [steps_of(pool, r, 6, seed=5) for r in (0, 1)]
    with Writer(tmp_path, {}, pool, run="a", rank=0, ranks=2) as zero:
        assert (zero.step, zero.attempt) == (3, 1)
        zero.append(again[0][3])
        zero.flush()
        assert seen(tmp_path) == [1, 2, 3]  # step 4 of rank 1 was made beside another step 4
        with Writer(tmp_path, {}, pool, run="a", rank=1, ranks=2) as one:
            assert (one.step, one.attempt) == (3, 1)
            one.append(again[1][3])
        assert seen(tmp_path) == [1, 2, 3, 4]
    with Writer(tmp_path, {}, pool, run="a", start=5) as alone:  # and from here on one rank
        alone.append(again[0][4])
    assert seen(tmp_path) == [1, 2, 3, 4, 5]
    with Store.open(tmp_path) as store:
        assert [len(s.rollouts) for s in store.steps("a")] == [12, 12, 12, 12, 6]


@pytest.mark.slow
def test_two_writer_processes_and_a_reader(tmp_path):
    (tmp_path / "commits").mkdir()
    with Store.open(tmp_path) as store:
        children = [start(tmp_path, rank, 150) for rank in (0, 1)]
        counts = [0]
        while any(child.poll() is None for child in children):
            rows = store.sql(WHOLE).to_pylist()
            assert [r["step"] for r in rows] == list(range(1, len(rows) + 1))
            assert all(r["ranks"] == 2 and r["said"] == r["rows"] == r["fates"] == r["texts"] == 32 for r in rows)
            assert len(rows) >= counts[-1]
            counts.append(len(rows))
        assert [child.wait() for child in children] == [0, 0]
        assert len(store.sql(WHOLE)) == 150 and len(set(counts)) > 3
        assert store.runs()["status"].to_pylist() == ["finished"]


@pytest.mark.slow
def test_ranks_that_are_killed_leave_whole_steps_and_go_on(tmp_path):
    for point in range(3):
        children = [start(tmp_path, rank) for rank in (0, 1)]
        told = [int(child.stdout.readline()) for child in children for _ in range(2)]
        time.sleep(random.Random(point).uniform(0, 0.1))
        for child in children:
            child.kill()
        told += [int(line) for child in children for line in child.stdout.read().split()]
        for child in children:
            child.wait()
        with Store.open(tmp_path) as store:
            rows = store.sql(WHOLE).to_pylist()
            assert [r["step"] for r in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 2
            assert all(r["ranks"] == 2 and r["said"] == r["rows"] == r["fates"] == r["texts"] == 32 for r in rows)
            assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True]
            assert store.runs()["status"].to_pylist() == ["interrupted"]


def test_an_evaluation_is_shown_with_its_step(tmp_path, pool):
    evaluation, rng = made_pool(3, "e"), np.random.default_rng(0)
    with (
        Writer(tmp_path, {}, pool, evaluation, run="a", rank=0, ranks=2) as zero,
        Writer(tmp_path, {}, pool, evaluation, run="a", rank=1, ranks=2) as one,
        Store.open(tmp_path) as store,
    ):
        zero.evaluation(0, made_evaluation(0, evaluation, rng))
        zero.append(steps_of(pool, 0, 1)[0])
        zero.evaluation(1, made_evaluation(1, evaluation, rng))
        zero.flush()
        assert store.ask("eval_by_step")["step"].to_pylist() == [0]
        one.append(steps_of(pool, 1, 1)[0])
        one.flush()
        assert store.ask("eval_by_step")["step"].to_pylist() == [0, 1]


def test_a_group_is_asked_for_by_its_rank(tmp_path, pool, both):
    """Both ranks number their groups from 0, and here both ask for the same prompts: the same rollout ids."""
    made = [made_step(1, pool, np.random.default_rng(r), prompts=3, n=2, among=np.array([1, 4, 6])) for r in (0, 1)]
    for rank, (writer, step) in enumerate(zip(both, made, strict=True)):
        text = np.array([f"rank {rank} row {i}" for i in range(6)], object)
        writer.append(replace(step, rollouts=step.rollouts.with_(text=text)))
        writer.flush()
    with Store.open(tmp_path) as store:
        groups = store.ask("groups_of_step").to_pylist()
        assert [(g["rank"], g["group_id"], g["rollouts"]) for g in groups] == [
            (r, g, 2) for r in (0, 1) for g in range(3)
        ]
        for rank, step in enumerate(made):
            mine = step.rollouts.group == 2
            group = store.ask("page_group", step=1, group=2, rank=rank).to_pylist()
            assert {g["rollout_id"]: g["text"] for g in group} == dict(
                zip(step.rollouts.id[mine], [f"rank {rank} row 4", f"rank {rank} row 5"], strict=True)
            )
            parts = store.ask("page_parts", step=1, group=2, rank=rank).to_pylist()
            assert sorted(p["rollout_id"] for p in parts) == sorted(np.repeat(step.rollouts.id[mine], 2))
            one = store.ask("page_text", step=1, rollout=step.rollouts.id[0], rank=rank)
            assert one["text"].to_pylist() == [f"rank {rank} row 0"]
            tree = store.ask("tree_of_group", group=2, rank=rank).to_pylist()
            assert [n["text"] for n in tree if n["kind"] == "model"] == [f"rank {rank} row 4", f"rank {rank} row 5"]
        last = store.ask("page_last_asked", prompt=pool.ids[made[1].prompts[0]]).to_pylist()
        assert [(row["step"], row["rank"]) for row in last] == [(1, 0)]
        found = store.ask("search_completions", text='"RANK 1" 5').to_pylist()
        assert [(f["rank"], f["row"]) for f in found] == [(1, 5)]
