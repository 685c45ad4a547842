"""Functions with a fault, to be repaired: the answer is code, which the sandbox runs and `tasks.code` judges.

A function is one line behind `return`; the question shows the faulty one and a call that goes wrong. The answer is begun
up to `return`, so that a small model has an expression to write.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from workbench.tasks.code import answer_of
from workbench.tasks.family import Question, counted


class _Function(NamedTuple):
    """What a function should do, its parameters, the right expression, faulty ones, and arguments to try it with.

    {k} stands for a number between 2 and 29."""

    what: str
    head: str
    right: str
    faulty: tuple[str, ...]
    arguments: tuple[tuple[object, ...], ...]


_NUMBERS = tuple((n,) for n in (0, 1, 5, 12, -7, 40))
_PAIRS = ((2, 5), (9, 4), (0, 3), (-1, -6), (7, 7))
_LISTS = (([3, 1, 2],), ([5, 5, 8, 0],), ([10, -4],), ([6, 2, 9, 4, 1],))
_WORDS = (("banana",), ("Tree",), ("noon",), ("garden hose",))

_FUNCTIONS = (
    _Function("add {k} to a number", "add(x)", "x + {k}", ("x - {k}", "x * {k}"), _NUMBERS),
    _Function("take {k} away from a number", "take(x)", "x - {k}", ("{k} - x", "x + {k}"), _NUMBERS),
    _Function("multiply a number by {k}", "times(x)", "x * {k}", ("x + {k}", "x ** {k}"), _NUMBERS),
    _Function("give the remainder of a number divided by {k}", "rest(x)", "x % {k}", ("x // {k}", "{k} % (x + 1)"), ((1,), (5,), (12,), (40,), (23,))),
    _Function("say whether a number is a multiple of {k}", "divides(x)", "x % {k} == 0", ("x % {k} != 0", "x // {k} == 0"), ((0,), (1,), (12,), (40,), (63,))),
    _Function("say whether a number is at least {k}", "enough(x)", "x >= {k}", ("x <= {k}", "x == {k}"), _NUMBERS),
    _Function("never give more than {k}", "capped(x)", "min(x, {k})", ("max(x, {k})", "x"), _NUMBERS),
    _Function("never give less than {k}", "floored(x)", "max(x, {k})", ("min(x, {k})", "{k}"), _NUMBERS),
    _Function("give the first number and {k} times the second, added", "mixed(a, b)", "a + {k} * b", ("{k} * a + b", "(a + b) * {k}"), _PAIRS),
    _Function("give all numbers of a list that are greater than {k}", "large(xs)", "[x for x in xs if x > {k}]", ("[x for x in xs if x < {k}]", "[x > {k} for x in xs]"), _LISTS),
    _Function("add {k} to each number of a list", "each(xs)", "[x + {k} for x in xs]", ("[x * {k} for x in xs]", "xs + [{k}]"), _LISTS),
    _Function("repeat a word {k} times", "again(word)", "word * {k}", ("word + '{k}'", "[word] * {k}"), _WORDS),
    _Function("give the first {k} letters of a word", "start(word)", "word[:{k}]", ("word[{k}:]", "word[-{k}:]"), _WORDS),
    _Function("give the last number of a list", "last(xs)", "xs[-1]", ("xs[0]", "xs[1]"), _LISTS),
    _Function("give the largest number of a list", "largest(xs)", "max(xs)", ("min(xs)", "len(xs)", "xs[-1]"), _LISTS),
    _Function("give the sum of a list", "total(xs)", "sum(xs)", ("max(xs)", "len(xs)"), _LISTS),
    _Function("turn a list around", "turned(xs)", "xs[::-1]", ("sorted(xs)", "xs[1:]"), _LISTS),
    _Function("sort a list, the largest first", "ordered(xs)", "sorted(xs, reverse=True)", ("sorted(xs)", "xs[::-1]"), _LISTS),
    _Function("spell a word backwards", "backwards(word)", "word[::-1]", ("word[1:]", "word[-1]"), _WORDS),
    _Function("count the letters a of a word", "count(word)", "word.count('a')", ("len(word)", "word.count('e')"), _WORDS),
    _Function("give a word in capitals", "loud(word)", "word.upper()", ("word.lower()", "word.title()"), _WORDS),
    _Function("say whether a word reads the same backwards", "mirrored(word)", "word == word[::-1]", ("word == word[1:]", "word != word[::-1]"), _WORDS),
    _Function("give the larger of two numbers", "larger(a, b)", "max(a, b)", ("min(a, b)", "a"), _PAIRS),
    _Function("give the distance of two numbers", "distance(a, b)", "abs(a - b)", ("a - b", "abs(a + b)"), _PAIRS),
)  # fmt: skip


def _questions() -> list[Question]:
    rows = []
    for f in _FUNCTIONS:
        for k, faulty in product(range(2, 30) if "{k}" in f.what else (0,), f.faulty):
            what, right, wrong = (text.replace("{k}", str(k)) for text in (f.what, f.right, faulty))
            name, start = f.head.partition("(")[0], f"def {f.head}:\n    return"
            functions = [eval(f"lambda {f.head.partition('(')[2].rstrip(')')}: {body}") for body in (right, wrong)]
            results = [[function(*given) for function in functions] for given in f.arguments]
            shown = next((i for i, (good, bad) in enumerate(results) if good != bad), None)
            constant = all(good == results[0][0] for good, _ in results)
            if shown is None or constant:  # for this k nothing is wrong, or one value is always right
                continue
            call = f"{name}({', '.join(map(repr, f.arguments[shown]))})"
            tests = [(given, good) for given, (good, _) in zip(f.arguments, results, strict=True)]
            rows.append(
                Question(
                    f"This Python function should {what}, but {call} gives {results[shown][1]!r}:\n\n"
                    f"{start} {wrong}\n\nWrite it without the fault.",
                    start,
                    answer_of(f"{start} {right}", tests),
                )
            )
    return rows


FAMILIES = [counted("repair", "hard", "code", float("nan"), _questions(), max_tokens=32)]
