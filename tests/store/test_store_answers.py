"""Answers of the questions about prompts, completions, tokens and runs, on runs small enough to know them."""

from __future__ import annotations

import numpy as np
import pytest
from made_steps import made_evaluation, made_pool
from same import rounded

from workbench.pipeline.fates import fates
from workbench.store import Store, Writer
from workbench.store.questions import REQUIRED, load
from workbench.types import Advantage, Plan, Ragged, Rollouts, Step

CORRECT = {  # step -> prompt -> outcomes: 0 is forgotten, 1 is stuck, 2 is mixed, 3 is always solved
    1: {0: [1, 1, 1, 1], 1: [0, 0, 0, 0], 2: [1, 0, 1, 0]},
    2: {0: [0, 1, 0, 0], 1: [0, 0, 0, 0], 3: [1, 1, 1, 1]},
    3: {2: [1, 0, 0, 0], 3: [1, 1, 1, 1]},
}


def step_of(number: int, pool) -> Step:
    prompts = np.array(list(CORRECT[number]))
    plan = Plan(prompts, np.full(len(prompts), 4), step=number)
    rows = Rollouts.of_plan(plan, pool)
    correct = np.array([c for outcomes in CORRECT[number].values() for c in outcomes], float)
    n = len(rows)
    text = np.array([f"the Answer is {i}, answer" if c else f"no idea <{i}>" for i, c in enumerate(correct)], object)
    offsets = np.arange(n + 1) * 2
    ratio = np.ones(2 * n)
    ratio[3], ratio[5] = 2.0, 0.6
    logp = np.full(2 * n, -1.0)
    rows = rows.with_(
        correct=correct, reward=correct, length=np.full(n, 2), text=text, group=rows.ask,
        finish=np.full(n, "stop", object), tokens=Ragged(np.arange(2 * n, dtype=np.int32), offsets),
        logp=Ragged(logp.astype(np.float32), offsets),
        current=Ragged((logp + np.log(ratio)).astype(np.float32), offsets),
    )  # fmt: skip
    mean = np.bincount(rows.group, correct)[rows.group] / 4
    start = Advantage.start(rows)
    advantage = Advantage(correct - mean, start.keep, start.weight, mean, start.reason)
    return Step(number, prompts, plan, rows, advantage, *fates(rows, advantage), seconds={"generate": 2.0})


def decisions_of(step: Step) -> dict:
    """Tests for a cut at the first token of every rollout, one in four of which cut."""
    n = len(step.rollouts)
    return {
        "node_id": step.rollouts.id,
        "kind": np.full(n, "prune", object),
        "outcome": np.where(np.arange(n) % 4, "no", "stop").astype(object),
        "at_token": np.ones(n, np.int64),
        "inputs": [{"confidence": i / n} for i in range(n)],
    }


