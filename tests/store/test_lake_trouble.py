"""What goes wrong with a shared catalog has a clear error and loses nothing that was committed."""

from __future__ import annotations

import json
import re
import traceback

import duckdb
import numpy as np
import pytest
from lake_fixtures import database
from made_steps import made_beliefs, made_pool, made_step
from same import same

from workbench.cli.main import main
from workbench.runs.experiment import Experiment
from workbench.store import RunBusyError, Store, StoreError, Writer
from workbench.store.care.check import check
from workbench.store.care.export import import_
from workbench.store.care.prune import prune
from workbench.store.lake import catalog
from workbench.store.lake.catalog import Lake
from workbench.store.statements import columns_of

POOL = made_pool(8)
pytestmark = pytest.mark.slow


def cut(server, url):
    """Cut all connections to the database of a store."""
    server.sql(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database(url)}'")


def test_one_writer_for_a_run_and_rank(url):
    with Writer(url, {}, POOL, run="a"):
        with pytest.raises(RunBusyError, match=r"run a is being written by process \d+ on .*; stop it"):
            Writer(url, {}, POOL, run="a")
        with Writer(url, {}, POOL, run="b"), Store.open(url) as store:
            assert store.runs()["status"].to_pylist() == ["running"] * 2
    Writer(url, {}, POOL, run="a").close()


def test_a_lost_connection_is_made_again(server, url):
    rng = np.random.default_rng(0)
    steps = [made_step(n, POOL, rng) for n in (1, 2, 3)]
    with Writer(url, {}, POOL, run="a") as writer, Store.open(url) as store:
        for step in steps:
            writer.append(step)
            writer.flush()
            cut(server, url)
        with pytest.raises(RunBusyError):  # the lock came back with the connection
            writer.event(step.events[0])
            writer.flush()
            Writer(url, {}, POOL, run="a")
        same(steps, list(store.steps("a")))


def test_a_server_that_is_gone_costs_a_retry(server, url):
    rng = np.random.default_rng(0)
    steps = [made_step(n, POOL, rng) for n in (1, 2)]
    writer, store = Writer(url, {}, POOL, run="a"), Store.open(url)
    writer.append(steps[0])
    writer.flush()
    server.stop()
    try:
        writer.append(steps[1])
        with pytest.raises(
            StoreError, match=r"step 2 of a could not be written .* see that the server runs .*writer\.retry"
        ):
            writer.flush()
        with pytest.raises(StoreError):
            store.refresh()
        with pytest.raises(StoreError, match="cannot be reached"):
            Store.open(url)
    finally:
        server.start()
    writer.retry()
    writer.close()
    assert writer.committed == 2
    same(steps, list(store.steps("a")))
    assert check(url) == []
    store.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_answer_was_lost_is_there_once(url, monkeypatch, when):
    from workbench.store.lake.writer import LakeWriter

    commit, failed = LakeWriter._commit, []

    def lossy(self, rows):
        if when == "after" or failed:
            commit(self, rows)
        if not failed and "steps" in rows:
            failed.append(1)
            raise duckdb.IOException("the server closed the connection unexpectedly")
        if when == "before" and not failed:
            commit(self, rows)

    monkeypatch.setattr(LakeWriter, "_commit", lossy)
    step = made_step(1, POOL, np.random.default_rng(0))
    with Writer(url, {}, POOL, run="a") as writer:
        writer.append(step)
        writer.flush()
        assert writer.committed == 1
    with Store.open(url) as store:
        same([step], list(store.steps("a")))
    assert failed and check(url) == []


def test_a_run_that_was_taken_over_is_not_written_any_more(server, url):
    first = Writer(url, {}, POOL, run="a")
    first._backend.lock._con.execute("ROLLBACK")  # as if the server had lost sight of it
    with Writer(url, {}, POOL, run="a") as second:
        second.append(made_step(1, POOL, np.random.default_rng(0)))
        second.flush()
        first.append(made_step(1, POOL, np.random.default_rng(1)))
        with pytest.raises(StoreError, match="taken over by process"):
            first.flush()
    first._release()
    assert check(url) == []


