"""Every question can be asked: of an empty store, of a recorded run, and wrongly."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from workbench.store import QuestionError, Store, schema
from workbench.store.questions import REQUIRED, html_table, load, parse

VALUES = {"run": None, "prompt": "p0000", "text": "alert", "method": "mopps", "since": 0, "cut": 100, "group": 0, "step": 5,
          "rollout": "5:p0001:0"}  # fmt: skip


def params(question, run):
    given = {p.name: VALUES.get(p.name, 0) for p in question.parameters.values() if p.default is REQUIRED}
    return given | ({"run": run} if "run" in question.parameters else {})


def test_every_question_is_answered_by_an_empty_store(tmp_path):
    with Store.open(tmp_path) as store:
        for name, question in load().items():
            assert store.ask(name, **params(question, "")).num_rows == 0, name


def test_every_question_is_answered_by_a_recorded_run(recorded, store):
    for name, question in load().items():
        assert isinstance(store.ask(name, **params(question, recorded.run)), pa.Table), name


def test_every_question_is_a_question():
    for name, question in load().items():
        assert re.search(r"[?.)]$", question.text), f"{name}: {question.text}"


def test_the_last_run_is_the_default(recorded, store):
    assert store.ask("timings_by_step") == store.ask("timings_by_step", run=recorded.run)
    assert store.ask("reward_by_step", since=3)["step"].to_pylist() == [4, 5]


def test_unknown_questions_and_parameters_list_what_there_is(store):
    with pytest.raises(QuestionError, match=r"no question 'rewards'; there are .*reward_by_step"):
        store.ask("rewards")
    with pytest.raises(QuestionError, match=r"has no parameter step; it takes run=latest, since=0"):
        store.ask("reward_by_step", step=3)
    with pytest.raises(QuestionError, match="beliefs_of_prompt needs prompt; it takes prompt, run=latest, method=None"):
        store.ask("beliefs_of_prompt")


def test_tab_completion_knows_the_questions(store):
    assert "reward_by_step" in dir(store.ask)
    assert store.ask.wasted() == store.ask("wasted")
    assert store.ask.wasted.__doc__.startswith("Which share of the training tokens taught nothing")
    assert "wasted" in store.questions()["name"].to_pylist()


def test_numbers_of_the_run(recorded, store):
    rows = store.ask("reward_by_step").to_pylist()
    assert [r["rollouts"] for r in rows] == [16] * 5
    assert rows[0]["loss"] == 0.25 and rows[0]["seconds"] == 2.0
    assert [r["step"] for r in store.ask("eval_by_step").to_pylist()] == [0, 5]
    assert sum(store.ask("wasted")["share"].to_pylist()) == pytest.approx(1)
    steps = recorded.steps
    zero = [float((s.advantage.value[s.rollouts.failure == ""] == 0).mean()) for s in steps]
    assert store.ask("zero_advantage_by_step")["zero_advantage"].to_pylist() == pytest.approx(zero)
    group = store.ask("last_group", prompt=recorded.pool.ids[steps[4].prompts[1]]).to_pylist()
    mine = steps[4].rollouts.group == 1
    assert [g["text"] for g in group] == steps[4].rollouts.text[mine].tolist()
    assert dict(group[0]["parts"])["format"] == 0.1


def test_sums_are_whole_numbers(store):
    assert store.ask("ledger_by_prompt").schema.field("generated_tokens").type == pa.int64()
    assert store.sql("SELECT sum(length) AS n FROM rollouts").schema.field("n").type == pa.int64()


def test_beliefs_are_written_for_all_at_first_then_for_observed_and_moved(tmp_path):
    import numpy as np
    from made_steps import made_pool, made_step

    from workbench.store import Writer

    pool = made_pool(20)
    mean = np.full(20, 0.5)
    with Writer(tmp_path, {}, pool, tolerance=0.05) as writer:
        writer.beliefs(0, {"m": {"mean": mean, "own": mean}})
        step = made_step(1, pool, np.random.default_rng(0))
        idle = np.setdiff1d(np.arange(20), step.prompts)
        writer.append(step, {"m": {"mean": np.where(np.arange(20) == idle[0], 0.6, 0.52), "own": mean}})
        again = made_step(2, pool, np.random.default_rng(0))
        writer.append(again, {"m": {"mean": np.where(np.arange(20) == idle[1], 0.56, 0.54), "own": mean}})
    with Store.open(tmp_path) as store:
        rows = store.sql(
            "SELECT step, list(prompt_id ORDER BY prompt_id) AS ids FROM beliefs GROUP BY step ORDER BY step"
        )
    first, second, third = rows["ids"].to_pylist()
    assert first == pool.ids.tolist()
    assert second == sorted(pool.ids[[*step.prompts, idle[0]]])
    assert third == sorted(pool.ids[[*step.prompts, *idle[:2]]])  # idle[0] moved back from 0.6, idle[1] past 0.05


def test_html_shows_untrusted_text_as_text(store):
    html = html_table(store.sql("SELECT text FROM completions WHERE step = 1 LIMIT 1"), "a <b>caption</b>")
    assert "<script>" not in html and "&lt;script&gt;alert(0)&lt;/script&gt;" in html
    assert "a &lt;b&gt;caption&lt;/b&gt;" in html
    assert "sim-world" in store._repr_html_() and "<script" not in store.questions._repr_html_()


def test_a_question_file_must_be_right():
    with pytest.raises(QuestionError, match="must begin with its question"):
        parse("x", "SELECT 1")
    with pytest.raises(QuestionError, match=r"x\.sql declares run and does not use it"):
        parse("x", "-- What?\n-- $run = latest: run id\nSELECT 1")


def test_every_table_and_column_has_a_comment(store):
    for name, table in schema.tables().items():
        assert set(schema.comments()[name]) == {"", *table.names}
    shown = store.sql("SELECT comment FROM columns WHERE table_name = 'rollouts' AND column_name = 'born'")
    assert shown["comment"].to_pylist() == ["Step in which generation began."]


def test_answers_come_as_arrow_pandas_or_polars(store, monkeypatch):
    import sys

    table = store.ask("reward_by_step")
    frame = store.ask("reward_by_step", format="pandas")
    assert frame["rollouts"].tolist() == table["rollouts"].to_pylist() and store.ask.runs(format="pandas").shape[0] == 1
    with pytest.raises(QuestionError, match="an answer comes as arrow, pandas, polars, not as 'csv'"):
        store.ask("runs", format="csv")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(QuestionError, match="format 'polars' needs the package: pip install polars"):
        store.ask("runs", format="polars")


def test_answers_come_as_polars_where_it_is_installed(store):
    polars = pytest.importorskip("polars")
    assert isinstance(store.ask("runs", format="polars"), polars.DataFrame)
