"""Families, mixes and their three disjoint sets."""

from itertools import islice

import numpy as np
import pytest

from workbench import tasks
from workbench.tasks import generators
from workbench.tasks.family import LEVELS, Question
from workbench.tasks.generators.reasoning_gym import value
from workbench.tasks.mixes import MIXES, reserved

FIRST = {
    "mul 1dx1d": Question("What is 4 * 2?", "4 * 2 =", "8"),
    "add 1d+1d": Question("What is 8 + 6?", "8 + 6 =", "14"),
    "add 0 or mul 1": Question("What is 83 * 1?", "83 * 1 =", "83"),
    "max of 3 2d": Question("Which number is the largest: 66, 55 or 84?", "The largest number is", "84"),
    "sub <=20": Question("What is 4 - 1?", "4 - 1 =", "3"),
    "number before/after": Question("What number comes after 84?", "The number that comes after 84 is", "85"),
    "count letter": Question(
        "How many times does the letter o appear in the word dog?", "The number of times o appears in dog is", "1"
    ),
    "half/double": Question("What is half of 8?", "Half of 8 is", "4"),
    "last letter": Question("What is the last letter of the word bubble?", "The last letter of bubble is", "e"),
    "sort 3 numbers": Question("Sort from smallest to largest: 25, 20, 32.", "From smallest to largest:", "20, 25, 32"),
    "3 terms 1d +-": Question("What is 2 + 5 + 4?", "2 + 5 + 4 =", "11"),
    "item of list": Question(
        "Here is a list: street, moon, dinner, winter. What is the first word?", "The first word is", "street"
    ),
    "rg chain_sum 2t": Question("What is 77 - 46?", "77 - 46 =", "31"),
    "rg basic_arithmetic": Question("Calculate 8 * 4.", "8 * 4 =", "32"),
    "rg products": Question("What is 77 * 46?", "77 * 46 =", "3542"),
    "rg gcd": Question(
        "What is the greatest common divisor of 18 and 9?", "The greatest common divisor of 18 and 9 is", "9"
    ),
    "rg lcm": Question(
        "What is the least common multiple of 10 and 6?", "The least common multiple of 10 and 6 is", "30"
    ),
    "rg simple_equations": Question("Find the value of f in the equation: f + 9 = 18", "f =", "9"),
    "rg number_sequence": Question("What number comes next: -1, -1, -2, -3, -5, ...", "-1, -1, -2, -3, -5,", "-8"),
    "rg letter_counting": Question(
        'How many times does the letter "t" appear in the text: "the"?', 'The letter "t" appears', "1"
    ),
    "rg leg_counting": Question(
        "How many legs are there in total if you have 6 ants?", "The total number of legs is", "36"
    ),
    "rg spell_backward": Question("Spell this word backward (example: sun -> nus): gal", "gal ->", "lag"),
}


@pytest.mark.parametrize("name", FIRST)
def test_the_first_question_of_a_family_under_seed_0(name):
    stream = tasks.families()[name].stream(np.random.default_rng(0))
    assert next(iter(stream)) == FIRST[name]


@pytest.mark.parametrize("name", tasks.families())
def test_a_family_says_its_level_kind_and_how_many_questions_it_has(name):
    family = tasks.families()[name]
    assert family.level in LEVELS
    asked = list(islice(family.stream(np.random.default_rng(1)), 300))
    assert all(q.text and q.prefix and q.answer for q in asked)
    if family.size is not None:
        assert len(asked) == min(300, family.size) == len(set(asked))


@pytest.mark.parametrize("name", [n for n, f in tasks.families().items() if f.kind == "number"])
def test_every_arithmetic_answer_is_the_ordinary_one(name):
    for q in islice(tasks.families()[name].stream(np.random.default_rng(2)), 200):
        exact = value(q.prefix.removesuffix(" ="))
        if exact is not None and " " in q.prefix.removesuffix(" ="):
            assert exact == int(q.answer), q


@pytest.mark.parametrize(
    ("expression", "result"),
    [("4 + 2 * 2", 8), ("10 / 8 - 0", 1.25), ("7 - 10", -3), ("3 - -4", 7), ("2 * 3 * 4 - 6 / 2", 21), ("5", 5)],
)
def test_value_computes_products_first(expression, result):
    assert value(expression) == result


@pytest.mark.parametrize("expression", ["1 / 0", "", "2 +", "__import__('os')", "1 ** 2", "2 2"])
def test_value_of_no_expression_is_none(expression):
    assert value(expression) is None


def test_two_wordings_of_one_expression_are_one_question():
    a = Question("Calculate 8 * 4.", "8 * 4 =", "32")
    b = Question("What is 8 * 4?", "8 * 4 =", "32")
    assert a.key == b.key == "8 * 4 ="
    assert Question("Largest: 3, 1 or 2?", "The largest number is", "3").key == "Largest: 3, 1 or 2?"


def test_default_holds_four_equal_parts():
    task = tasks.load("default")
    levels, counts = np.unique(task.pool.extra["level"].astype(str), return_counts=True)
    assert dict(zip(levels, counts, strict=True)) == {"easy": 200, "middle": 200, "hard": 200, "out": 200}
    _, counts = np.unique(task.evaluation.extra["level"].astype(str), return_counts=True)
    assert counts.tolist() == [20, 20, 20, 20]
    assert set(task.pool.stratum) == {name for group in MIXES["default"] for name in group}
    assert (task.max_tokens, task.stop, task.notes) == (8, ("\n",), ())


