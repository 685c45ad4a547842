"""The SQL page: what may be asked, how it is cut, and what is said of what may not."""

import time

import duckdb
import numpy as np
import pytest

from workbench.store.errors import StoreError
from workbench.store.questions import load
from workbench.views.data import sql
from workbench.views.data.run import Source
from workbench.views.data.selection import Selection
from workbench.views.data.sql import ask, defaults, names_in
from workbench.views.pages.sql import START, SqlPage


@pytest.fixture
def source(recording):
    rec = recording(hostile=True).go(2)
    found = Source.of(recording.store)
    found.refresh(0)
    found.run(rec.run).refresh()
    return found


def test_parameters_are_those_outside_comments_and_quotes():
    assert names_in("-- $no\nSELECT '$no', $run, $a FROM x -- $no\nWHERE b = $a") == ["run", "a"]
    assert defaults(load()["page_evaluation"].sql, "r-1") == {"run": "r-1", "since": -1}
    assert defaults("SELECT $x, $run", "r-1") == {"x": None, "run": "r-1"}


def test_an_answer_has_numbers_as_numbers_and_the_rest_as_text(source):
    found = ask(source, "SELECT 1 AS n, 0.5 AS x, NULL::INT AS missing, [1, 2] AS list, 'a' AS n; ")
    assert {k: v.tolist() for k, v in found.columns.items() if k != "missing"} == {
        "n": [1], "x": [0.5], "list": ["[1, 2]"], "n_1": ["a"]
    }  # fmt: skip
    assert np.isnan(found.columns["missing"]).all()
    assert found.numeric == ["n", "x", "missing"]


def test_rows_and_cells_are_cut(source):
    found = ask(source, "SELECT i, repeat('x', 5000) AS long FROM range(5000) t(i) -- a comment")
    assert (found.n, found.more) == (1000, True)
    assert found.columns["long"][0] == "x" * 300 + "… (5,000 characters)"
    assert ask(source, "DESCRIBE rollouts").n > 10


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
def test_nothing_but_reading_the_store_is_answered(source, text):
    with pytest.raises((StoreError, Exception)) as problem:
        ask(source, text)
    assert "traceback" not in str(problem.value).lower()
    assert ask(source, "SELECT count(*) AS n FROM runs").columns["n"].tolist() == [1]


def test_what_takes_too_long_is_given_up(source, monkeypatch):
    monkeypatch.setattr(sql, "SECONDS", 0.3)
    with pytest.raises(TimeoutError, match="given up after"):
        ask(source, "SELECT count(*) FROM range(10000000) a, range(10000000) b")
    assert ask(source, "SELECT 7 AS n").columns["n"].tolist() == [7]


def test_a_second_attempt_has_no_more_time(source, monkeypatch):
    slow, store = "SELECT count(*) FROM range(10000000) a, range(10000000) b", source.store
    query, asked = type(store)._query, []

    def retired(self, *given):
        asked.append(given)
        if len(asked) == 1:
            time.sleep(0.6)
            raise duckdb.IOException("a file was retired")
        return query(self, *given)

    monkeypatch.setattr(type(store), "_query", retired)
    monkeypatch.setattr(sql, "SECONDS", 0.3)
    with pytest.raises(TimeoutError, match="given up after"):
        ask(source, slow)
    assert len(asked) == 2


@pytest.mark.parametrize("before", ["/* a */ ", "-- a\n/* b\n */-- c\n", "( ", "(\n( /* a */ "])
def test_what_stands_before_a_select_does_not_lift_the_limit(source, monkeypatch, before):
    asked, sql = [], type(source.store).sql
    monkeypatch.setattr(type(source.store), "sql", lambda *given: asked.append(given[1]) or sql(*given))
    found = ask(source, before + "SELECT * FROM range(5000)" + " )" * before.count("("))
    assert (found.n, found.more) == (1000, True)
    assert asked[-1].endswith("LIMIT 1001")


def test_whole_numbers_are_exact(source):
    text = """SELECT 18446744073709551615::UBIGINT AS u, 170141183460469231731687303715884105727::HUGEINT AS h,
        unnest([9007199254740993, NULL]) AS b, unnest([12345678, NULL]) AS i, 9007199254740993 AS j, 0.123456789 AS x,
        sum(7) OVER () AS s"""
    page = SqlPage(source, Selection(query="x"))
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


def test_names_of_columns_are_escaped(source):
    page = SqlPage(source, Selection(query="x"))
    page.box.value = page.box.value_input = "SELECT 1 AS \"<img src=x onerror='window.hit=1'>\""
    page._ask()
    assert list(page.table.titles.values()) == ["&lt;img src=x onerror=&#x27;window.hit=1&#x27;&gt;"]


def test_an_empty_box_says_what_to_write(source):
    with pytest.raises(ValueError, match="Write a statement first"):
        ask(source, " -- only a remark ")


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


def test_a_statement_in_the_address_is_not_run_by_itself(source):
    page = SqlPage(source, Selection(run=source.runs[0]["run"], query="SELECT 1 AS one"))
    page.update(source.run(source.runs[0]["run"]), force=True)
    assert page.box.value == "SELECT 1 AS one"
    assert page.answer is None


def test_texts_of_models_are_shown_as_text(source):
    page = SqlPage(source, Selection(query="x"))
    page.box.value = page.box.value_input = "SELECT text FROM completions"
    page._ask()
    assert page.answer.n == 928
    assert any("<script>" in t for t in page.answer.columns["text"])
    assert any("\u2400" in t for t in page.answer.columns["text"])
