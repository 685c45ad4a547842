"""Arithmetic and word questions with a prefilled answer, from very easy to out of reach for a 135 M model.

A family lists its questions: all of them where they can be counted, an endless stream where they cannot. The
answer is started for the model ("12 + 7 ="), which lifts the pass rate of SmolLM2-135M on one-digit addition from
0.22 to 0.75: what is left to learn is the sum and not the form. Pass rates are those of SmolLM2-135M-Instruct
before any training: 32 prompts x 8 samples, temperature 1, 8 tokens, bf16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from workbench.tasks.family import Family, Question, counted

_APPLY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def _sums(first: range, other: range, ops: str, *, terms: int = 2, negative: bool = True) -> list[Question]:
    """All expressions of a given form, read from the left (so ops of one precedence only)."""
    asked = []
    for x, rest in product(first, product(product(other, ops), repeat=terms - 1)):
        text, total = str(x), x
        for y, op in rest:
            text, total = f"{text} {op} {y}", _APPLY[op](total, y)
        if negative or total >= 0:
            asked.append(Question(f"What is {text}?", f"{text} =", str(total)))
    return asked


def _unchanged() -> list[Question]:
    asked = [f"{a} {rest}" for a in range(2, 100) for rest in ("+ 0", "* 1")]
    return [Question(f"What is {e}?", f"{e} =", e.split()[0]) for e in asked]


def _neighbours() -> list[Question]:
    shift = {"after": 1, "before": -1}
    return [
        Question(f"What number comes {side} {a}?", f"The number that comes {side} {a} is", str(a + by))
        for a in range(10, 201)
        for side, by in shift.items()
    ]


def _halves() -> list[Question]:
    rows = []
    for a in range(4, 82, 2):
        rows.append(Question(f"What is double {a}?", f"Double {a} is", str(2 * a)))
        rows.append(Question(f"What is half of {a}?", f"Half of {a} is", str(a // 2)))
    return rows


WORDS = (  # noqa: SIM905  a list of quoted words takes a line for each
    "banana letter apple kitten bubble tree school table pepper mirror coffee balloon street number window garden "
    "house river stone paper dog cat sun moon bread yellow summer butter winter happy little orange carrot "
    "pillow puzzle basket doctor dinner finger ladder rabbit tunnel hammer bottle candle castle pocket"
).split()


def _letter_counts() -> list[Question]:
    return [
        Question(
            f"How many times does the letter {c} appear in the word {w}?",
            f"The number of times {c} appears in {w} is",
            str(w.count(c)),
        )
        for w in WORDS
        for c in sorted(set(w))
    ]


def _last_letters() -> list[Question]:
    return [Question(f"What is the last letter of the word {w}?", f"The last letter of {w} is", w[-1]) for w in WORDS]


def _largest(rng: np.random.Generator) -> Iterator[Question]:
    while True:
        x, y, z = (int(v) for v in 10 + rng.choice(89, 3, replace=False))
        yield Question(f"Which number is the largest: {x}, {y} or {z}?", "The largest number is", str(max(x, y, z)))


def _sorted(rng: np.random.Generator) -> Iterator[Question]:
    while True:
        x = [int(v) for v in 1 + rng.choice(39, 3, replace=False)]
        yield Question(
            f"Sort from smallest to largest: {', '.join(map(str, x))}.",
            "From smallest to largest:",
            ", ".join(map(str, sorted(x))),
        )


def _items(rng: np.random.Generator) -> Iterator[Question]:
    while True:
        words = [WORDS[i] for i in rng.choice(len(WORDS), 4, replace=False)]
        which = int(rng.integers(4))
        nth = ("first", "second", "third", "fourth")[which]
        yield Question(
            f"Here is a list: {', '.join(words)}. What is the {nth} word?", f"The {nth} word is", words[which]
        )


_DIGIT, _TWO = range(1, 10), range(10, 100)


FAMILIES = [
    counted("mul 1dx1d", "easy", "number", 0.75, _sums(range(2, 10), range(2, 10), "*")),
    counted("add 1d+1d", "easy", "number", 0.82, _sums(_DIGIT, _DIGIT, "+")),
    counted("add 0 or mul 1", "easy", "number", 0.91, _unchanged()),
    Family("max of 3 2d", "middle", "number", 0.47, _largest),
    counted("mul 2dx1d", "middle", "number", 0.32, _sums(range(10, 31), range(2, 10), "*")),
    counted("add 2d+2d", "hard", "number", 0.18, _sums(_TWO, _TWO, "+")),
    counted("number before/after", "hard", "number", 0.27, _neighbours()),
    counted("sub <=20", "hard", "number", 0.26, _sums(range(1, 21), range(1, 21), "-", negative=False)),
    counted("count letter", "hard", "number", 0.18, _letter_counts()),
    counted("half/double", "hard", "number", 0.11, _halves()),
    counted("add 2d+1d", "hard", "number", 0.14, _sums(_TWO, _DIGIT, "+")),
    counted("sub 2d-1d", "out", "number", 0.05, _sums(_TWO, _DIGIT, "-")),
    counted("last letter", "out", "word", 0.04, _last_letters()),
    Family("sort 3 numbers", "out", "list", 0.00, _sorted),
    counted("3 terms 1d +-", "out", "number", 0.06, _sums(_DIGIT, _DIGIT, "+-", terms=3)),
    counted("sub 2d-2d", "out", "number", 0.07, _sums(_TWO, _TWO, "-", negative=False)),
    Family("item of list", "out", "word", 0.05, _items),
]