def test_five_is_balanced_as_far_as_its_families_last():
    task = tasks.load("five")
    assert len(task.pool) == 1000
    strata, counts = np.unique(task.evaluation.stratum.astype(str), return_counts=True)
    assert dict(zip(strata, counts, strict=True)) == {
        "add 2d+2d": 16, "max of 3 2d": 16, "mul 2dx1d": 16, "rg basic_arithmetic": 16, "sub <=20": 16,
    }  # fmt: skip
    big = [int((task.pool.stratum == n).sum()) for n in ("add 2d+2d", "max of 3 2d", "rg basic_arithmetic")]
    assert max(big) - min(big) <= 1


@pytest.mark.parametrize("name", ["default", "five", "rg gcd"])
@pytest.mark.parametrize("seed", [0, 7])
def test_pool_evaluation_and_teaching_share_no_question(name, seed):
    task = tasks.load(name, seed=seed)
    lesson = tasks.teaching(name, 300, seed=seed + 1)
    for p in (task.pool, task.evaluation, lesson):
        assert len(set(p.text)) == len(p)
    assert not set(task.pool.text) & set(task.evaluation.text)
    assert not set(lesson.text) & (set(task.pool.text) | set(task.evaluation.text))
    # nor one expression in two wordings
    keys = [
        [Question(*q).key for q in zip(p.text, p.prefix, p.answer, strict=True)]
        for p in (task.pool, task.evaluation, lesson)
    ]
    assert len({k for part in keys for k in part}) == sum(map(len, keys))
    assert all(map(reserved, keys[2]))
    assert not any(map(reserved, keys[0] + keys[1]))


def test_the_pool_follows_the_seed_and_the_evaluation_set_does_not():
    a, again, b = (tasks.load("default", seed=s) for s in (0, 0, 1))
    assert a.pool.ids.tolist() == again.pool.ids.tolist()
    assert a.pool.ids.tolist() != b.pool.ids.tolist()
    assert a.evaluation.ids.tolist() == b.evaluation.ids.tolist()
    assert a.evaluation.text.tolist() == b.evaluation.text.tolist()


def test_a_question_has_the_same_id_under_every_seed():
    a, b = (tasks.load("sub <=20", seed=s, size=500) for s in (0, 1))
    assert dict(zip(a.pool.text, a.pool.ids, strict=True)) == dict(zip(b.pool.text, b.pool.ids, strict=True))
    task = tasks.load("family:mul 1dx1d")
    assert dict(zip(task.pool.text, task.pool.ids, strict=True))["What is 2 * 2?"] == "e364fa52c42a-0"


def test_a_family_that_runs_out_gives_what_it_has_and_says_so():
    task = tasks.load("mul 1dx1d")
    free = sum(not reserved(f"{a} * {b} =") for a in range(2, 10) for b in range(2, 10))
    assert (free, len(task.pool), len(task.evaluation)) == (50, 34, 16)
    assert task.notes == (
        "34 prompts where 800 were asked for: some families have no more questions.",
        "16 evaluation prompts where 80 were asked for: some families have no more questions.",
    )


def test_an_endless_stream_of_few_questions_ends():
    task = tasks.load("rg lcm", size=5000, evaluation=20)
    assert 60 < len(task.pool) < 145


def test_a_list_of_families_is_a_mix_in_equal_parts():
    task = tasks.load(["add 2d+2d", "family:sort 3 numbers"], size=40, evaluation=10)
    assert task.name == "add 2d+2d, sort 3 numbers"
    assert tasks.load(task.name, size=40, evaluation=10).pool.ids.tolist() == task.pool.ids.tolist()
    assert [(n, int((task.pool.stratum == n).sum())) for n in ("add 2d+2d", "sort 3 numbers")] == [
        ("add 2d+2d", 20),
        ("sort 3 numbers", 20),
    ]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tasks.load("fiv"), ValueError, "no task 'fiv'; did you mean 'five'"),
        (lambda: tasks.load("family:add"), ValueError, "no family 'add'; there are mul 1dx1d, add 1d[+]1d"),
        (lambda: tasks.load(["sub <=20", "sub <=20"]), ValueError, "names each family once; sub <=20 was given"),
        (lambda: tasks.load("five", sise=3), ValueError, "five has no 'sise'; did you mean size"),
        (lambda: tasks.load("five", size=0), ValueError, "size=0, evaluation=80"),
        (
            lambda: tasks.load("rg lcm", evaluation=500),
            ValueError,
            "rg lcm: all [0-9]+ questions are in the evaluation set",
        ),
        (lambda: tasks.load("five", rewards="some"), ValueError, "rewards='some'; it is one of graded, binary"),
        (lambda: tasks.load(3), TypeError, "not int"),
    ],
)
def test_errors_say_what_was_given_and_what_there_is(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_file_of_generators_brings_its_families(tmp_path, monkeypatch) -> None:
    (tmp_path / "colours.py").write_text(
        "from workbench.tasks.family import Question, counted\n"
        "pairs = [('grass', 'green'), ('snow', 'white'), ('coal', 'black'), ('blood', 'red'), ('a lemon', 'yellow')]\n"
        "asked = [Question(f'What colour has {a}?', f'The colour of {a} is', b) for a, b in pairs]\n"
        "FAMILIES = [counted('colours', 'easy', 'word', float('nan'), asked)]\n"
    )
    monkeypatch.setattr(generators, "__path__", [*generators.__path__, str(tmp_path)])
    tasks.families.cache_clear()
    try:
        assert list(tasks.families())[-1] == "colours"
        task = tasks.load(["colours"], size=3, evaluation=1)
        assert set(task.pool.stratum) == {"colours"}
    finally:
        tasks.families.cache_clear()
