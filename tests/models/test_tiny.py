"""The tiny model that is shipped, and the way it is made."""

import json
from pathlib import Path

import numpy as np
import pytest

from workbench import models, tasks
from workbench.models.make_tiny import Recipe, card, make, pass_rates
from workbench.models.tiny_lessons import lessons, near_miss, siblings
from workbench.tasks.mixes import MIXES, family, reserved

SMALL = Recipe(
    vocabulary=300, width=32, layers=1, heads=1, inner=32, batch=8, learn=3, blur=2, check_every=2,
    per_family=20, per_sibling=30, stop_at=-1.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def tiny():
    return models.load("tiny")


def test_it_is_small(tiny):
    model, _ = tiny
    assert 1_000_000 <= model.num_parameters() <= 4_000_000
    assert type(model).__name__ == "LlamaForCausalLM"
    assert sum(f.stat().st_size for f in models.TINY.iterdir()) < 8e6


def test_it_says_how_it_was_made_and_how_to_train_it():
    said = json.loads((models.TINY / "workbench.json").read_text())
    assert 1e-5 <= said["lr"] <= 1e-3
    assert 0.3 <= said["facts"]["pass_rate"] <= 0.5
    text = (models.TINY / "README.md").read_text()
    assert "license: apache-2.0" in text
    assert str(said["facts"]["evaluation"]) in text


def test_digits_stand_alone_and_any_text_survives(tiny):
    _, tokenizer = tiny
    assert tokenizer.tokenize("12 + 345 =")[:2] == ["1", "2"]
    text = "What is 12 + 7?\n12 + 7 = Ünïcode 😀"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.chat_template is None


def test_prompts_are_short_and_answers_fit(tiny):
    _, tokenizer = tiny
    task = tasks.load("default")
    prompts = [len(task.render(task.pool, row, tokenizer)) for row in range(len(task.pool))]
    answers = [len(tokenizer(f" {a}").input_ids) for a in task.pool.answer]
    assert max(prompts) <= 48
    assert max(answers) < task.max_tokens


def test_it_is_right_about_two_times_in_five(tiny):
    task = tasks.load("default")
    watched = task.pool.take(np.random.default_rng(11).permutation(len(task.pool))[:120])
    rate = pass_rates(*tiny, task, watched, samples=4, seed=5)
    right = round(float(rate.sum() * 4))
    assert 0.25 * 480 <= right <= 0.55 * 480
    assert ((rate > 0) & (rate < 1)).mean() > 0.3  # groups from which something can be learned


def test_lessons_are_in_no_pool_and_no_evaluation_set():
    taught = {lesson.prompt for part in lessons(300, 300) for lesson in part}
    for name in MIXES:
        for seed in range(3):
            task = tasks.load(name, seed=seed)
            for pool in (task.pool, task.evaluation):
                asked = {f"{t}\n{p}" for t, p in zip(pool.text, pool.prefix, strict=True)}
                assert not asked & taught


def test_siblings_are_asked_by_no_family():
    names = [f for part in MIXES.values() for group in part for f in group]
    rng = np.random.default_rng(0)
    asked = {
        f"{q.text}\n{q.prefix}"
        for name in dict.fromkeys(names)
        for q, _ in zip(family(name).stream(rng), range(500), strict=False)
    }
    made = siblings(2000, np.random.default_rng(1))
    assert [len(part) > 1000 for part in made] == [True] * 6
    assert not asked & {lesson.prompt for part in made for lesson in part}


def test_sibling_answers_are_right():
    plus, minus, times, terms, beside, largest = siblings(50, np.random.default_rng(2))
    for part, op in ((plus, int.__add__), (minus, int.__sub__), (times, int.__mul__)):
        a, b = (int(x) for x in part[0].prompt.split("\n")[1].split()[:3:2])
        assert part[0].answer == str(op(a, b))
    first, *rest = terms[0].prompt.split("\n")[1].removesuffix(" =").split(" ")
    signed = [int(d) if s == "+" else -int(d) for s, d in zip(rest[::2], rest[1::2], strict=True)]
    assert terms[0].answer == str(int(first) + sum(signed))
    number = int(beside[0].prompt.split("\n")[0].removesuffix("?").split()[-1])
    assert abs(int(beside[0].answer) - number) == 1
    shown = largest[0].prompt.split("\n")[0].removesuffix("?").split(": ")[1].replace(" or ", ", ").split(", ")
    assert largest[0].answer == str(max(map(int, shown)))


@pytest.mark.parametrize(("answer", "kind"), [("0", "number"), ("57", "number"), ("-3", "number"), ("tac", "word"),
                                              ("e", "word"), ("oo", "word")])  # fmt: skip
def test_a_near_miss_is_wrong_and_of_the_same_form(answer, kind):
    rng = np.random.default_rng(0)
    wrong = {near_miss(answer, kind, rng) for _ in range(50)}
    assert answer not in wrong
    if kind == "number":
        assert all(abs(int(w) - int(answer)) <= 12 for w in wrong)


def test_it_can_be_made_from_a_seed(tmp_path):
    facts = make(tmp_path / "a", seed=3, recipe=SMALL, progress=False)
    again = make(tmp_path / "b", seed=3, recipe=SMALL, progress=False)
    assert facts["steps"] == 5
    assert facts["lessons"] == again["lessons"]
    model, tokenizer = models.load(tmp_path / "a")
    twin, _ = models.load(tmp_path / "b")
    assert all(bool((p == q).all()) for p, q in zip(model.parameters(), twin.parameters(), strict=True))
    assert len(tokenizer) == 300
    names = {p.name for p in (tmp_path / "a").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "workbench.json", "README.md"} <= names


def test_the_card_names_what_is_in_the_recipe():
    facts = {"seed": 0, "steps": 5, "seconds": 1, "date": "2026-11-28", "device": "cpu", "threads": 2, "lessons": 10,
             "parameters": 99, "pass_rate_learnt": 0.7, "pass_rate": 0.4, "evaluation": 0.39}  # fmt: skip
    text = card(Recipe(), facts, {"sub <=20": 0.25})
    assert "| sub <=20 | 0.25 |" in text
    assert "pass rate was down to\n0.4" in text


def test_reserved_questions_are_about_a_quarter():
    assert 0.23 < np.mean([reserved(f"{a} + {b} =") for a in range(100) for b in range(100)]) < 0.27


def test_the_folder_is_the_packages():
    assert Path(models.__file__).parent / "tiny" == models.TINY
