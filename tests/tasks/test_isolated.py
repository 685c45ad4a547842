"""Verifiers of a researcher: whatever they do, the run goes on."""

import os
import re
import sys
import time
import warnings

import numpy as np
import pytest

from workbench import tasks
from workbench.tasks.isolated import Isolated
from workbench.tasks.sandbox.worker import verdict

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

ROWS = [{"prompt": f"{i} and {i}?", "answer": str(2 * i), "stratum": "twice"} for i in range(20)]


class Unprintable(Exception):
    """An error that fails when it is told."""

    def __str__(self):
        raise RuntimeError("no")


def moody(completion, answer):
    """A verifier that does what the completion says."""
    if completion == "hang":
        time.sleep(60)
    if completion == "regex":
        re.match(r"(a+)+$", "a" * 40 + "b")
    if completion == "raise":
        raise KeyError(completion)
    if completion == "memory":
        raise MemoryError
    if completion == "unprintable":
        raise Unprintable("\udcff")
    if completion == "die":
        os._exit(3)
    if completion == "leave":
        sys.exit(3)
    if completion == "print":
        print('{"reward": 1}')
    returns = {
        "nan": float("nan"), "inf": float("inf"), "none": None, "text": "1", "list": [1.0], "half": 0.5,
        "complex": 1j, "numpy": np.float32(0.25), "map": {"reward": 0.3, "correct": 1, "answer": "x"},
        "no reward": {"score": 1}, "maybe": {"reward": 1, "correct": 0.5}, "part": {"reward": 1, "a": float("inf")},
        "parts": {"reward": 1, "a": float("nan"), "b": None}, "sum": 0.7 + 0.2 + 0.1, "less": 1 - 1e-8,
    }  # fmt: skip
    return returns.get(completion, completion == answer)


def run(verifier, texts):
    pool = tasks.load(ROWS, verifier="numeric").pool
    return verifier(texts, pool, np.zeros(len(texts), int)), pool.answer[0]


@pytest.fixture(scope="module")
def verifier():
    v = Isolated(moody, timeout=0.5).start()
    yield v
    v.close()


@pytest.mark.parametrize(
    ("completion", "failure", "reward", "correct"),
    [
        ("hang", "verifier_timeout", None, None),
        ("regex", "verifier_timeout", None, None),
        ("raise", "verifier_raised", None, None),
        ("die", "verifier_died", None, None),
        ("leave", "verifier_raised", None, None),
        ("nan", "verifier_nan", None, None),
        ("inf", "verifier_nan", None, None),
        ("part", "verifier_nan", None, None),
        ("memory", "verifier_memory", None, None),
        ("unprintable", "verifier_raised", None, None),
        ("none", "verifier_invalid", None, None),
        ("text", "verifier_invalid", None, None),
        ("list", "verifier_invalid", None, None),
        ("complex", "verifier_invalid", None, None),
        ("no reward", "verifier_invalid", None, None),
        ("maybe", "verifier_invalid", None, None),
        ("print", "", 0.0, 0.0),
        ("half", "", 0.5, 0.0),
        ("numpy", "", 0.25, 0.0),
        ("map", "", 0.3, 1.0),
        ("parts", "", 1.0, 1.0),
        ("sum", "", 0.7 + 0.2 + 0.1, 1.0),
        ("less", "", 1 - 1e-8, 0.0),
    ],
)
def test_what_a_verifier_may_do(verifier, completion, failure, reward, correct):
    v, answer = run(verifier, ["wrong", completion, ROWS[0]["answer"]])
    assert v.failure.tolist() == ["", failure, ""]  # its neighbours lose nothing
    assert v.reward[0] == 0
    assert (np.isnan(v.reward[1]), np.isnan(v.correct[1])) == (reward is None, correct is None)
    if reward is not None:
        assert (v.reward[1], v.correct[1]) == (reward, correct)
    assert v.reward[2] == (ROWS[0]["answer"] == answer)


def test_many_hangs_in_one_call_are_given_up(verifier):
    v, _ = run(Isolated(moody, timeout=0.05).start(), ["hang"] * 40)
    assert v.failure.tolist() == ["verifier_timeout"] * 40
    assert np.isnan(v.reward).all()


def test_score_counts_a_failed_verifier_as_a_null_reward():
    from workbench.types import Plan, Rollouts

    task = tasks.load(ROWS, verifier=moody, timeout=0.5)
    rollouts = Rollouts.of_plan(Plan(np.arange(4), np.ones(4, int)), task.pool)
    r = task.score(rollouts.with_(text=np.array(["raise", "hang", "nan", "half"], dtype=object)), task.pool)
    assert r.failure.tolist() == ["verifier_raised", "verifier_timeout", "verifier_nan", ""]
    assert r.extra["failure_text"].tolist() == [
        "KeyError: 'raise'",
        "no verdict within 0.5 s",
        "reward is nan",
        "",
    ]
    assert r.reward[3] == r.rewards["score"][3] == 0.5
    assert np.isnan(r.reward[:3]).all()
    assert np.isnan(r.correct[:3]).all()
    assert np.isnan(r.rewards["score"][:3]).all()
    task.verifier.close()


def test_an_interrupted_call_leaves_no_verdict_for_the_next(verifier, monkeypatch):
    from workbench.tasks.isolated import Worker

    def interrupted(self, deadline):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Worker, "_line", interrupted)
        run(verifier, ["map"])
    assert run(verifier, ["half"])[0].reward.tolist() == [0.5]


