"""Numbers as they are written, read as exact values: whole or not at all where they are the right answer."""

from fractions import Fraction

import pytest

from workbench.numerics.votes import majority_label
from workbench.tasks.values import answer, marked, spelled, whole
from workbench.tasks.verifiers import gold_fault, in_order, number, word


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("72", 72), ("-5", -5), ("\u20135", -5), ("\u22125", -5), ("-$5", -5), ("\\$5.50", "11/2"), ("5.", 5), ("$x=5$", 5),
        ("1,234", 1234), ("1{,}234", 1234), ("58,\\!500", 58500), ("1\\,234", 1234), ("1\u202f234\u202f567", 1234567),
        ("3/4", "3/4"), ("-\\frac{3}{4}", "-3/4"), ("\\dfrac12", "1/2"), ("2 1/2", "5/2"), ("2\\frac{1}{2}", "5/2"), ("2\u00bd", "5/2"),
        ("50%", "1/2"), ("50\\%", "1/2"), ("50\\text{ percent}", "1/2"), ("17\\frac12\\%", "7/40"),
        ("10^2", 100), ("10^{-3}", "1/1000"), ("1.5e-3", "3/2000"), ("3\\times 10^{8}", 300000000), ("\\sqrt{16}", 4),
        ("\\sqrt[3]{-8}", -2), ("10 \\text{ cm}^2", 10), ("45^\\circ", 45), ("6 km/h", 6), ("\\text{7}", 7),
        ("so it is\n#### 1,000", 1000), ("first \\boxed{1}, so \\boxed{\\frac{1}{2}}.", "1/2"), ("<answer> 7 </answer>", 7),
    ],
)  # fmt: skip
def test_a_number_is_read_exactly(text, value):
    assert whole(text).value == Fraction(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2\\pi", 6.283185307179586), ("2\\sqrt{3}", 3.4641016151377544), ("1+\\sqrt{5}", 3.23606797749979),
     ("\\frac{1+\\sqrt{5}}{2}", 1.618033988749895), ("\u03c0/2", 1.5707963267948966), ("3\u221a2", 4.242640687119286)],
)  # fmt: skip
def test_roots_and_pi_are_read_as_floats(text, value):
    assert whole(text).value == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    ["", "b", "3 and 4", "3, 4", "5 or 6", "3D", "2x", "12:30", "5 million", "5\\text{ million}", "1.234,56", "1,23", "12,34,567",
     "4 + 3", "8 * 4", "(B)", "(3, 4)", "1 000", "5!", "3/4/2024", "1/0", "0^{-1}", "9^{9^9}", "1e9999", "2 hours 30 minutes"],
)  # fmt: skip
def test_what_is_not_one_number_is_not_read(text):
    assert whole(text) is None
    assert gold_fault("number", text) == "is not one number"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The answer is 1/4", "1/4"), ("is $29.00.", 29), ("so 4 + 3 = 7.", 7), ("2 + 2 is 4", 4), ("3-4", 4), ("**5**", 5),
        ("(which is 5)", 5), ("on 3/4/2024", 2024), ("\\boxed{5 apples}", 5), ("\\boxed{\\text{(B) } 7}", 7), ("#### nothing, but 6", 6),
        ("\\boxed{-5}$ for all 3", -5), ("100 - 58 = 42 apples", 42), ("8*4", 4), ("it is 12\u202f500 m", 12500),
        ("<answer>3/4</answer> of 9", "3/4"),
    ],
)  # fmt: skip
def test_the_number_that_a_completion_gives(text, value):
    assert answer(text).value == Fraction(value)


@pytest.mark.parametrize(
    "text", ["none", "\\boxed{2x}", "\\boxed{5 or 6}", "\\boxed{2 + 3}", "\\boxed{8 * 4}", "\\boxed{x^2}"]
)
def test_a_part_of_a_box_is_no_answer(text):
    assert answer(text) is None


@pytest.mark.parametrize(
    ("gold", "completion", "correct"),
    [
        ("3/4", "The answer is 1/4", 0), ("3/4", "0.75", 1), ("0.5", "\\boxed{\\frac{1}{2}}", 1), ("2", "\\boxed{\\frac{1}{2}}", 0),
        ("2", "\\boxed{\\sqrt{2}}", 0), ("2", "2\\sqrt{2} is it", 0), ("2", "\\boxed{2\\pi}", 0), ("50%", "0.5", 1), ("50%", "50%", 1),
        ("50%", "50", 0), ("0.5", "50%", 1), ("50", "50%", 1), ("1e-7", "2e-7", 0), ("1/3", "0.33", 0), ("1/3", "0.3333333333", 1),
        ("10000000001", "10000000002", 0), ("3 or 4", "4", 0),
    ],
)  # fmt: skip
def test_numbers_are_compared_by_value(gold, completion, correct):
    assert number([completion], [gold], [False]).exactness[0] == correct


def test_values_vote_and_not_spellings():
    texts = ["0.5", "\\boxed{\\frac{1}{2}}", "1/2", "50%", "0.75", "0.75", "0.75"]
    votes = majority_label(number(texts, ["0.5"] * 7, [False] * 7).answer)
    assert votes.label == "0.5"
    assert votes.rewards.tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert number(["8.0", "8", "8."], ["9"] * 3, [False] * 3).answer == ["8", "8", "8"]
    assert word(["Lag!", "lag"], ["x"] * 2, [False] * 2).answer == ["lag", "lag"]
    assert in_order(["1.0, 2", "1,2"], ["1, 2"] * 2, [False] * 2).answer == ["1, 2", "1, 2"]


def test_a_list_of_numbers_is_plain():
    assert not any(gold_fault("list", g) for g in ("1, 2, 3", "1,2,3", "[1, -2.5]", "7", "3 1 2", "100,200"))
    assert all(gold_fault("list", g) for g in ("1/2, 3", "1,000, 2", "a, 1", "1 and 2", ""))


def test_what_is_marked_as_the_answer():
    assert marked("\\boxed{\\frac{1}{2}} and \\boxed{3") == "\\frac{1}{2}"
    assert marked("#### 7\nmore") == " 7"
    assert marked("nothing") is None


def test_long_numbers_keep_all_their_digits():
    digits = "7" * 3000
    assert spelled(whole(digits).value) == digits
    assert whole("7" * 5000) is None
    assert number([digits], ["1"], [False]).closeness[0] == 0