def test_a_newer_store_is_refused_and_an_older_one_is_upgraded(server, url):
    step = made_step(1, POOL, np.random.default_rng(0))
    with Writer(url, {}, POOL, run="a") as writer:
        writer.append(step)
    con = duckdb_of(url)
    con.execute(
        "ALTER TABLE lake.attempts DROP COLUMN ranks; DROP TABLE lake.decisions; UPDATE lake.store SET schema_version = 1"
    )
    with Store.open(url) as old:
        same([step], list(old.steps("a")))
        assert old.sql("SELECT ranks FROM attempts")["ranks"].to_pylist() == [None]
        Writer(url, {}, POOL, run="b").close()
        assert old.sql("SELECT run, ranks FROM attempts ORDER BY run").to_pylist() == [
            {"run": "a", "ranks": None}, {"run": "b", "ranks": 1},
        ]  # fmt: skip
        assert old.sql("SELECT count(*) AS n FROM decisions")["n"].to_pylist() == [0]
    con.execute("INSERT INTO lake.store VALUES (99)")
    con.close()
    for opening in (lambda: Store.open(url), lambda: Writer(url, {}, POOL, run="c")):
        with pytest.raises(StoreError, match=r"schema version 99, this program knows up to \d+; nothing was touched"):
            opening()


def duckdb_of(url):
    """A connection to the catalog that may do anything."""
    place = Lake.parse(url)
    con = catalog.connect(place, writes=True)
    catalog.attach(con, place, create=True)
    return con


def test_rows_deleted_by_hand_are_gone_for_an_open_reader(url):
    with Writer(url, {}, POOL, run="a"), Store.open(url) as store:
        Writer(url, {}, POOL, run="b").close()
        assert store.runs().num_rows == 2
        con = duckdb_of(url)
        for table in columns_of(con, "lake"):
            if table != "store":
                con.execute(f"DELETE FROM lake.{table} WHERE run = 'b'")
        con.close()
        assert store.runs()["run"].to_pylist() == ["a"]


