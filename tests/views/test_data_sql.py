"""The SQL page: what may be asked, how it is cut, and what is said of what may not."""

import signal
import subprocess
import sys
import tempfile
import threading

import numpy as np
import psutil
import pyarrow as pa
import pytest
from hostile_sql import STATEMENTS, limited, taken

from tests.timing import patience, until
from workbench.store import Store
from workbench.store.errors import StoreError
from workbench.store.questions import load
from workbench.store.sample import sample_folder
from workbench.views.data import sql_worker
from workbench.views.data.run import Source
from workbench.views.data.selection import Selection
from workbench.views.data.sql import ask, defaults, names_in
from workbench.views.data.sql_processes import Cancelled, Limits
from workbench.views.pages.sql import START, SqlPage, _rounded


@pytest.fixture(scope="module")
def sample():
    """The sample store."""
    found = Source(str(sample_folder()))
    found.refresh(0)
    yield found
    found.workers.close()


@pytest.fixture
def source(recording):
    rec = recording(hostile=True).go(2)
    found = Source.of(recording.store)
    found.refresh(0)
    found.run(rec.run).refresh()
    yield found
    found.workers.close()


def test_parameters_are_those_outside_comments_and_quotes():
    assert names_in("-- $no\nSELECT '$no', $run, $a FROM x -- $no\nWHERE b = $a") == ["run", "a"]
    assert defaults(load()["page_evaluation"].sql, "r-1") == {"run": "r-1", "since": -1}
    assert defaults("SELECT $x, $run", "r-1") == {"x": None, "run": "r-1"}


def test_an_answer_has_numbers_as_numbers_and_the_rest_as_text(sample):
    found = ask(sample, "SELECT 1 AS n, 0.5 AS x, NULL::INT AS missing, [1, 2] AS list, 'a' AS n; ")
    assert {k: v.tolist() for k, v in found.columns.items() if k != "missing"} == {
        "n": [1], "x": [0.5], "list": ["[1, 2]"], "n_1": ["a"]
    }  # fmt: skip
    assert np.isnan(found.columns["missing"]).all()
    assert found.numeric == ["n", "x", "missing"]


def test_rows_and_cells_are_cut(sample):
    found = ask(sample, "SELECT i, repeat('x', 5000) AS long FROM range(5000) t(i) -- a comment")
    assert (found.n, found.more) == (1000, True)
    assert found.columns["long"][0] == "x" * 300 + "… (5,000 characters)"
    assert ask(sample, "DESCRIBE rollouts").n > 10


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM runs",
        "COPY (SELECT 1) TO '/tmp/x.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "ATTACH 'x.db'",
        "SELECT 1; SELECT 2",
        "SET memory_limit = '1GB'",
        "INSTALL httpfs",
    ],
)
def test_nothing_but_reading_the_store_is_answered(sample, text):
    with pytest.raises(StoreError) as problem:
        ask(sample, text)
    assert "traceback" not in str(problem.value).lower()
    assert ask(sample, "SELECT count(*) AS n FROM runs").columns["n"].tolist() == [4]


@pytest.fixture(scope="module")
def small():
    """The sample store, whose statements have little time and memory."""
    found = limited(str(sample_folder()), Limits(0.3, 256 << 20))
    yield found
    found.workers.close()


def test_what_takes_too_long_is_killed_and_the_next_statement_answered(small):
    for name in ("cross join", "levenshtein"):
        found = taken(small, STATEMENTS[name])
        assert found.problem == "TimeoutError: given up after 0.3 s; ask for fewer steps or rows", name
        assert found.seconds < 0.3 + patience(2)
    assert ask(small, "SELECT 7 AS n").columns["n"].tolist() == [7]


def test_what_takes_too_much_memory_is_killed_and_the_next_statement_answered(small):
    small.workers.limits = Limits(patience(20), 256 << 20)
    for name in ("repeat", "text aggregate"):
        found = taken(small, STATEMENTS[name])
        assert "too much memory (DuckDB has 512MiB, its process 256 MiB in all)" in found.problem, name
        assert found.memory < 1.2 * (256 << 20)
    assert ask(small, "SELECT 7 AS n").columns["n"].tolist() == [7]


