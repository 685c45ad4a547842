"""Built-in verifiers: literal completions in, literal parts and rewards out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.timing import patience
from workbench import tasks
from workbench.tasks.verifiers import LOOK, Graded, near, number, numbers
from workbench.types import Plan, Pool, Rollouts


def pool_of(kind, answer, prefix="it is"):
    one = lambda v: np.array([v], dtype=object)  # noqa: E731
    return Pool(one("p0"), one("?"), one(answer), one(prefix), one("s"), extra={"kind": one(kind), "level": one("")})


def judge(kind, answer, completion, prefix="it is", rewards="graded"):
    v = Graded(rewards)([completion], pool_of(kind, answer, prefix), np.array([0]))
    return (v.answer[0], *(round(float(v.parts[p][0]), 4) for p in ("format", "closeness", "exactness")),
            round(float(v.reward[0]), 4), float(v.correct[0]))  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "answer", "completion", "expected"),
    [
        # kind, answer, completion -> (answer found, format, closeness, exactness, reward, correct)
        ("number", "17", " 17.\n", ("17", 1, 1, 1, 1, 1)),
        ("number", "17", " 18", ("18", 1, 0.6296, 0, 0.2259, 0)),
        ("number", "17", " 27", ("27", 1, 0, 0, 0.1, 0)),
        ("number", "100", " 110", ("110", 1, 0.0909, 0, 0.1182, 0)),
        ("number", "-3", " \u22123 ", ("-3", 1, 1, 1, 1, 1)),
        ("number", "1234", " 1,234", ("1234", 1, 1, 1, 1, 1)),
        ("number", "8", " 8, 9", ("8", 1, 1, 1, 1, 1)),
        ("number", "8", " 8.0", ("8", 1, 1, 1, 1, 1)),
        ("number", "10000000001", " 10000000002", ("10000000002", 1, 1, 0, 0.3, 0)),
        ("number", "0.1", " .1000000000001", ("0.1", 1, 1, 1, 1, 1)),
        ("number", "8", " none of them", (None, 0, 0, 0, 0, 0)),
        ("number", "8", "", (None, 0, 0, 0, 0, 0)),
        ("number", "8", " ８ ٣", (None, 0, 0, 0, 0, 0)),
        ("list", "1, 2, 3", " 1, 2, 3.", ("1, 2, 3", 1, 1, 1, 1, 1)),
        ("list", "1, 2, 3", " 1, 3, 2", ("1, 3, 2", 1, 0.3333, 0, 0.1667, 0)),
        ("list", "1, 2, 3", " 1, 2", ("1, 2", 0, 0.6667, 0, 0.1333, 0)),
        ("list", "1, 2, 3", " 1, 2, 3, 4", ("1, 2, 3", 1, 1, 1, 1, 1)),
        ("list", "1, 2, 3", " x", (None, 0, 0, 0, 0, 0)),
        ("word", "lag", " Lag!", ("lag", 1, 1, 1, 1, 1)),
        ("word", "lag", " lab", ("lab", 1, 0.6667, 0, 0.2333, 0)),
        ("word", "lag", " lagging", ("lagging", 1, 0.4286, 0, 0.1857, 0)),
        ("word", "lag", " gal", ("gal", 1, 0, 0, 0.1, 0)),
        ("word", "lag", " 123", (None, 0, 0, 0, 0, 0)),
        ("text", "New  York", " New York\n", ("New York", 1, 1, 1, 1, 1)),
        ("text", "New York", "New Yorc", ("New Yorc", 1, 0.875, 0, 0.275, 0)),
        ("text", "New York", "  ", (None, 0, 0, 0, 0, 0)),
    ],
)
def test_parts_and_reward(kind, answer, completion, expected):
    assert judge(kind, answer, completion) == expected


def test_a_binary_reward_is_correct_and_keeps_the_parts():
    assert judge("number", "17", " 18", rewards="binary") == ("18", 1, 0.6296, 0, 0, 0)
    assert judge("number", "17", " 17", rewards="binary") == ("17", 1, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("2 + 2 is 4, so 4 + 3 = 7.", "7"),
        ("so \\boxed{12} and not 13", "12"),
        ("first \\boxed{1}, then \\boxed{2}; 3 steps", "2"),
        ("Step 1: 5\n#### 1,000", "1000"),
        ("#### nothing, but 6", "6"),
        ("none", None),
    ],
)
def test_without_a_prefilled_start_the_marked_or_last_number_answers(text, answer):
    assert number([text], ["0"], [False]).answer == [answer]


def test_numbers_of_a_text():
    assert numbers("1,234 and \u22125.50, 1,2 then 3-4") == ["1234", "-5.50", "1", "2", "3", "4"]
    assert numbers("1,2345 .5 1.2.3 x-7") == ["1", "2345", ".5", "1.2", "3", "-7"]
    assert numbers("100,200", groups=False) == ["100", "200"]


def test_near_falls_to_zero_one_scale_away():
    value, target = np.array([0, 0.5, 1, 100, 105.5, 111, np.inf, np.nan]), np.array([0, 0, 0, 100, 100, 100, 1, 1])
    assert near(value, target).tolist() == [1.0, 0.5, 0.0, 1.0, 0.5, 0.0, 0.0, 0.0]


@given(st.text(max_size=60), st.sampled_from([("number", "12"), ("list", "3, 1"), ("word", "cat"), ("text", "a b")]))
def test_parts_and_reward_stay_between_0_and_1_and_only_the_right_answer_gets_1(text, case):
    answer, form, close, exact, reward, correct = judge(*case, text)
    assert all(0 <= x <= 1 for x in (form, close, exact, reward))
    assert exact == correct == (reward == 1)
    assert (answer is None) <= (reward == 0)


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), st.integers(1, 1000))
def test_a_nearer_number_is_never_worth_less(target, a, step):
    farther = a + step if a >= target else a - step
    one = near(np.array([a, farther], float), np.array([target, target], float))
    assert one[0] >= one[1]


LONG = {
    "nines": "9" * 100_000,
    "minus": "-" * 100_000,
    "commas": "1," * 50_000,
    "hashes": "#" * 100_000,
    "boxes": "\\boxed{" * 15_000,
    "spaces": " " * 100_000,
    "letters": "a" * 100_000,
    "dots": "1." * 50_000,
}


@pytest.mark.timeout(patience(20))
@pytest.mark.parametrize("kind", ["number", "list", "word", "text"])
@pytest.mark.parametrize("prefix", ["", "it is"])
def test_long_completions_are_wrong_and_not_slow(kind, prefix):
    v = Graded()
    answer = {"number": "7", "list": "7, 8", "word": "cat", "text": "cat"}[kind]
    pool = pool_of(kind, answer, prefix)
    for text in LONG.values():  # 40 of each: a pattern that reads its text twice over would take minutes
        assert v([text] * 40, pool, np.zeros(40, int)).correct.sum() == 0


def test_a_right_start_of_an_endless_text_is_not_a_right_text():
    assert judge("text", "a" * LOOK, "a" * 100_000)[-1] == 0
    assert judge("text", "a" * 100_000, "a" * 100_000)[-1] == 1


def scored(task, texts, **columns):
    n = len(texts)
    rollouts = Rollouts.of_plan(Plan(np.arange(n), np.ones(n, int), step=3), task.pool)
    return task.score(rollouts.with_(text=np.array(texts, dtype=object), **columns), task.pool)


def test_score_fills_answer_reward_correct_and_parts():
    task = tasks.load(["add 2d+2d", "rg spell_backward", "sort 3 numbers"], size=6, evaluation=3)
    right = scored(task, [f" {a}\n" for a in task.pool.answer])
    assert right.correct.tolist() == right.reward.tolist() == [1.0] * 6
    assert list(right.rewards) == ["format", "closeness", "exactness"]
    assert right.answer.tolist() == task.pool.answer.tolist()
    assert right.failure.tolist() == [""] * 6
    wrong = scored(task, ["?"] * 6)
    assert wrong.reward.tolist() == [0.0] * 6
    assert wrong.answer.tolist() == [None] * 6


def test_a_rollout_that_failed_before_stays_failed_and_null():
    task = tasks.load("five", size=3, evaluation=5)
    failure = np.array(["", "engine", ""], dtype=object)
    r = scored(task, [f" {a}" for a in task.pool.answer], failure=failure, finish=np.array(["stop", "", "length"]))
    assert r.failure.tolist() == ["", "engine", ""]
    assert np.isnan(r.reward).tolist() == np.isnan(r.correct).tolist() == [False, True, False]
    assert np.isnan(r.rewards["exactness"]).tolist() == [False, True, False]
    assert r.finish.tolist() == ["stop", "", "length"]


def test_no_rollouts_are_scored_to_none():
    task = tasks.load("five", size=3, evaluation=5)
    r = scored(task, [])
    assert len(r) == 0
    assert r.reward.dtype == r.correct.dtype == np.float64
