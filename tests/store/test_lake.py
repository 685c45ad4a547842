"""A shared catalog on a real PostgreSQL: the same runs, answers and limits as in a folder."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from lake_fixtures import made_url
from made_steps import made_beliefs, made_evaluation, made_pool, made_step
from run_steps import first_plan, live_run, make_world, parts_of, pipeline_of
from same import rounded, same
from test_store_questions import params

from workbench.pipeline import catalog
from workbench.store import QuestionError, ReadOnlyError, Store, StoreError, Writer, compact
from workbench.store.care.check import check
from workbench.store.open import sizes
from workbench.store.questions import load
from workbench.types import Event

STEPS, SWAP = 12, 6


@pytest.fixture(scope="module")
def twins(server, tmp_path_factory):
    """The same run in a folder and in a shared catalog: (store, store)."""
    places = [str(tmp_path_factory.mktemp("folder")), made_url(server, tmp_path_factory.mktemp("data"))]
    for place in places:
        rng, pool, evaluation = np.random.default_rng(0), made_pool(20), made_pool(6, "e")
        who = {"allocate": ["mopps"], "estimate": ["grpo", "mc_grpo"]}
        with Writer(place, {"name": "twin", "seed": 7}, pool, evaluation, run="twin", who=who, queue=64) as writer:
            writer.beliefs(0, made_beliefs(pool, rng))
            writer.evaluation(0, made_evaluation(0, evaluation, rng))
            for number in range(1, 8):
                last = made_evaluation(number, evaluation, rng) if number == 5 else None
                writer.append(made_step(number, pool, rng), made_beliefs(pool, rng), last)
            writer.command("pin", {"prompt": "p0003"}, who="test")
            writer.event(Event("note", "test", "<b>bold</b>"))
        with Writer(place, {"name": "twin"}, pool, evaluation, run="twin", who=who, start=6) as writer:
            writer.append(made_step(6, pool, rng), made_beliefs(pool, rng))
    folder, shared = (Store.open(place) for place in places)
    yield folder, shared
    folder.close()
    shared.close()


def timeless(table: pa.Table) -> list[str]:
    """The rows without times of the clock, which differ between recordings."""
    return rounded(table.select([f.name for f in table.schema if not pa.types.is_timestamp(f.type)]))


def test_every_question_has_the_answer_of_a_folder_and_most_are_not_empty(twins):
    rows = {}
    for name, question in load().items():
        folder, shared = (store.ask(name, **params(question, "twin")) for store in twins)
        assert shared.schema == folder.schema, name
        assert timeless(shared) == timeless(folder), name
        rows[name] = len(shared)
    assert sum(n > 0 for n in rows.values()) >= 40, rows


def test_steps_and_pools_are_those_of_a_folder(twins):
    folder, shared = twins
    same(list(folder.steps("twin")), list(shared.steps("twin")))
    same(folder.pool("twin"), shared.pool("twin"))
    assert [s.step for s in shared.steps("twin")] == [1, 2, 3, 4, 5, 6]


def test_what_was_made_again_is_hidden_and_kept(twins):
    hidden = f"SELECT step FROM {twins[1].source('commits')} JOIN superseded USING (run, rank, seq) WHERE kind = 'step'"
    assert sorted(twins[1].sql(hidden)["step"].to_pylist()) == [6, 7]
    assert twins[1].sql("SELECT max(step) AS n FROM completions WHERE step <= 7")["n"].to_pylist() == [6]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("INSERT INTO commits VALUES (1)", ReadOnlyError),
        ("SELECT 1; SELECT 2", ReadOnlyError),
        ("SET threads = 1", ReadOnlyError),
        ("ATTACH 'x.duckdb'", ReadOnlyError),
        ("CALL ducklake_merge_adjacent_files('lake')", ReadOnlyError),
        ("SELECT * FROM read_csv('/etc/passwd')", ReadOnlyError),
        ("SELECT * FROM lake.commits", Exception),
        ("SELECT * FROM postgres_query('gate', 'SELECT 1 AS one')", Exception),
        ("SELECT * FROM ducklake_snapshots('lake')", Exception),
    ],
)
def test_a_query_reaches_neither_server_nor_files(twins, query, error):
    with pytest.raises(error):
        twins[1].sql(query)


@pytest.mark.slow
def test_every_method_folds_to_its_live_state(url):
    world = make_world()
    methods = {slug: catalog.make(slug) for slug in catalog.methods()}
    live = {slug: m.init(world.pool) for slug, m in methods.items()}
    with Writer(url, {}, world.pool, run="a") as writer:
        for _, _, step in live_run(STEPS, SWAP):
            writer.append(step)
            live = {slug: m.observe(live[slug], step) for slug, m in methods.items()}
    with Store.open(url) as store:
        steps = list(store.steps("a"))
    assert [s.step for s in steps] == list(range(1, STEPS + 1))
    folded = {slug: m.init(world.pool) for slug, m in methods.items()}
    for step in steps:
        folded = {slug: m.observe(folded[slug], step) for slug, m in methods.items()}
    same(live, folded)
    states = {m.name: folded[m.name] for m in pipeline_of(STEPS + 1, SWAP).methods}
    same(
        first_plan(world.pool, {n: live[n] for n in states}, STEPS + 1, SWAP),
        first_plan(world.pool, states, STEPS + 1, SWAP),
    )


@pytest.mark.slow
def test_a_step_of_two_ranks_is_shown_once_both_recorded_it(url):
    world = make_world()
    step = next(live_run(1, SWAP))[2]
    one, two = parts_of(step, 2)
    with (
        Writer(url, {}, world.pool, run="a", rank=0, ranks=2) as zero,
        Writer(url, {}, world.pool, run="a", rank=1, ranks=2) as other,
        Store.open(url) as store,
    ):
        zero.append(one)
        zero.flush()
        assert store.sql("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [0]
        assert store.runs()["status"].to_pylist() == ["running"]
        other.append(two)
        other.flush()
        assert store.sql("SELECT count(*) AS n FROM rollouts")["n"].to_pylist() == [len(step.rollouts)]


@pytest.mark.slow
def test_a_reader_moves_when_it_is_told_or_lives(url):
    pool, rng = made_pool(8), np.random.default_rng(0)
    count = "SELECT count(*) AS n FROM steps"
    with Writer(url, {}, pool, run="a") as writer, Store.open(url, live=False) as still, Store.open(url) as live:
        writer.append(made_step(1, pool, rng))
        writer.flush()
        assert [s.sql(count)["n"][0].as_py() for s in (still, live)] == [0, 1]
        assert still.refresh() and not still.refresh()
        assert still.sql(count)["n"].to_pylist() == [1]


@pytest.mark.slow
def test_compaction_changes_no_answer_under_a_reader(url):
    pool, rng = made_pool(20), np.random.default_rng(0)
    asked = [q for q in load() if "text" not in load()[q].parameters]

    def answers(store):
        return {q: rounded(store.ask(q, **params(load()[q], "a"))) for q in asked}

    with Writer(url, {}, pool, run="a", compacting=False) as writer, Store.open(url) as store:
        for number in range(1, 5):
            writer.append(made_step(number, pool, rng), made_beliefs(pool, rng))
        writer.flush()
        before, files = answers(store), sum(sizes(url).waiting.values())
        assert files >= 20 and compact(url) == files
        assert answers(store) == before
        with Store.open(url) as fresh:
            assert answers(fresh) == before
        writer.append(made_step(5, pool, rng))
        writer.flush()
        assert store.sql("SELECT count(DISTINCT step) AS n FROM completions")["n"].to_pylist() == [5]
    assert check(url) == []


@pytest.mark.slow
def test_a_writer_compacts_in_the_background(url, monkeypatch):
    monkeypatch.setattr("workbench.store.background.is_due", lambda seq, mark, held=0: seq - mark > 4)
    pool, rng = made_pool(8), np.random.default_rng(0)
    with Writer(url, {}, pool, run="a") as writer:
        for number in range(1, 9):
            writer.append(made_step(number, pool, rng))
            writer.flush()
            writer._compactor.join()
    with Store.open(url) as store:
        assert store.sql("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [8]
        assert store.sql("SELECT count(*) AS n FROM events WHERE source = 'store'")["n"].to_pylist() == [0]
    assert sizes(url).waiting.get("rollouts", 1) < 8


@pytest.mark.slow
def test_check_names_a_file_that_is_missing_or_damaged(url, tmp_path):
    pool = made_pool(8)
    with Writer(url, {}, pool, run="a") as writer:
        writer.append(made_step(1, pool, np.random.default_rng(0)))
    assert check(url) == []
    rollouts = next((tmp_path / "data").rglob("rollouts/*.parquet"))
    rollouts.write_bytes(b"PAR1 nothing of use PAR1")
    found = check(url)
    assert [(f.kind, f.where) for f in found] == [("error", f"main/rollouts/{rollouts.name}")]
    rollouts.unlink()
    assert "missing" in check(url)[0].text


def test_wrong_questions_and_runs_are_named(twins):
    with pytest.raises(QuestionError, match="no question 'rewards'"):
        twins[1].ask("rewards")
    with pytest.raises(StoreError, match=r"no run 'x' in ducklake:postgres:.*; there are twin"):
        twins[1].steps("x")