def record(folder, *runs: str) -> None:
    pool, evaluation = made_pool(6), made_pool(4, "e")
    for place, run in enumerate(runs):
        rng = np.random.default_rng(place)
        with Writer(folder, {"name": run}, pool, evaluation, run=run, who={"estimate": ["grpo"]}) as writer:
            mean = np.array([0.9, 0.1, 0.5, 0.99, 0.5, 0.5])
            writer.beliefs(0, {"mopps": {"mean": mean, "low": mean, "high": mean}})
            writer.evaluation(0, made_evaluation(0, evaluation, rng))
            for number in (1, 2, 3) if run == "one" else (1,):
                step = step_of(number, pool)
                done = made_evaluation(number, evaluation, rng) if number != 2 else None
                writer.append(step, None, done, decisions=decisions_of(step))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    record(folder, "one", "two")
    with Store.open(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    record(folder, "one")
    with Store.open(folder) as opened:
        yield opened


def asked(store, question, *columns, **params):
    return [tuple(r[c] for c in columns) for r in store.ask(question, run="one", **params).to_pylist()]


def test_prompts_that_stand_out(store):
    varied = asked(store, "most_varied", "prompt_id", "reward_variance", "groups", limit=2)
    assert varied == [("p0002", pytest.approx((0.25 + 0.1875) / 2), 2), ("p0000", pytest.approx(0.1875 / 2), 2)]
    assert asked(store, "most_wasted", "prompt_id", "wasted_tokens", "tokens", "share") == [
        ("p0001", 16, 16, 1.0), ("p0003", 16, 16, 1.0), ("p0000", 8, 16, 0.5), ("p0002", 0, 16, 0.0),
    ]  # fmt: skip
    assert asked(store, "stuck", "prompt_id", "tried", "last_step") == [("p0001", 8, 2)]
    assert asked(store, "stuck", "prompt_id", tries=9) == []
    assert asked(store, "forgotten", "prompt_id", "best", "best_step", "now", "lost") == [
        ("p0000", 1.0, 1, 0.25, 0.75), ("p0002", 0.5, 1, 0.25, 0.25),
    ]  # fmt: skip


def test_completions_that_stand_out(store):
    assert asked(store, "top_completions", "step", "reward", "prompt_id", limit=2) == [
        (3, 1.0, "p0002"),
        (3, 1.0, "p0003"),
    ]
    assert asked(store, "top_completions", "step", "reward", "text", lowest=True, limit=1) == [(3, 0.0, "no idea <1>")]
    surprising = asked(store, "surprising_completions", "prompt_id", "correct", "believed", "surprise", limit=4)
    assert [s[:3] for s in surprising] == [("p0000", 0.0, 0.9)] * 3 + [("p0002", 1.0, 0.5)]
    assert surprising[0][3] == pytest.approx(-np.log(0.1))


def test_completions_are_searched_for_words_and_phrases(store):
    found = store.ask("search_completions", text="is ANSWER", run="one").to_pylist()
    assert len(found) == sum(c for step in CORRECT.values() for outcomes in step.values() for c in outcomes)
    assert {f["hits"] for f in found} == {3} and (found[0]["step"], found[0]["reward"]) == (3, 1.0)
    phrase = store.ask("search_completions", text='"answer IS 3,"', run="one").to_pylist()
    assert [(f["step"], f["row"], f["around"]) for f in phrase] == [(1, 3, "the Answer is 3, answer")]
    assert store.ask("search_completions", text="<1>", run="one")["text"].to_pylist() == ["no idea <1>"]
    for nothing in ("answer idea", '"is answer"', "  ", '"', '""', "%", "a.*r"):
        assert store.ask("search_completions", text=nothing, run="one").num_rows == 0, nothing
    assert store.ask("search_completions", text="answer", run="one", since=2, limit=3)["step"].to_pylist() == [3, 3, 3]


def test_matches_are_ranked_by_bm25(store):
    """Against the formula over all texts of the run, evaluation included: k1 = 1.2, b = 0.75."""
    texts = [t.lower() for t in store.sql("SELECT text FROM completions WHERE run = 'one'")["text"].to_pylist()]
    usual = np.mean([len(t) for t in texts])

    def score(text, terms):
        total = 0.0
        for term in terms:
            df = sum(term in t for t in texts)
            idf = np.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
            tf = text.count(term)
            total += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len(text) / usual))
        return total

    found = store.ask("search_completions", text="e answer 1", run="one", limit=9).to_pylist()
    assert [f["score"] for f in found] == pytest.approx([score(f["text"].lower(), ["e", "answer", "1"]) for f in found])
    best = sorted(
        (score(t, ["e", "answer", "1"]) for t in texts if all(x in t for x in ("e", "answer", "1"))), reverse=True
    )
    assert [f["score"] for f in found] == pytest.approx(best[:9]) and len(found) > 2


