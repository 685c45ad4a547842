"""Compaction changes no answer, keeps two generations, and is done by the writer in the background."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from made_steps import made_beliefs, made_pool, made_step
from same import rounded

from workbench.store import Store, Writer, background, compact
from workbench.store.background import is_due
from workbench.store.folder.files import lock, read_current
from workbench.store.questions import REQUIRED, load


@pytest.fixture
def pool():
    return made_pool(8)


def record(folder, pool, first, last, run="a"):
    rng = np.random.default_rng(first)
    with Writer(folder, {}, pool, run=run, compacting=False) as writer:
        for s in range(first, last + 1):
            writer.append(made_step(s, pool, rng), made_beliefs(pool, rng))


def answers(store):
    asked = [q for q, found in load().items() if all(p.default is not REQUIRED for p in found.parameters.values())]
    return {q: rounded(store.ask(q)) for q in asked}


def test_no_answer_changes(tmp_path, pool):
    record(tmp_path, pool, 1, 6)
    with Store.open(tmp_path, threads=1) as store:
        before = answers(store)
        assert compact(tmp_path) == 8
        assert answers(store) == before
        assert compact(tmp_path) == 0
        assert answers(store) == before
        with Store.open(tmp_path, threads=1) as fresh:
            assert answers(fresh) == before


def test_two_generations_are_kept_and_folded_commits_go_one_later(tmp_path, pool):
    left, bases = [], []
    for run in "abcd":
        record(tmp_path, pool, 1, 2, run)
        assert compact(tmp_path) == 4
        left.append(sorted(p.parent.parent.name for p in tmp_path.glob("commits/*/r0/000000000")))
        bases.append(sorted(p.name for p in tmp_path.glob("base/*")))
    assert left == [["a"], ["b"], ["c"], ["d"]]
    assert bases[-1] == ["gen-000002.duckdb", "gen-000003.duckdb", "gen-000004.duckdb"]
    assert len(list(tmp_path.glob("payload/*"))) == 4
    with Store.open(tmp_path) as store:
        assert (
            store.sql("SELECT run, count(*) AS n FROM completions GROUP BY run ORDER BY run")["n"].to_pylist()
            == [32] * 4
        )


def test_a_reader_of_an_old_generation_moves_on(tmp_path, pool):
    record(tmp_path, pool, 1, 3, "a")
    compact(tmp_path)
    with Store.open(tmp_path, live=False) as store:
        for run in "bcd":
            record(tmp_path, pool, 1, 3, run)
            compact(tmp_path)
        assert store.sql("SELECT count(*) FROM steps")[0][0].as_py() == 3  # what it saw, until it is told to look again
        assert store.refresh() is True
        assert store.sql("SELECT count(*) FROM steps")[0][0].as_py() == 12


def test_a_page_whose_commits_were_folded_away_is_read_again(tmp_path, pool):
    record(tmp_path, pool, 1, 3)
    with Store.open(tmp_path, live=False) as store:
        compact(tmp_path)
        compact(tmp_path)
        assert not list(tmp_path.glob("commits/a/r0/0*"))
        assert store.sql("SELECT count(*) FROM completions")[0][0].as_py() == 48


def test_a_resumed_run_numbers_on_after_its_commits_were_folded(tmp_path, pool):
    record(tmp_path, pool, 1, 3)
    compact(tmp_path)
    compact(tmp_path)
    record(tmp_path, pool, 4, 5)
    with Store.open(tmp_path) as store:
        assert store.sql("SELECT seq FROM commits ORDER BY seq")["seq"].to_pylist() == list(range(9))
        assert [s.step for s in store.steps("a")] == [1, 2, 3, 4, 5]


def test_going_back_hides_folded_steps_too(tmp_path, pool):
    record(tmp_path, pool, 1, 3)
    compact(tmp_path)
    with Writer(tmp_path, {}, pool, run="a", start=2) as writer:
        writer.append(made_step(2, pool, np.random.default_rng(9), n=2))
    compact(tmp_path)
    with Store.open(tmp_path) as store:
        assert [len(s.rollouts) for s in store.steps("a")] == [16, 8]


def test_only_one_process_compacts(tmp_path, pool):
    record(tmp_path, pool, 1, 2)
    held = lock(tmp_path / "compact.lock")
    assert compact(tmp_path) == 0
    held.close()
    assert compact(tmp_path) == 4


def test_the_writer_compacts_in_the_background(tmp_path, pool, monkeypatch):
    monkeypatch.setattr(background, "FEWEST", 10)
    rng = np.random.default_rng(0)
    with Writer(tmp_path, {}, pool, run="a") as writer:
        for s in range(1, 21):
            writer.append(made_step(s, pool, rng, prompts=2, n=2))
    assert read_current(tmp_path).generation in (1, 2)
    with Store.open(tmp_path) as store:
        assert store.sql("SELECT count(*) FROM steps")[0][0].as_py() == 20
        assert store.sql("SELECT count(*) FROM completions")[0][0].as_py() == 80


def test_threads_see_whole_steps_while_the_writer_compacts(tmp_path, pool, monkeypatch):
    monkeypatch.setattr(background, "FEWEST", 5)
    monkeypatch.setattr(background, "MOST", 5)
    rng = np.random.default_rng(0)
    done, wrong, looks = threading.Event(), [], []
    question = (
        "SELECT count(*) AS rollouts, 16 * count(DISTINCT step) AS whole, (SELECT count(*) FROM completions) AS texts,"
        " (SELECT count(*) FROM fates) AS fates FROM rollouts"
    )

    def look():
        try:
            while not done.is_set():
                seen = list(store.sql(question).to_pylist()[0].values())
                looks.append(seen[0])
                if len(set(seen)) > 1:
                    wrong.append(seen)
        except Exception as error:
            wrong.append(error)

    with Writer(tmp_path, {}, pool, run="a") as writer, Store.open(tmp_path) as store:
        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        for s in range(1, 2000):
            writer.append(made_step(s, pool, rng))
            if s >= 40 and read_current(tmp_path).generation >= 3:
                break
        writer.flush()
        done.set()
        for thread in threads:
            thread.join()
    assert wrong == [] and len(set(looks)) > 3
    assert read_current(tmp_path).generation >= 3


def test_compaction_is_due_after_an_eighth_within_bounds():
    assert not is_due(64, -1 + 1) and is_due(65, -1 + 1 - 1)
    assert not is_due(1000 + 1 + 124, 1000) and is_due(1000 + 1 + 125, 1000)
    assert is_due(100_000 + 1 + 512, 100_000)


def test_old_program_versions_can_read_the_base(tmp_path, pool):
    import duckdb

    record(tmp_path, pool, 1, 2)
    compact(tmp_path)
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{tmp_path / 'base/gen-000001.duckdb'}' AS b (READ_ONLY)")
        tags = con.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'b'").fetchone()[0]
        assert tags["storage_version"].startswith("v1.5.0")
