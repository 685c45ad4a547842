"""Lessons of the tiny model: questions with right answers, larger siblings of them, and near misses.

Lessons come from `workbench.tasks.mixes.teaching`, a quarter of all questions that no pool and no evaluation set of
any seed holds, and from larger siblings of the families (three digits for two), which no family asks for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from workbench.tasks.mixes import MIXES, teaching

EXTRA = ("add 2d+1d", "sub 2d-1d", "half/double", "rg chain_sum 3t")
"""Families taught beside those of the mixes: what sums and differences are made of."""


class Lesson(NamedTuple):
    """A question as the model sees it, its right answer, its kind and level."""

    prompt: str
    answer: str
    kind: str
    level: str


def lessons(per_family: int, per_sibling: int, seed: int = 0) -> list[list[Lesson]]:
    """The lessons of every family and sibling taught, so many of each; disjoint from all pools and evaluation sets."""
    names = dict.fromkeys(f for parts in MIXES.values() for group in parts for f in group)
    taught = []
    for name in (*names, *EXTRA):
        pool = teaching(name, per_family, seed=seed)
        columns = (pool.text, pool.prefix, pool.answer, pool.extra["kind"], pool.extra["level"])
        taught.append([Lesson(f"{t}\n{p}", a, k, v) for t, p, a, k, v in zip(*columns, strict=True)])
    return taught + siblings(per_sibling, np.random.default_rng([seed, 1]))


def siblings(n: int, rng: np.random.Generator) -> list[list[Lesson]]:
    """n lessons each of larger siblings of the families: numbers of three digits, four terms."""

    def lesson(text: str, prefix: str, answer: int, level: str) -> Lesson:
        return Lesson(f"{text}\n{prefix}", str(answer), "number", level)

    def counted(expression: str, answer: int, level: str) -> Lesson:
        return lesson(f"What is {expression}?", f"{expression} =", answer, level)

    large = rng.integers(100, 1000, n).tolist()
    other = np.where(rng.random(n) < 0.5, rng.integers(1, 1000, n), rng.integers(1, 100, n)).tolist()
    one = rng.integers(2, 10, n).tolist()
    swap, after = (rng.random((2, n)) < 0.5).tolist()
    sums = [(b, a) if s else (a, b) for a, b, s in zip(large, other, swap, strict=True)]
    pairs = [(max(p), min(p)) for p in sums]
    digits, signs = rng.integers(1, 10, (n, 4)).tolist(), (2 * rng.integers(0, 2, (n, 3)) - 1).tolist()
    terms = [
        ("".join(f" {'+' if s > 0 else '-'} {d}" for s, d in zip(ss, dd[1:], strict=True)), dd[0], ss, dd)
        for dd, ss in zip(digits, signs, strict=True)
    ]
    next_to = [("after", a + 1) if up else ("before", a - 1) for a, up in zip(large, after, strict=True)]
    triples = [x for x in rng.integers(10, 1000, (n, 3)).tolist() if max(x) > 99 and len(set(x)) == 3]
    return [
        [counted(f"{a} + {b}", a + b, "hard") for a, b in sums],
        [counted(f"{a} - {b}", a - b, "out") for a, b in pairs],
        [counted(f"{a} * {b}", a * b, "middle") for a, b in zip(large, one, strict=True)],
        [
            counted(f"{first}{rest}", first + sum(s * d for s, d in zip(ss, dd[1:], strict=True)), "out")
            for rest, first, ss, dd in terms
        ],
        [
            lesson(f"What number comes {side} {a}?", f"The number that comes {side} {a} is", answer, "hard")
            for a, (side, answer) in zip(large, next_to, strict=True)
            if a > 200
        ],
        [
            lesson(f"Which number is the largest: {x}, {y} or {z}?", "The largest number is", max(x, y, z), "middle")
            for x, y, z in triples
        ],
    ]


def near_miss(answer: str, kind: str, rng: np.random.Generator) -> str:
    """A wrong answer of the right form: a number a little off, a word with two letters exchanged."""
    if kind == "number" and answer.lstrip("-").isdigit():
        off = int(rng.choice([1, 1, 2, 3, 10, int(rng.integers(1, 13))]))
        value = int(answer)
        return str(value + off if value < off or rng.random() < 0.5 else value - off)
    letters = list(answer)
    i = int(rng.integers(len(letters)))
    letters[i - 1], letters[i] = letters[i], letters[i - 1]
    wrong = "".join(letters)
    return wrong if wrong != answer else answer + answer[-1]