def test_a_failure_is_told_once():
    v = Isolated(moody, timeout=0.5).start()
    with pytest.warns(RuntimeWarning, match="verifier moody: KeyError: 'raise'"):
        run(v, ["raise", "raise"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(v, ["raise"])


def test_a_lambda_and_a_closure_travel_by_value():
    bonus = 0.125
    assert run(Isolated(lambda c, a: len(c) * bonus).start(), ["abc"])[0].reward.tolist() == [0.375]


def test_a_verifier_by_name_that_asks_for_the_row():
    def by_stratum(completion, answer, row):
        return {"reward": float(row["stratum"] == "twice"), "asked": len(row["text"])}

    v, _ = run(Isolated(by_stratum, parts=("asked", "missing")).start(), ["x"])
    assert v.reward.tolist() == [1.0]
    assert v.parts["asked"].tolist() in ([8.0], [10.0])
    assert np.isnan(v.parts["missing"]).all()
    v, _ = run(Isolated("operator:eq").start(), ["x"])
    assert v.reward.tolist() == [0.0]


def test_a_verifier_of_lists_gets_all_completions_of_a_call_and_returns_as_many():
    def ranks(completions, prompts, answer, **kwargs):
        order = sorted(range(len(completions)), key=lambda i: len(completions[i]))
        return [
            {"reward": order.index(i) / 10, "rows": len(kwargs["stratum"]), "asked": len(prompts)}
            for i in range(len(order))
        ]

    v, _ = run(Isolated(ranks, parts=("rows", "asked")), ["aaa", "a", "aa"])
    assert v.reward.tolist() == [0.2, 0.0, 0.1]
    assert v.parts["rows"].tolist() == v.parts["asked"].tolist() == [3.0] * 3

    def named(completions, answer):
        return [c == a for c, a in zip(completions, answer, strict=True)]

    v, answer = run(Isolated(named, sandbox=False), ["no", ROWS[0]["answer"]])
    assert v.reward.tolist() == [0.0, float(ROWS[0]["answer"] == answer)]


@pytest.mark.parametrize(
    ("returned", "failure", "message"),
    [
        ([1.0], ["verifier_invalid"] * 3, "1 rewards for 3 completions"),
        (None, ["verifier_invalid"] * 3, "TypeError: 'NoneType' object is not iterable"),
        ([1.0, None, float("nan")], ["", "verifier_invalid", "verifier_nan"], ""),
        (KeyError("x"), ["verifier_raised"] * 3, "KeyError: 'x'"),
    ],
)
def test_a_verifier_of_lists_fails_as_a_whole_or_by_row(returned, failure, message):
    def gives(completions, **kwargs):
        if isinstance(returned, Exception):
            raise returned
        return returned

    v, _ = run(Isolated(gives), ["a", "b", "c"])
    assert v.failure.tolist() == failure
    assert v.message[0] == message


def test_binary_rewards_are_correct():
    v, _ = run(Isolated(moody, rewards="binary").start(), ["map", "half"])
    assert v.reward.tolist() == v.correct.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("verifier", "message"),
    [
        ("no_such_module:f", "cannot be loaded: ModuleNotFoundError"),
        ("operator:no_such_function", "cannot be loaded: AttributeError"),
        ("math:pi", "float is not callable"),
        ("exakt", "no verifier 'exakt'; there are exact, numeric, list, word, math-verify"),
        (":f", "neither a built-in one nor written as"),
    ],
)
def test_a_verifier_that_cannot_be_had_is_an_error_at_once(verifier, message):
    with pytest.raises(ValueError, match=message):
        tasks.load(ROWS, verifier=verifier)


def test_a_function_that_cannot_be_sent_is_an_error_that_names_the_way_out():
    generator = (i for i in range(3))
    with pytest.raises(ValueError, match="put it into a module and give"):
        Isolated(lambda c, a: next(generator))


def test_a_part_that_is_null_is_null_alone():
    v, _ = run(Isolated(lambda c, a: {"reward": 1.0, "format": 0.5, "tool": None}, parts=("format", "tool")), ["x"])
    assert v.failure.tolist() == [""]
    assert v.reward.tolist() == v.correct.tolist() == [1.0]
    assert v.parts["format"].tolist() == [0.5]
    assert np.isnan(v.parts["tool"]).all()


def test_verdict_of_returned_values():
    assert verdict(True) == {"reward": 1.0, "correct": 1.0, "answer": None, "parts": {}}
    assert verdict({"reward": 0.2, "correct": True, "answer": 7, "style": 1}) == {
        "reward": 0.2, "correct": 1.0, "answer": "7", "parts": {"style": 1.0},
    }  # fmt: skip


def test_math_verify_knows_equal_values():
    pytest.importorskip("math_verify")
    task = tasks.load(
        [{"prompt": f"Half of {i}?", "answer": f"\\frac{{{i}}}{{2}}"} for i in range(1, 21)], verifier="math-verify"
    )
    row = int(np.flatnonzero(task.pool.answer == "\\frac{3}{2}")[0])
    texts = ["so it is $1.5$", "\\boxed{\\frac{6}{4}}", "$2.5$", "who knows", "{" * 100_000]
    v = task.verifier(texts, task.pool, np.full(5, row))
    assert v.failure.tolist() == [""] * 5
    assert v.correct.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert np.round(v.reward, 3).tolist() == [1.0, 1.0, 0.126, 0.0, 0.0]
    assert list(v.parts) == ["format", "closeness", "exactness"]
    task.verifier.close()
