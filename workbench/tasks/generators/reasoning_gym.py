"""Families from reasoning-gym (0.1.25), with small settings and a prefilled answer.

reasoning-gym makes row i of a data set from (seed, i) alone. Its import takes a second, so it happens when the
first question is drawn. `basic_arithmetic` computes from the left and rounds quotients (it gives 12 for
4 + 2 * 2 and 2 for 8 / 3); only questions whose answer is the ordinary one are used here.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial

import numpy as np

from workbench.tasks.family import Family, Question

_OPS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def value(expression: str) -> Fraction | None:
    """The exact value of whole numbers joined by + - * /, products first; None where there is none.

    >>> value("4 + 2 * 2")
    Fraction(8, 1)
    """
    parts = expression.split()
    if not all(re.fullmatch(r"-?[0-9]+", p) for p in parts[::2]) or not all(p in _OPS for p in parts[1::2]):
        return None
    if len(parts) % 2 == 0:
        return None
    numbers, ops = [Fraction(p) for p in parts[::2]], parts[1::2]
    for rank in ("*/", "+-"):
        folded, left = numbers[:1], []
        for op, number in zip(ops, numbers[1:], strict=True):
            if op not in rank:
                folded.append(number)
                left.append(op)
            elif op == "/" and number == 0:
                return None
            else:
                folded[-1] = _OPS[op](folded[-1], number)
        numbers, ops = folded, left
    return numbers[0]


def _expression(question: str) -> str:
    found = re.search(r"-?[0-9][0-9 +\-*/]*[0-9]|[0-9]", question)
    if found is None:
        raise ValueError(f"reasoning-gym asked {question!r}, in which there is no expression")
    return found.group().strip()


def _arithmetic(question: str, answer: str, form: str = "What is {}?") -> Question | None:
    text = _expression(question)
    return Question(form.format(text), f"{text} =", answer) if value(text) == Fraction(answer) else None


_calculate = partial(_arithmetic, form="Calculate {}.")


def _pair(question: str, answer: str, name: str) -> Question:
    pair = " and ".join(re.findall(r"[0-9]+", question))
    return Question(f"What is the {name} of {pair}?", f"The {name} of {pair} is", answer)


def _sequence(question: str, answer: str) -> Question:
    shown = question.replace(", ?", "")
    return Question(f"What number comes next: {shown}, ...", f"{shown},", answer)


def _legs(question: str, answer: str) -> Question:
    text = question.strip().split("\n")[-1].replace("Now, h", "H")
    return Question(text, "The total number of legs is", answer)


def _equation(question: str, answer: str) -> Question:
    unknown = re.search(r"[a-z]", question.split(":")[-1])
    return Question(question, f"{unknown.group() if unknown else 'x'} =", answer)


def _letters(question: str, answer: str) -> Question:
    letter = question.split('"')[1]
    return Question(question, f'The letter "{letter}" appears', answer)


def _backward(question: str, answer: str) -> Question:
    return Question(question, f"{question.split(': ')[-1].strip()} ->", answer)


Reader = Callable[[str, str], Question | None]
"""(question, answer) of reasoning-gym -> the question as it is asked here, None to leave it out."""


def _family(
    name: str, level: str, kind: str, pass_rate: float, data_set: str, read: Reader, **settings: object
) -> Family:
    def stream(rng: np.random.Generator) -> Iterator[Question]:
        import reasoning_gym

        size = 100_000
        rows = reasoning_gym.create_dataset(data_set, size=size, seed=int(rng.integers(2**31)), **settings)
        for i in range(size):
            row = rows[i]
            question = read(row["question"], row["answer"])
            if question is not None:
                yield question

    return Family(name, level, kind, pass_rate, stream, source=f"reasoning-gym {data_set}")


FAMILIES = [
    _family("rg chain_sum 2t", "middle", "number", 0.34, "chain_sum", _arithmetic,
            min_terms=2, max_terms=2, min_digits=1, max_digits=2),
    _family("rg basic_arithmetic", "middle", "number", 0.40, "basic_arithmetic", _calculate,
            min_terms=2, max_terms=3, min_digits=1, max_digits=1, allow_parentheses=False, allow_negation=False),
    _family("rg products", "middle", "number", 0.47, "products", _arithmetic, min_digits=1, max_digits=2),
    _family("rg gcd", "hard", "number", 0.16, "gcd", partial(_pair, name="greatest common divisor"), max_value=30),
    _family("rg lcm", "hard", "number", 0.27, "lcm", partial(_pair, name="least common multiple"), max_value=12),
    _family("rg number_sequence", "out", "number", 0.04, "number_sequence", _sequence,
            min_terms=4, max_terms=5, min_value=0, max_value=20, max_complexity=1),
    _family("rg chain_sum 3t", "out", "number", 0.08, "chain_sum", _arithmetic,
            min_terms=3, max_terms=3, min_digits=1, max_digits=1),
    _family("rg simple_equations", "out", "number", 0.06, "simple_equations", _equation,
            min_terms=2, max_terms=2, min_value=1, max_value=9),
    _family("rg letter_counting", "out", "number", 0.05, "letter_counting", _letters, min_words=1, max_words=1),
    _family("rg leg_counting", "out", "number", 0.00, "leg_counting", _legs,
            min_animals=1, max_animals=1, max_instances=6),
    _family("rg spell_backward", "out", "word", 0.00, "spell_backward", _backward, min_word_len=3, max_word_len=3),
]  # fmt: skip
