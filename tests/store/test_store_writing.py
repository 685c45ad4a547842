"""The writer: one commit a step, errors that lose nothing, runs that are resumed, a bounded queue."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from made_steps import made_beliefs, made_evaluation, made_pool, made_step

from tests.timing import patience
from workbench.store import SCHEMA_VERSION, RunBusyError, Store, StoreError, Writer, compact
from workbench.store.care.check import check
from workbench.store.folder import bundle, files


@pytest.fixture
def pool():
    return made_pool(8)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def commits(path, run):
    return sorted(p for p in (path / "commits" / run / "r0").iterdir() if p.is_dir())


def test_a_step_is_one_directory_and_its_cost_does_not_grow(tmp_path, pool, rng):
    with Writer(tmp_path, {}, pool, run="a") as writer:
        for s in range(1, 31):
            writer.append(made_step(s, pool, rng), made_beliefs(pool, rng))
    made = commits(tmp_path, "a")
    assert [p.name for p in made] == [f"{i:09d}" for i in range(32)]  # open, 30 steps, close
    assert all([f.name for f in p.iterdir()] == ["tables.bundle"] for p in made)
    sizes = [sum(f.stat().st_size for f in p.iterdir()) for p in made[2:31]]
    assert max(sizes) < 1.2 * min(sizes)


def test_empty_tables_are_not_written(tmp_path, pool, rng):
    step = made_step(1, pool, rng)
    step = replace(step, events=(), update={}, seconds={}, plan=replace(step.plan, notes={}),
                   rollouts=step.rollouts.with_(rewards={}, extra={}))  # fmt: skip
    with Writer(tmp_path, {}, pool, run="a") as writer:
        writer.append(step)
    assert set(bundle.read(commits(tmp_path, "a")[1] / bundle.NAME)) == {
        "commits", "steps", "asks", "rollouts", "completions", "advantages", "fates",
    }  # fmt: skip


def test_a_step_touches_as_many_files_early_and_late(tmp_path, pool, rng):
    """Opened, made, renamed or listed: a step in a run of 300 commits costs what the second step did."""
    touched: list[str] = []

    def hear(event, args):
        if event in ("open", "os.mkdir", "os.rename", "os.listdir", "os.scandir") and str(args[0]).startswith(root):
            touched.append(event)

    root = str(tmp_path.resolve())
    sys.addaudithook(hear)
    counts = []
    with Writer(tmp_path, {}, pool, run="a", compacting=False) as writer:
        for s in range(1, 301):
            writer.append(made_step(s, pool, rng, prompts=2, n=2))
            writer.flush()
            counts.append(len(touched))
            touched.clear()
    root = "/never"
    assert set(counts[1:]) == {6}


def test_large_completions_are_a_file_of_their_own(tmp_path, pool, rng, monkeypatch):
    monkeypatch.setattr(files, "SMALL", 1000)
    with Writer(tmp_path, {}, pool, run="a", compacting=False) as writer:
        for s in (1, 2):
            writer.append(made_step(s, pool, rng))
        writer.flush()
        monkeypatch.setattr(files, "SMALL", 10**9)
        writer.append(made_step(3, pool, rng))
        writer.flush()
    found = [sorted(f.name for f in p.iterdir()) for p in commits(tmp_path, "a")[1:4]]
    assert found == [["completions.parquet", "tables.bundle"]] * 2 + [["tables.bundle"]]
    with Store.open(tmp_path) as store:
        before = store.sql("SELECT * FROM completions ORDER BY step, row")
        assert before["step"].value_counts().to_pylist() == [{"values": s, "counts": 16} for s in (1, 2, 3)]
        assert compact(tmp_path) == 5
        assert store.sql("SELECT * FROM completions ORDER BY step, row") == before


def test_a_bundle_is_read_back_and_damage_anywhere_is_seen(tmp_path):
    held = {"a": pa.table({"x": [1, 2, 3], "y": ["a", None, "c"]}), "b": pa.table({"z": [[1.5], [], None]})}
    size = bundle.write(tmp_path / "one", held)
    whole = (tmp_path / "one").read_bytes()
    assert len(whole) == size and bundle.read(tmp_path / "one") == held
    for place in range(0, size, 7):
        (tmp_path / "one").write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StoreError, match="one"):
            bundle.read(tmp_path / "one")
    for length in (0, 5, 30, size - 1):
        (tmp_path / "one").write_bytes(whole[:length])
        with pytest.raises(StoreError, match="one: "):
            bundle.read(tmp_path / "one")


def test_run_ids_are_readable_and_unique(tmp_path, pool):
    runs = []
    for _ in range(3):
        with Writer(tmp_path, {"name": "Sim <World>"}, pool) as writer:
            runs.append(writer.run)
    assert len(set(runs)) == 3
    assert all(r[10:21] == "-sim-world-" and len(r) == 25 for r in runs)
    with Store.open(tmp_path) as store:
        assert store.runs()["run"].to_pylist() == runs[::-1]
        assert store.runs()["status"].to_pylist() == ["finished"] * 3


@pytest.mark.parametrize("run", ["../x", "", "a/b", "a b", "-a"])
def test_run_ids_that_are_no_file_names_are_refused(tmp_path, pool, run):
    with pytest.raises(StoreError, match="must be letters, digits"):
        Writer(tmp_path, {}, pool, run=run)


def test_a_full_disk_loses_nothing_and_says_what_to_do(tmp_path, pool, rng, monkeypatch):
    steps = [made_step(s, pool, rng) for s in range(1, 5)]
    writer = Writer(tmp_path, {}, pool, run="a")
    writer.append(steps[0])
    writer.flush()
    right = bundle.write

    def full(path, tables):
        if "fates" in tables:
            raise OSError(28, "No space left on device")
        return right(path, tables)

    monkeypatch.setattr(bundle, "write", full)
    writer.append(steps[1])
    with pytest.raises(
        StoreError, match=r"step 2 of a could not be written to .*No space left on device.*call writer.retry"
    ):
        writer.flush()
    with pytest.raises(StoreError, match="No space left"):
        writer.append(steps[2])
    with pytest.raises(StoreError, match="No space left"):
        writer.retry()
    assert not list(tmp_path.glob("commits/a/r0/*.tmp"))
    with Store.open(tmp_path) as store:
        assert store.sql("SELECT max(step), count(*) FROM rollouts").to_pylist() == [
            {"max(step)": 1, "count_star()": 16}
        ]
    monkeypatch.setattr(bundle, "write", right)
    writer.retry()
    writer.append(steps[2])
    writer.close()
    with Store.open(tmp_path) as store:
        assert store.sql("SELECT step FROM steps ORDER BY step")["step"].to_pylist() == [1, 2, 3]


def test_close_tries_once_more(tmp_path, pool, rng, monkeypatch):
    right, left = bundle.write, [3]

    def flaky(path, tables):
        if "fates" in tables and left and left.pop() is not None:
            raise OSError(28, "No space left on device")
        return right(path, tables)

    monkeypatch.setattr(bundle, "write", flaky)
    writer = Writer(tmp_path, {}, pool, run="a")
    writer.append(made_step(1, pool, rng))
    writer.close()
    with Store.open(tmp_path) as store:
        assert store.runs()["last_step"].to_pylist() == [1]


def test_a_folder_that_cannot_be_written_is_an_error_at_the_start(tmp_path, pool, monkeypatch):
    def denied(path, tables):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(bundle, "write", denied)
    with pytest.raises(StoreError, match="Permission denied"):
        Writer(tmp_path, {}, pool, run="a")


def test_a_writer_whose_queue_is_full_waits_and_says_so(tmp_path, pool, rng, monkeypatch):
    gate, right = threading.Event(), files.commit

    def slow(*arguments):
        if arguments[1] > 0:
            assert gate.wait(patience(30))
        return right(*arguments)

    monkeypatch.setattr(files, "commit", slow)
    with Writer(tmp_path, {}, pool, queue=2) as writer:
        threading.Timer(0.3, gate.set).start()
        for s in range(1, 6):
            writer.append(made_step(s, pool, rng))
    with Store.open(tmp_path) as store:
        told = store.sql("SELECT step, message FROM events WHERE source = 'store'").to_pylist()
        assert told[0]["step"] == 3 and "because the recorder was behind" in told[0]["message"]


def test_two_writers_cannot_hold_one_run(tmp_path, pool):
    with Writer(tmp_path, {}, pool, run="a"):
        with pytest.raises(RunBusyError, match=r"run a is being written by process \d+ on"):
            Writer(tmp_path, {}, pool, run="a")
        with Writer(tmp_path, {}, pool, run="b"):
            pass


def test_statuses(tmp_path, pool, rng):
    def status():
        with Store.open(tmp_path) as store:
            return {r["run"]: (r["status"], r["message"]) for r in store.runs().to_pylist()}

    writer = Writer(tmp_path, {}, pool, run="a")
    assert status() == {"a": ("running", "")}
    writer.close("stopped")
    with pytest.raises(ZeroDivisionError), Writer(tmp_path, {}, pool, run="b"):
        _ = 1 / 0
    with pytest.raises(KeyboardInterrupt), Writer(tmp_path, {}, pool, run="c"):
        raise KeyboardInterrupt
    assert status() == {
        "a": ("stopped", ""), "b": ("failed", "ZeroDivisionError: division by zero"), "c": ("stopped", ""),
    }  # fmt: skip
    with pytest.raises(StoreError, match="a run ends as one of finished, stopped, failed, not as 'done'"):
        Writer(tmp_path, {}, pool, run="d").close("done")
    writer = Writer(tmp_path, {}, pool, run="a")
    assert status()["a"] == ("running", "")
    writer.close()


def test_going_back_hides_what_it_replaces(tmp_path, pool, rng):
    evaluation = made_pool(3, "e")
    with Writer(tmp_path, {}, pool, evaluation, run="a") as writer:
        for s in range(1, 6):
            writer.append(made_step(s, pool, rng), made_beliefs(pool, rng), made_evaluation(s, evaluation, rng))
        with pytest.raises(StoreError, match="step 5 of a was already recorded"):
            writer.append(made_step(5, pool, rng))
        with pytest.raises(StoreError, match="the evaluation of step 5 was already recorded"):
            writer.evaluation(5, made_evaluation(5, evaluation, rng))
    open_reader = Store.open(tmp_path)
    again = [made_step(s, pool, rng, n=2) for s in (4, 5, 6)]
    with Writer(tmp_path, {}, pool, evaluation, run="a", start=4) as writer:
        assert (writer.attempt, writer.step) == (1, 3)
        writer.append(again[0])
        counts = "SELECT step, count(*) FILTER (row >= 0) AS n FROM rollouts GROUP BY step ORDER BY step"
        writer.flush()
        assert open_reader.sql(counts).to_pylist() == [
            {"step": s, "n": n} for s, n in ((1, 16), (2, 16), (3, 16), (4, 8))
        ]
        writer.append(again[1])
        writer.append(again[2])
    assert open_reader.sql(counts)["n"].to_pylist() == [16, 16, 16, 8, 8, 8]
    assert open_reader.ask("eval_by_step")["step"].to_pylist() == [1, 2, 3]
    assert [len(s.rollouts) for s in open_reader.steps("a")] == [16, 16, 16, 8, 8, 8]
    assert open_reader.runs()["attempt"].to_pylist() == [1]
    open_reader.close()


def test_a_run_goes_on_only_with_its_own_pool(tmp_path, pool):
    Writer(tmp_path, {}, pool, run="a").close()
    with pytest.raises(StoreError, match="a was recorded with another pool"):
        Writer(tmp_path, {}, made_pool(9), run="a")
    Writer(tmp_path, {}, pool, run="a").close()


def test_a_store_from_a_newer_version_is_refused_and_left_alone(tmp_path, pool):
    Writer(tmp_path, {}, pool, run="a").close()
    (tmp_path / "STORE").write_text(json.dumps({"schema_version": 99}))
    before = sorted(p for p in tmp_path.rglob("*"))
    for opening in (lambda: Store.open(tmp_path), lambda: Writer(tmp_path, {}, pool)):
        with pytest.raises(StoreError, match=rf"schema version 99, this program knows up to {SCHEMA_VERSION}.*Upgrade"):
            opening()
    assert sorted(p for p in tmp_path.rglob("*")) == before
    (tmp_path / "STORE").write_text("{")
    with Store.open(tmp_path) as store:  # the commits say their version
        assert store.latest() == "a"
    assert [f.where for f in check(tmp_path)] == ["STORE"]
    Writer(tmp_path, {}, pool, run="b").close()
    assert check(tmp_path) == []


def test_beliefs_must_have_a_value_for_every_prompt(tmp_path, pool, rng):
    with (
        Writer(tmp_path, {}, pool) as writer,
        pytest.raises(StoreError, match=r"belief m.mean has shape \(3,\), not \(8,\)"),
    ):
        writer.append(made_step(1, pool, rng), {"m": {"mean": np.ones(3)}})


def test_evaluations_need_their_pool_and_purpose(tmp_path, pool, rng):
    with Writer(tmp_path, {}, pool) as writer, pytest.raises(StoreError, match="no evaluation pool"):
        writer.evaluation(0, made_evaluation(0, pool, rng))
    with Writer(tmp_path, {}, pool, made_pool(4, "e")) as writer, pytest.raises(StoreError, match="the purpose 'eval'"):
        writer.evaluation(0, made_step(0, made_pool(4, "e"), rng).rollouts)


def test_a_closed_writer_takes_no_more(tmp_path, pool, rng):
    writer = Writer(tmp_path, {}, pool, run="a")
    writer.close()
    writer.close()
    with pytest.raises(StoreError, match="the writer of a is closed"):
        writer.append(made_step(1, pool, rng))


def test_every_row_carries_its_commit(tmp_path, pool, rng):
    with Writer(tmp_path, {}, pool, run="a") as writer:
        writer.append(made_step(1, pool, rng))
    (path,) = commits(tmp_path, "a")[1].iterdir()
    for table in bundle.read(path).values():
        assert set(zip(*(table[c].to_pylist() for c in ("run", "rank", "seq")), strict=True)) == {("a", 0, 1)}