def test_addresses_that_lead_nowhere(server, url, tmp_path):
    port = re.search(r"port=(\d+)", url)[0]
    for wrong, message in {
        url: "there is no store at ducklake:postgres:host",
        url.replace(port, "port=1"): r"cannot be reached: .*Connection refused",
        url.replace("dbname=", "dbname=no"): r"cannot be reached: .*does not exist",
        "ducklake:sqlite:x.db": "a shared store is 'ducklake:postgres:",
        "ducklake:postgres:": "the address of the server is missing",
        "ducklake:postgres:dbname=x?data=s3://bucket/runs": "object stores are not supported",
        "ducklake:postgres:dbname=x?schema=A B": "schema=A B",
    }.items():
        with pytest.raises(StoreError, match=message):
            Store.open(wrong)
    with pytest.raises(StoreError, match="is new and needs a folder for its data"):
        Writer(url.split("?")[0], {}, POOL)
    Writer(url, {}, POOL, run="a").close()
    with pytest.raises(StoreError, match=r"the data of .* are in .*data/: leave out data="):
        Writer(url.replace("/data", "/elsewhere"), {}, POOL)
    with Store.open(url.split("?")[0]) as store:  # the catalog knows where its data are
        assert store.runs()["run"].to_pylist() == ["a"]
    (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(StoreError, match="a folder that this machine does not see"):
        Store.open(url)


def test_several_stores_in_one_database(url):
    for schema in ("one", "two"):
        Writer(f"{url}_{schema}&schema={schema}", {}, POOL, run=schema).close()
    for schema in ("one", "two"):
        with Store.open(f"{url.split('?')[0]}?schema={schema}") as store:
            assert store.runs()["run"].to_pylist() == [schema]


def test_missing_extensions_are_named(url, monkeypatch):
    monkeypatch.setattr(catalog, "packaged", lambda name: None)
    monkeypatch.setattr(catalog, "EXTENSIONS", {"no_such_extension": "no_such_extension"})
    with pytest.raises(
        StoreError, match=r"needs DuckDB's extension 'no_such_extension'.*pip install 'rollout-workbench\[lake\]'"
    ):
        Store.open(url)


def test_a_password_is_shown_nowhere(url):
    secret = url.replace("user=workbench", "user=workbench password='pass word'")
    experiment = {"name": "x", "store": secret}
    with Writer(secret, experiment, POOL, run="a") as writer, Store.open(secret) as store:
        shown = [repr(writer), repr(store), store._repr_html_(), repr(Lake.parse(secret)), str(Lake.parse(secret))]
        shown += [str(store.sql("SELECT * FROM runs").to_pylist())]
        assert [text for text in shown if "pass word" in text] == []
        assert store.url == secret
    with pytest.raises(StoreError, match=r"password=\*\*\*") as told:
        Store.open(re.sub(r"port=\d+", "port=1", secret))
    assert "pass word" not in "".join(traceback.format_exception(told.value))
    assert "pass word" not in repr(Experiment(store=secret))
    by_uri = Lake.parse("ducklake:postgres:postgresql://me:secret@db:5433/runs?sslmode=require&data=/shared")
    assert (by_uri.conninfo, by_uri.data) == ("postgresql://me:secret@db:5433/runs?sslmode=require", "/shared")
    assert str(by_uri) == "ducklake:postgres:postgresql://me:***@db:5433/runs?sslmode=require&data=/shared"
    assert Lake.parse(by_uri.url) == by_uri


def test_what_a_shared_catalog_cannot_do_says_so(url, tmp_path):
    for call in (lambda: prune(url, {"a"}), lambda: import_(tmp_path, url)):
        with pytest.raises(StoreError, match="works on the folder of a store, not on a shared catalog"):
            call()


def test_an_experiment_runs_resumes_and_is_watched_by_its_url_alone(url, tmp_path, capsys):
    from workbench.views.notebook import read

    experiment = Experiment(model="sim", steps=4, checkpoint_every=2, eval_every=2, store=url, name="shared")
    assert [step.step for step in experiment.run()] == [1, 2, 3, 4]
    with Store.open(url) as store:
        run = store.latest()
        assert json.loads(store.sql("SELECT experiment FROM runs")["experiment"][0].as_py())["store"] == url
    assert [p.name for p in (tmp_path / "data" / "checkpoints" / run).iterdir()] == ["step-000004"]
    assert main(["demo", "--sim", "--resume", "--steps", "7", "--store", url, "--no-dashboard"]) == 0
    for command, line in {
        "info": f"{run} .* finished +step 7",
        "check": "0 errors|everything is there",
        "compact": r"folded \d+ files",
    }.items():
        capsys.readouterr()
        assert main(["store", command, url]) == 0
        assert re.search(line, capsys.readouterr().out), command
    assert read(url).curves.step.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert main(["store", "prune", url, "--run", run, "--yes"]) == 2
    assert "not on a shared catalog" in capsys.readouterr().err


def test_beliefs_and_steps_of_a_run_that_went_back(url):
    rng = np.random.default_rng(0)
    with Writer(url, {}, POOL, run="a") as writer:
        for number in (1, 2, 3):
            writer.append(made_step(number, POOL, rng), made_beliefs(POOL, rng))
    again = made_step(2, POOL, np.random.default_rng(9))
    with Store.open(url) as store:
        with Writer(url, {}, POOL, run="a", start=2) as writer:
            assert (writer.attempt, writer.step) == (1, 1)
            writer.append(again)
        assert store.sql("SELECT max(step) AS n FROM beliefs")["n"].to_pylist() == [1]
        same(again, list(store.steps("a"))[-1])
