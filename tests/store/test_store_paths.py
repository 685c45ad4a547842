"""Stores under paths that mean something else to DuckDB, and the signs of life of writers."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from made_steps import made_beliefs, made_pool, made_step

from tests.timing import until
from workbench.cli import store as commands
from workbench.store import Store, StoreError, Writer, compact
from workbench.store.care.check import check
from workbench.store.care.export import export, import_
from workbench.store.care.prune import prune
from workbench.store.folder import files

WRITER = Path(__file__).with_name("write_steps.py")


def record(folder, run):
    pool, rng = made_pool(8), np.random.default_rng(0)
    with Writer(folder, {}, pool, run=run, compacting=False) as writer:
        writer.append(made_step(writer.step + 1, pool, rng), {"mine/or yours": made_beliefs(pool, rng)["vade"]})


@pytest.mark.parametrize("name", ["what?", "run=[ab]#*"])
def test_a_store_may_lie_anywhere(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "SMALL", 0)
    folder = tmp_path / name / "store"
    near = tmp_path / name.replace("?", "X").replace("*", "--").replace("[ab]", "a") / "store"
    record(folder, "a")
    if near != folder:  # what the name would match as a pattern
        record(near, "other")
        compact(near)
        record(near, "other")
    compact(folder)
    record(folder, "a")
    record(folder, "b")
    with Store.open(folder) as store:
        assert store.sql("SELECT run, count(*) AS n FROM completions GROUP BY run ORDER BY run")["n"].to_pylist() == [
            32,
            16,
        ]
        assert len(store.sql("SELECT * FROM completions").column_names) == len(
            store.sql("FROM completions").column_names
        )
        assert "lr" not in store.sql("FROM completions LIMIT 1").column_names
        assert store.ask("beliefs_of_prompt", method="mine/or yours", prompt="p0001", run="a").num_rows
        assert len(list(store.steps("a"))) == 2
        export(store, tmp_path / name / "out")
    import_(tmp_path / name / "out", tmp_path / name / "again")
    prune(folder, {"b"}, tokens_only=True)
    prune(folder, {"b"})
    assert check(folder) == check(tmp_path / name / "again") == []
    with Store.open(folder) as store:
        assert store.runs()["run"].to_pylist() == ["a"] and len(list(store.steps("a"))) == 2


def run_command(*words):
    parser = argparse.ArgumentParser()
    commands.add_parser(parser.add_subparsers())
    args = parser.parse_args(["store", *map(str, words)])
    return args.command(args)


def test_prune_knows_what_it_would_delete_and_what_it_freed(tmp_path, capsys):
    record(tmp_path, "a")
    record(tmp_path, "b")
    for more in ([], ["--yes"]):
        with pytest.raises(StoreError, match=r"no run 'nope' in .*; there are b, a"):
            run_command("prune", tmp_path, "--run", "a", "--run", "nope", *more)
    run_command("prune", tmp_path, "--run", "a", "--yes")
    said = capsys.readouterr().out
    assert said.startswith("deleted a: 0 B freed; compacting what stays took ") and "-" not in said
    with Store.open(tmp_path) as store:
        assert store.runs()["run"].to_pylist() == ["b"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_trainer_that_died_or_was_stopped_does_not_run_for_ever(tmp_path, how):
    process = subprocess.Popen([sys.executable, WRITER, tmp_path, "a", "100000"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        with Store.open(tmp_path) as store:
            assert store.runs()["status"].to_pylist() == ["running"]
            process.send_signal(how)
            if how == signal.SIGSTOP:
                os.waitid(os.P_PID, process.pid, os.WSTOPPED)
                past = time.time() - 60  # as if it had stood still for so long
                os.utime(tmp_path / "commits/a/r0/LOCK", (past, past))
            assert until(lambda: store.runs()["status"].to_pylist() == ["interrupted"])
    finally:
        process.kill()
        process.wait()


def test_a_child_that_outlives_its_trainer_holds_no_run(tmp_path):
    code = (
        f"import os, sys, signal; sys.path.insert(0, {str(WRITER.parent)!r})\n"
        "from made_steps import made_pool; from workbench.store import Writer\n"
        f"Writer({str(tmp_path)!r}, {{}}, made_pool(8), run='a')\n"
        "child = os.fork()\n"
        "if not child: signal.pause()\n"
        "print(child, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())  # not to its end, which the child holds open
        process.wait()
    try:
        lock = tmp_path / "commits/a/r0/LOCK"
        assert files.is_alive(lock.parent) and files.is_running(lock.parent)
        past = time.time() - 60
        os.utime(lock, (past, past))
        with Store.open(tmp_path) as store:
            assert store.runs()["status"].to_pylist() == ["interrupted"]
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_writer_gives_signs_of_life(tmp_path, monkeypatch):
    from workbench.store import background

    monkeypatch.setattr(background, "BEAT", 0.01)
    with Writer(tmp_path, {}, made_pool(8), run="a"):
        os.utime(tmp_path / "commits/a/r0/LOCK", (0, 0))
        assert until(lambda: files.is_running(tmp_path / "commits/a/r0"))