def test_tokens_outside_the_band(store):
    rows = store.ask("tokens_outside_band", run="one", since=2).to_pylist()
    assert [(r["rollout_id"], r["position"], r["token"]) for r in rows] == [("3:p0002:1", 1, 3), ("3:p0002:2", 1, 5)]
    assert [r["ratio"] for r in rows] == [pytest.approx(2.0), pytest.approx(0.6)]
    by_step = store.ask("ratio_band_by_step", run="one").to_pylist()
    assert [(r["tokens"], r["below"], r["above"]) for r in by_step] == [(24, 1 / 24, 1 / 24)] * 2 + [
        (16, 1 / 16, 1 / 16)
    ]


def test_runs_side_by_side(store):
    rows = store.ask("compare_runs").to_pylist()
    assert [(r["run"], r["step"], r["rollouts"], r["tokens"], r["seconds"]) for r in rows] == [
        ("one", 0, 0, 0, 0.0), ("one", 1, 12, 24, 2.0), ("one", 3, 32, 64, 6.0), ("two", 0, 0, 0, 0.0), ("two", 1, 12, 24, 2.0),
    ]  # fmt: skip
    assert store.ask("compare_runs", runs=["two"])["run"].to_pylist() == ["two"] * 2
    assert rows[0]["prompts"] == 4 and rows[0]["pipeline"] == '{"estimate": ["grpo"]}'


GIVEN = {"prompt": "p0002", "text": "answer", "step": 3, "group": 0, "rollout": "3:p0002:0", "row": 0}
OF_SEGMENTS = {"node": ["3:p0002:0"], "row": [0], "first": [0], "last": [2], "cut": [2]}
TIMES = ("time", "started", "last_record")


def given(name, **more):
    required = {p.name: GIVEN[p.name] for p in load()[name].parameters.values() if p.default is REQUIRED}
    return required | (OF_SEGMENTS if name == "page_segments" else {}) | more


def test_an_answer_is_about_its_run_alone(store, alone):
    """A second run of the same prompts, with the same ids, changes nothing."""
    empty = {
        "commands",
        "events",
        "metrics_by_step",
        "page_event_counts",
        "page_parts",
        "predictor_calibration",
        "sign_excess",
        "training_rows",  # these trees were recorded without their training; tests/worlds/test_training_rows.py has some
    }
    for name in (name for name, question in load().items() if "run" in question.parameters):
        both, one = (s.ask(name, **given(name, run="one")) for s in (store, alone))
        kept = [c for c in both.column_names if c not in TIMES]
        assert rounded(both.select(kept)) == rounded(one.select(kept)), name
        assert both.num_rows > 0 or name in empty, name


def test_every_answer_comes_as_pandas_and_polars(store):
    polars = pytest.importorskip("polars")
    for name in load():
        table = store.ask(name, **given(name))
        pandas, frame = (store.ask(name, format=f, **given(name)) for f in ("pandas", "polars"))
        assert isinstance(frame, polars.DataFrame), name
        assert list(pandas.columns) == frame.columns == table.column_names, name
        assert len(pandas) == len(frame) == table.num_rows, name


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("history of one prompt", "outcomes_of_prompt"), ("zero-advantage share per step", "zero_advantage_by_step"),
        ("most varied", "most_varied"), ("most wasted", "most_wasted"), ("stuck", "stuck"), ("forgotten", "forgotten"),
        ("calibration", "calibration"), ("ledger", "ledger_by_prompt"), ("ledger by fate", "ledger_by_fate"),
        ("wasted", "wasted"), ("sign flips", "sign_flips"), ("tree of a group", "tree_of_group"),
        ("top and bottom completions", "top_completions"), ("most surprising completions", "surprising_completions"),
        ("search", "search_completions"), ("tokens outside a ratio band", "tokens_outside_band"),
        ("compare runs", "compare_runs"),
    ],
)  # fmt: skip
def test_the_questions_that_were_promised_have_answers(store, what, name):
    params = given(name, run="one") if "run" in load()[name].parameters else {}
    assert store.ask(name, **params).num_rows > 0, what
