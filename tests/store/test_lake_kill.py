"""kill -9 of a writer of a shared catalog, beside another writer and a reader: committed steps are whole, others absent."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from made_steps import made_beliefs, made_pool, made_step
from same import same

from workbench.store import Store, Writer
from workbench.store.care.check import check

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
KILLS = 4
OTHER = 10
"""Steps of the writer that nobody kills."""


def started(script: str, *args: object) -> subprocess.Popen:
    command = [sys.executable, str(HERE / script), *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def reference(steps: int) -> list:
    """What write_steps.py records, from its first step on."""
    pool, rng, made = made_pool(8), np.random.default_rng(0), []
    for number in range(1, steps + 1):
        made.append(made_step(number, pool, rng))
        made_beliefs(pool, rng)
    return made


@pytest.fixture(scope="module")
def killed(server, tmp_path_factory):
    """(url, last step that each killed run had acknowledged, what the reader saw)"""
    from lake_fixtures import made_url

    url = made_url(server, tmp_path_factory.mktemp("data"))
    Writer(url, {}, made_pool(8), run="first").close()
    other, reader = started("write_steps.py", url, "other", OTHER), started("watch_steps.py", url)
    assert reader.stdout.readline() == "open\n"
    acknowledged = {}
    for kill in range(KILLS):
        writer = started("write_steps.py", url, f"killed{kill}", 1000)
        lines = [writer.stdout.readline() for _ in range(kill + 1)]
        time.sleep(0.03 * kill)  # somewhere in a commit
        writer.kill()
        lines += writer.stdout.readlines()
        writer.wait()
        acknowledged[f"killed{kill}"] = int(lines[-1])
    assert other.wait() == 0
    seen = json.loads(reader.communicate()[0])
    return url, acknowledged, seen


def test_the_reader_saw_whole_steps_only(killed):
    _, acknowledged, seen = killed
    assert seen["torn"] == 0 and seen["looks"] >= 5
    assert set(seen["last"]) == {"other", *acknowledged} and seen["last"]["other"] <= OTHER


def test_what_was_acknowledged_is_there_by_value_and_nothing_in_part(killed):
    url, acknowledged, _ = killed
    assert [f for f in check(url) if f.kind == "error"] == []
    with Store.open(url) as store:
        status = {r["run"]: (r["status"], r["last_step"]) for r in store.runs().to_pylist()}
        assert status["other"] == ("finished", OTHER)
        same(reference(OTHER), list(store.steps("other")))
        for run, last in acknowledged.items():
            assert status[run][0] == "interrupted" and status[run][1] in (last, last + 1)
            same(reference(status[run][1]), list(store.steps(run)))
            for table in ("rollouts", "completions", "advantages", "fates", "asks", "rewards", "metrics", "arrays"):
                beyond = f"SELECT count(*) AS n FROM {table} WHERE run = ? AND step > ?"
                assert store.sql(beyond, [run, status[run][1]])["n"].to_pylist() == [0]


def test_a_killed_run_is_free_at_once_and_goes_on(killed):
    url, acknowledged, _ = killed
    run, pool = "killed1", made_pool(8)
    with Store.open(url) as store:
        last = store.sql("SELECT max(step) AS n FROM steps WHERE run = ?", [run])["n"][0].as_py()
    assert last >= acknowledged[run]
    with Writer(url, {}, pool, run=run) as writer:
        assert (writer.attempt, writer.step) == (1, last)
        writer.append(made_step(last + 1, pool, np.random.default_rng(5)))
    with Store.open(url) as store:
        assert [s.step for s in store.steps(run)] == list(range(1, last + 2))
        assert store.sql("SELECT status FROM run_status WHERE run = ?", [run])["status"].to_pylist() == ["finished"]
