"""Reference answers: parsed whole or refused, and judged by their own verifier when a table is loaded."""

import warnings

import numpy as np
import pytest

from tests.tasks.golds import generated
from workbench import tasks

WORDS = ["red", "blue", "green", "black", "white"]


def rows_of(*golds, prompt="What is {i}?"):
    return [{"prompt": prompt.format(i=i), "answer": g} for i, g in enumerate(golds)]


def test_generated_answers_of_mathematics_are_judged_whole():
    pytest.importorskip("math_verify")
    from workbench.tasks.mathematics import verify

    for gold in generated(35, seed=1):
        for text in gold.right:
            assert verify(text, gold.answer)["correct"] == 1, (gold.answer, text)
        for text in gold.truncated:
            assert verify(text, gold.answer)["correct"] == 0, (gold.answer, text)


@pytest.mark.parametrize(
    ("gold", "completion", "correct"),
    [
        ("1\\,000", "\\boxed{0}", 0), ("0", "\\boxed{1\\,000}", 0), ("0", "\\boxed{1 000}", 0), ("1.5e3", "\\boxed{1500}", 1),
        ("2 1/2", "$2.5$", 1), ("17\\frac{1}{2}\\%", "\\boxed{0.175}", 1), ("0.\\overline{3}", "\\boxed{\\frac{1}{3}}", 1),
        ("0.\\overline{3}", "\\boxed{0}", 0), ("2", "The answer is 2\\sqrt{3}.", 0), ("2\\sqrt{3}", "The answer is 2\\sqrt{3}.", 1),
        ("\\text{Evelyn}", "Evelyn", 1), ("(\\text{B})", "\\boxed{B}", 1), ("\\text{A, C}", "\\boxed{\\text{A,C}}", 1),
        ("50\\%", "\\boxed{0.5}", 1), ("100", "\\boxed{100.0001}", 0), ("\\frac{1}{3}", "\\boxed{0.333333}", 1), ("50", "\\boxed{50\\%}", 1), ("1e-7", "\\boxed{2e-7}", 0), ("$12$ cm", "\\boxed{12}", 1),
        ("The answer is $\\frac{1}{2}$.", "\\boxed{0.5}", 1), ("We add: \\boxed{7}", "#### 7", 1), ("[0,1)", "\\boxed{(0,1)}", 0),
        ("\\{x \\mid x > 2\\}", "\\boxed{\\left\\{x\\mid x>2\\right\\}}", 1), ("\\{x \\mid x > 2\\}", "\\boxed{2}", 0), ("\\text{June 3}", "\\boxed{3}", 0),
        ("1 \\le x<4", "<answer>1\\le x < 4</answer>", 1),
    ],
)  # fmt: skip
def test_mathematics_by_value(gold, completion, correct):
    pytest.importorskip("math_verify")
    from workbench.tasks.mathematics import verify

    assert verify(completion, gold)["correct"] == correct


@pytest.mark.parametrize(
    "gold", ["", "???", "1.5\\text{ million}", "5 million", "2 \\text{ hours } 30\\text{ minutes}", "5'6\"", "1 000", "$1$ or $2$",
             "\\text{The answer is } 5", "3:45\\text{ p.m.}"],
)  # fmt: skip
def test_mathematics_that_cannot_be_read_whole_is_refused(gold):
    pytest.importorskip("math_verify")
    from workbench.tasks.mathematics import verify

    with pytest.raises(ValueError, match=r"math-verify|more than one answer"):
        verify("\\boxed{1}", gold)


def test_answers_of_equal_value_are_spelled_alike():
    pytest.importorskip("math_verify")
    from workbench.tasks.mathematics import verify

    def spelled(*texts):
        return {verify(f"\\boxed{{{t}}}", "7")["answer"] for t in texts}

    assert spelled("\\frac{1}{2}", "0.5", "1/2") == {"0.5"}
    assert (
        len(spelled("(x-1)(x+2)", "x^2+x-2"))
        == len(spelled("\\{1,2\\}", "2, 1"))
        == len(spelled("[0, 1)", "[0,1)"))
        == 1
    )


@pytest.mark.parametrize("gold", ["New York", "don't", "(B)", "3D", "nai\u0308ve"])
def test_answers_that_nothing_satisfies_are_refused(gold):
    with pytest.raises(ValueError, match=r"3 of 3 reference answers \(100.0%\) fail their own verifier word: row 1"):
        tasks.load(rows_of(gold, gold, gold), verifier="word")


def test_a_few_bad_answers_are_named_and_left_out_and_many_are_refused():
    rows = rows_of(*(str(i) for i in range(39)), "3 and 4")
    with pytest.warns(UserWarning, match=r"1 of 40 reference answers \(2.5%\) .* row 40 '3 and 4' is not one number"):
        task = tasks.load(rows, verifier="numeric")
    assert len(task.pool) + len(task.evaluation) == 39
    assert any("row 40" in note for note in task.notes)
    with pytest.raises(ValueError, match=r"now 0\.01"):
        tasks.load(rows, verifier="numeric", bad_golds=0.01)
    kept = tasks.load(rows, verifier="numeric", bad_golds="allow")
    assert len(kept.pool) + len(kept.evaluation) == 40
    with pytest.raises(ValueError, match="bad_golds must be a number from 0 to 1, got 'alow'"):
        tasks.load(rows, verifier="numeric", bad_golds="alow")


def test_an_answer_is_judged_in_the_form_that_its_prompt_asks_for():
    boxed = rows_of(*WORDS, prompt="Colour {i}? Put it into \\boxed{{}}.")
    with pytest.raises(ValueError, match=r"row 1 'red' as \\boxed"):
        tasks.load(boxed)
    with pytest.raises(ValueError, match="row 1 'red' as <answer>"):
        tasks.load(rows_of(*WORDS), system="Answer as <answer>colour</answer>.")
    for form in ("\\boxed{{}}", "#### and the number", "<answer> tags"):
        assert not tasks.load(rows_of("1", "2", "3/4", prompt=f"Sum {{i}} in {form}"), verifier="numeric").notes


def test_a_verifier_of_ones_own_is_told_and_refused_where_a_share_is_given():
    def reversed_(completion, answer):
        return completion == answer[::-1]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = tasks.load(rows_of(*WORDS), verifier=reversed_)
    assert "5 of 5 reference answers" in task.notes[0]
    task.verifier.close()
    with pytest.raises(ValueError, match="5 of 5"):
        tasks.load(rows_of(*WORDS), verifier=reversed_, bad_golds=0.5)


def test_the_answers_of_the_mixes_satisfy_their_verifier():
    for name in ("default", "five"):
        task = tasks.load(name, size=60, evaluation=9)
        texts = [f" {a}\n" for a in task.pool.answer]
        assert task.verifier(texts, task.pool, np.arange(len(texts))).correct.all()