@pytest.mark.slow
@pytest.mark.parametrize("name", STATEMENTS)
def test_every_hostile_statement_ends_at_the_limits(name):
    source = limited(str(sample_folder()), Limits(2, 512 << 20))
    found = taken(source, STATEMENTS[name])
    source.workers.close()
    assert found.seconds < 2 + patience(2)
    assert found.memory < 1.2 * (512 << 20)
    assert found.problem or name == "nested"


def test_processor_time_is_limited_by_the_kernel(small):
    small.workers.limits = Limits(patience(20), 256 << 20)
    ask(small, "SELECT 1")
    worker = small.workers._taken()
    job = {"statement": STATEMENTS["cross join"], "params": {}, "rows": 9, "cell": 9, "processor": 1}
    with pytest.raises(Exception, match=r"^$"):
        worker._exchange(job, patience(20), threading.Event())
    assert worker.process.wait() == -signal.SIGXCPU


def test_a_cancelled_statement_is_killed_at_once(small):
    small.workers.limits = Limits(patience(20), 256 << 20)
    ask(small, "SELECT 1")
    process, stop = small.workers._idle.process, threading.Event()
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(Cancelled):
        ask(small, STATEMENTS["cross join"], cancelled=stop)
    assert process.poll() is not None


@pytest.mark.slow
def test_what_a_killed_statement_spilled_is_gone(small, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    small.workers.close()
    small.workers.limits = Limits(1.0, 512 << 20)
    taken(small, STATEMENTS["cross join sorted"])
    small.workers.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_process_of_a_statement_ends_with_its_parent(tmp_path):
    text = """if True:
        import os, sys
        from workbench.store.sample import sample_folder
        from workbench.views.data.run import Source
        from workbench.views.data.sql import ask
        source = Source(str(sample_folder()))
        ask(source, "SELECT 1")
        print(source.workers._idle.process.pid, flush=True)
        os._exit(0)"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    until(lambda: not psutil.pid_exists(int(done.stdout)))


def test_an_answer_has_what_was_recorded_by_then(recording):
    rec, source = recording().go(1), Source(recording.store)
    count = "SELECT max(step) AS n FROM rollouts WHERE purpose = 'train'"
    assert ask(source, count).columns["n"].tolist() == [1]
    rec.go(1)
    assert ask(source, count).columns["n"].tolist() == [2]
    source.workers.close()


def test_only_the_beginning_of_a_text_leaves_duckdb():
    with Store.sample() as store:
        text = (
            "SELECT repeat('x', 1000000) AS long, [repeat('y', 1000000)] AS list, NULL::VARCHAR AS none, 'é' AS short"
        )
        found = sql_worker.cut(store, text, {}, 10, 300)
        plan = sql_worker.cut(store, "/* a */ EXPLAIN SELECT 1", {}, 10, 5)
    assert found.nbytes < 2000
    assert [found[name][0].as_py() for name in found.column_names] == [
        {"n": 1000000, "text": "x" * 300}, {"n": 1000002, "text": "[" + "y" * 299}, None, {"n": 1, "text": "é"}
    ]  # fmt: skip
    assert plan["explain_key"][0].as_py() == {"n": 13, "text": "physi"}


def test_an_answer_too_large_for_a_page_is_refused(monkeypatch):
    monkeypatch.setattr(sql_worker, "LARGEST", 1 << 20)
    table = pa.table({"a": ["x" * 600_000], "b": ["x" * 600_000]})
    with pytest.raises(ValueError, match="the answer has 2 columns and 1 MiB; ask for fewer"):
        sql_worker._packed(table)
    assert sql_worker._packed(table.select(["a"]))


@pytest.mark.parametrize("before", ["/* a */ ", "-- a\n/* b\n */-- c\n", "( ", "(\n( /* a */ "])
def test_what_stands_before_a_select_does_not_lift_the_limit(sample, before):
    found = ask(sample, before + "SELECT * FROM range(5000)" + " )" * before.count("("))
    assert (found.n, found.more) == (1000, True)


def test_figures_that_matter_are_not_rounded_away():
    for value in (1732831234.567, 1795906320.25, 1234567.5, 123456.789, -98765.4321, 1.25e17, 2.0**60, 1e300):
        assert _rounded(np.array([value]))[0] == value
    shown = _rounded(np.array([0.123456789, 1.23456789, 1.23456789e-9, 3.0, np.nan, np.inf, -np.inf]))
    assert shown[[0, 1, 2, 3, 5, 6]].tolist() == [0.123457, 1.234568, 1.23457e-9, 3.0, np.inf, -np.inf]
    assert np.isnan(shown[4])


def test_whole_numbers_are_exact(sample):
    text = """SELECT 18446744073709551615::UBIGINT AS u, 170141183460469231731687303715884105727::HUGEINT AS h,
        unnest([9007199254740993, NULL]) AS b, unnest([12345678, NULL]) AS i, 9007199254740993 AS j, 0.123456789 AS x,
        sum(7) OVER () AS s"""
    page = SqlPage(sample, Selection(query="x"))
    page.box.value = page.box.value_input = text
    page._ask()
    assert page.answer.numeric == list("uhbijxs")
    assert page.answer.columns["u"].tolist() == [2**64 - 1] * 2
    row = page.table.value.iloc[0]
    assert (row.u, row.h, row.b) == (
        "18446744073709551615",
        "170141183460469231731687303715884105727",
        "9007199254740993",
    )
    assert (row.i, row.j, row.x, row.s) == (12345678, "9007199254740993", 0.123457, 7)
    assert page.table.value.b[1] == "" and np.isnan(page.table.value.i[1])


def test_names_of_columns_are_escaped(sample):
    page = SqlPage(sample, Selection(query="x"))
    page.box.value = page.box.value_input = "SELECT 1 AS \"<img src=x onerror='window.hit=1'>\""
    page._ask()
    assert list(page.table.titles.values()) == ["&lt;img src=x onerror=&#x27;window.hit=1&#x27;&gt;"]


def test_an_empty_box_says_what_to_write(sample):
    with pytest.raises(ValueError, match="Write a statement first"):
        ask(sample, " -- only a remark ")


def test_a_saved_question_fills_box_and_fields_and_is_drawn(source):
    run = source.runs[0]["run"]
    page = SqlPage(source, Selection(run=run))
    assert page.box.value == START
    page.chosen.query = "reward_by_step"
    assert list(page.inputs) == ["run", "since"]
    assert [f.value for f in page.inputs.values()] == [run, "0"]
    assert (page.about_answer.visible, page.axes.visible, page.drawn.visible) == (True, False, False)
    page._ask()
    assert (page.about_answer.visible, page.axes.visible, page.drawn.visible) == (False, True, True)
    assert page.answer.columns["step"].tolist() == [1, 2]
    assert (page.x.value, page.y.value) == ("step", "reward")
    assert page.points.data["x"].tolist() == [1, 2]
    page.inputs["since"].value = page.inputs["since"].value_input = "1"
    page._ask()
    assert page.answer.columns["step"].tolist() == [2]
    page.box.value = page.box.value_input = "SELECT nonsense FROM <b>"
    page._ask()
    assert "The store did not answer" in page.message.object
    assert "<b>\n" not in page.message.object
    assert page.chosen.query == "SELECT nonsense FROM <b>"


def test_a_statement_in_the_address_is_not_run_by_itself(sample):
    page = SqlPage(sample, Selection(run=sample.runs[0]["run"], query="SELECT 1 AS one"))
    page.update(sample.run(sample.runs[0]["run"]), force=True)
    assert page.box.value == "SELECT 1 AS one"
    assert page.answer is None


def test_texts_of_models_are_shown_as_text(source):
    page = SqlPage(source, Selection(query="x"))
    page.box.value = page.box.value_input = "SELECT text FROM completions"
    page._ask()
    assert page.answer.n == 928
    assert any("<script>" in t for t in page.answer.columns["text"])
    assert any("\u2400" in t for t in page.answer.columns["text"])
