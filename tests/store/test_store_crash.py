"""Compactors that are killed, programs that end without a word, and files that are damaged."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from made_steps import made_pool

from workbench.store import Store, StoreError, Writer, compact
from workbench.store.folder.files import read_current

WRITER = Path(__file__).with_name("write_steps.py")
COMPACT = "import sys; from workbench.store import compact; compact(sys.argv[1])"


@pytest.mark.slow
def test_a_killed_compactor_is_harmless(tmp_path):
    subprocess.run([sys.executable, WRITER, tmp_path, "a", "20"], check=True, stdout=subprocess.DEVNULL)
    with Store.open(tmp_path) as store:
        for kill in range(3):
            command = [sys.executable, "-c", COMPACT, str(tmp_path)]
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            time.sleep(random.Random(kill).uniform(0.3, 1.2))
            child.kill()
            child.wait()
            assert _whole(store) == 20
        compact(tmp_path)
        assert _whole(store) == 20
        with Store.open(tmp_path) as fresh:
            assert _whole(fresh) == 20


def test_a_program_that_ends_without_closing_loses_nothing(tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(WRITER.parent)!r})\n"
        "import numpy as np; from made_steps import made_pool, made_step; from workbench.store import Writer\n"
        f"pool, rng = made_pool(8), np.random.default_rng(0); writer = Writer({str(tmp_path)!r}, {{}}, pool, run='a')\n"
        "for s in range(1, 6): writer.append(made_step(s, pool, rng))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with Store.open(tmp_path) as store:
        assert _whole(store) == 5
        assert store.runs()["status"].to_pylist() == ["interrupted"]


def test_a_damaged_commit_is_named(tmp_path):
    subprocess.run([sys.executable, WRITER, tmp_path, "a", "2"], check=True, stdout=subprocess.DEVNULL)
    damaged = tmp_path / "commits/a/r0/000000002/tables.bundle"
    damaged.write_bytes(damaged.read_bytes()[:-40])
    with Store.open(tmp_path) as store:
        assert [*store.damaged] == ["a/r0"] and len(store.sql("FROM steps")) == 1
        assert "commit 000000002 is damaged: tables.bundle: " in store.damaged["a/r0"]
        assert "restore that file from a copy, or `workbench store check --repair" in store.damaged["a/r0"]
    with pytest.raises(StoreError, match="commit 000000002 is damaged"):
        Writer(tmp_path, {}, made_pool(8), run="a")


@pytest.mark.parametrize("text", ["", '{"generat', "[]", '{"generation": 1}'])
def test_a_damaged_current_is_named(tmp_path, text):
    (tmp_path / "CURRENT").write_text(text)
    with pytest.raises(StoreError, match=r"CURRENT of the store .* is damaged.*`workbench store check"):
        read_current(tmp_path)


def _whole(store: Store) -> int:
    """The last step; asserts that all steps up to it are whole in every table."""
    rows = store.sql(
        "SELECT s.step, (SELECT count(*) FROM rollouts t WHERE t.step = s.step) AS rollouts,"
        " (SELECT count(*) FROM completions t WHERE t.step = s.step) AS texts,"
        " (SELECT count(*) FROM advantages t WHERE t.step = s.step) AS advantages,"
        " (SELECT count(*) FROM rewards t WHERE t.step = s.step) AS rewards,"
        " (SELECT count(*) FROM asks t WHERE t.step = s.step) AS asks,"
        " (SELECT count(*) FROM timings t WHERE t.step = s.step) AS timings FROM steps s ORDER BY s.step"
    ).to_pylist()
    assert [r.pop("step") for r in rows] == list(range(1, len(rows) + 1))
    whole = {"rollouts": 16, "texts": 16, "advantages": 16, "rewards": 32, "asks": 4, "timings": 2}
    assert all(r == whole for r in rows)
    assert store.sql("SELECT bool_and(balanced) FROM ledger")[0][0].as_py()
    assert store.sql("SELECT max(step) FROM rollouts")[0][0].as_py() == len(rows)
    return len(rows)
