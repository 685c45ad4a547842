"""Readers: whole steps while another process writes, and queries that cannot write or look outside."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import duckdb
import pytest

from workbench.store import ReadOnlyError, Store, StoreError, reader

WRITER = Path(__file__).with_name("write_steps.py")


def test_a_reader_in_this_process_sees_whole_steps_of_a_writer_in_another(tmp_path):
    (tmp_path / "commits").mkdir()
    with Store.open(tmp_path) as store:
        child = subprocess.Popen([sys.executable, WRITER, tmp_path, "a", "120"], stdout=subprocess.PIPE, text=True)
        seen = [0]
        while child.poll() is None:
            steps = store.sql(
                "SELECT s.step, s.n_rollouts, (SELECT count(*) FROM rollouts r WHERE r.step = s.step) AS rows,"
                " (SELECT count(*) FROM fates f WHERE f.step = s.step) AS fates,"
                " (SELECT count(*) FROM completions c WHERE c.step = s.step) AS texts FROM steps s"
            ).to_pylist()
            assert all(r["n_rollouts"] == r["rows"] == r["fates"] == r["texts"] == 16 for r in steps)
            assert len(steps) >= seen[-1]
            seen.append(len(steps))
        assert child.returncode == 0
        assert store.sql("SELECT count(*) FROM steps")[0][0].as_py() == 120
        assert store.runs()["status"].to_pylist() == ["finished"]
        assert len(set(seen)) > 3


def test_threads_query_side_by_side(recorded):
    with Store.open(recorded.folder) as store:
        found, errors = [], []

        def ask():
            try:
                for _ in range(10):
                    found.append(store.sql("SELECT count(*) FROM rollouts WHERE row >= 0")[0][0].as_py())
                    store.refresh()
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not errors and set(found) == {80}


def test_refresh_says_whether_something_came(recorded, store):
    assert store.refresh() is False


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO '{inside}/x.csv'", "COPY rollouts TO '/tmp/x.parquet'", "ATTACH '{inside}/x.db' AS x",
        "INSTALL httpfs", "LOAD httpfs", "INSERT INTO tail.rollouts SELECT * FROM rollouts", "DELETE FROM tail.rollouts",
        "UPDATE tail.rollouts SET step = 1", "CREATE TABLE x AS SELECT 1", "CREATE TEMP TABLE x AS SELECT 1",
        "DROP VIEW rollouts", "SET enable_external_access = true", "PRAGMA enable_external_access", "EXPORT DATABASE '/tmp/x'",
        "CALL pragma_version()", "SELECT 1; DROP VIEW rollouts", "CHECKPOINT", "BEGIN", "USE tail", "DETACH memory",
        "IMPORT DATABASE '/tmp/x'", "", "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_parquet('{inside}/../../x.parquet')", "SELECT * FROM read_text('{inside}/../../../../etc/passwd')",
        "SELECT * FROM glob('/etc/*')", "SELECT * FROM read_blob('/proc/self/environ')",
        "SELECT * FROM read_text('https://example.org')",
    ],
)  # fmt: skip
def test_queries_that_write_or_look_outside_are_refused(recorded, store, query):
    before = sorted(p for p in recorded.folder.rglob("*"))
    with pytest.raises((ReadOnlyError, duckdb.CatalogException, duckdb.ParserException)):
        store.sql(query.format(inside=recorded.folder))
    assert sorted(p for p in recorded.folder.rglob("*")) == before
    assert store.sql("SELECT count(*) FROM rollouts WHERE row >= 0")[0][0].as_py() == 80


def test_a_refusal_says_why(store):
    with pytest.raises(ReadOnlyError, match=r"store.sql only reads \(SELECT ...\); COPY is refused"):
        store.sql("COPY (SELECT 1) TO '/tmp/x.csv'")
    with pytest.raises(ReadOnlyError, match="a query sees the tables of this store, not files, networks or settings"):
        store.sql("SELECT * FROM read_text('/etc/passwd')")
    with pytest.raises(ReadOnlyError, match="takes one statement, not 2"):
        store.sql("SELECT 1; SELECT 2")


def test_a_query_that_fails_leaves_the_reader_usable(store):
    with pytest.raises(duckdb.BinderException):
        store.sql("SELECT no_such_column FROM rollouts")
    assert store.sql("SELECT $n + 1 AS n", {"n": 1})["n"].to_pylist() == [2]
    assert store.sql("SELECT ? + 1 AS n", [1])["n"].to_pylist() == [2]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"there is no store at .*nowhere; a run creates it"):
        Store.open(tmp_path / "nowhere")
    with Store.open(tmp_path) as empty:
        assert empty.runs().num_rows == 0 and empty.latest() is None
        with pytest.raises(StoreError, match=r"no run 'x' in .*; there are none"):
            empty.steps("x")


def test_the_store_imports_neither_torch_nor_panel():
    code = "import sys, workbench.store; print([m for m in ('torch', 'panel', 'transformers', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_query_beyond_the_memory_of_a_reader_spills_and_leaves_nothing(recorded, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(reader, "MEMORY", "64MiB")
    with Store.open(recorded.folder, threads=1) as store:
        asked = "SELECT count(*) AS n, count(DISTINCT h) AS h FROM (SELECT hash(i) || 'padding' AS h FROM range(1_000_000) t(i))"
        assert store.sql(asked).to_pylist() == [{"n": 1_000_000, "h": 1_000_000}]
        assert len(list(tmp_path.glob("workbench-*"))) == 1
    assert not list(tmp_path.iterdir())
