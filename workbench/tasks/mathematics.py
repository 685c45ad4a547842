"""Mathematical answers through math-verify: fractions, LaTeX, intervals, sets, matrices, expressions of equal value.

A reference answer is read whole, as what a \\boxed{} would hold, whether or not it has dollar signs; a part of it is
never taken for it. Single numbers are read by `values`, which knows 1\\,000, 2 1/2 and 1e-5; the rest by math-verify.

Runs in the verifier's own process: math-verify builds sympy expressions, which can take any time. Its own limits
(an alarm signal, after which an answer counts as wrong) are off; the worker's limit gives a null reward instead.
It parses LaTeX into expressions and evaluates no Python.
"""

from __future__ import annotations

import logging
import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from workbench.tasks import values
from workbench.tasks.verifiers import LOOK, PARTS, WEIGHTS, near

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its limits are off

_WRAPPED = re.compile(r"\\(?:text|textrm|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_WORDS = re.compile(r"\(?([A-Za-z][A-Za-z' -]*)\)?")
_SEVERAL_WORDS = re.compile(r"\(?([A-Za-z][A-Za-z0-9' ,-]*)\)?")
_LAYOUT = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;:! ]|\s|\.$")
_UNITS = re.compile(r"\\(?:text|textrm|mathrm|mbox)\s*\{[^{}]*\}\s*(?:\^\s*\{?[0-9]+\}?)?")
_INEXACT = re.compile(
    r"['\"]|\b(?:hundred|thousand|million|billion|trillion|dozen)s?\b|[0-9]\s*(?:\\text\s*\{)?\s*[ap]\.?m\b"
)
_PLAIN = re.compile(r"\\[A-Za-z]+|[A-Za-z]{2,}")
_SAYS = re.compile(r"\b(?:is|are|be|equals?|gives?)\b|[=:](?=\s)")
_GROUPED = re.compile(r"(?<=[0-9])(?:\\[,!;: ]|,\\!|\{,\})+(?=[0-9]{3}(?![0-9]))")
_REPEATING = re.compile(r"([0-9]*)\.([0-9]*)\\overline\s*\{([0-9]+)\}")
_DIGITS = re.compile(r"[0-9]+")
_SPAN = re.compile(r"(?<!\\)\$+([^$]+?)(?<!\\)\$+|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_APART = re.compile(r"(?<![_^0-9])[0-9]+\s+[0-9]")


LONGEST = 1000
"""Characters of an answer that is read; one that stands in a box is seldom longer than 200."""


class _Answer(NamedTuple):
    """What was read: a number where it is one, words where it is words or can be compared as text alone, and
    math-verify's list of readings."""

    number: values.Number | None
    words: str | None
    parsed: list
    text: str = ""  # of a number, which is parsed only where it is compared with an expression


def _repeated(match: re.Match[str]) -> str:
    whole, fixed, period = match.groups()
    value = Fraction(
        int((whole or "0") + fixed + period) - int((whole or "0") + fixed or 0),
        10 ** len(fixed) * (10 ** len(period) - 1),
    )
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def _clean(text: str) -> str:
    return _GROUPED.sub("", _REPEATING.sub(_repeated, text))


def _boxed(text: str) -> _Answer:
    """A text that is an answer and nothing else."""
    unwrapped = _WRAPPED.sub(r"\1", text)
    words = (_SEVERAL_WORDS if _WRAPPED.fullmatch(text.strip()) else _WORDS).fullmatch(unwrapped.strip().rstrip("."))
    if words is not None:
        return _Answer(None, " ".join(words[1].casefold().replace(",", " , ").split()), [])
    number = values.whole(text)
    if number is None and _APART.search(text):  # 1 000 would be read as 1 times 0
        return _Answer(None, None, [])
    if number is not None:
        return _Answer(number, None, [], text)
    parsed = _latex(text)
    if not parsed or isinstance(parsed[0], str):  # \{x \mid x > 2\}: nothing but its text can be compared
        literal = _LAYOUT.sub("", text)
        return _Answer(
            None, literal if 0 < len(literal) <= LONGEST and re.search(r"[A-Za-z0-9]", literal) else None, []
        )
    return _Answer(None, None, parsed)


def _latex(text: str) -> list:
    """math-verify's readings of an answer, as LaTeX alone: the plain expressions it else looks for are parts of it."""
    from math_verify import LatexExtractionConfig, parse

    if len(text) > LONGEST or text.count("{") != text.count("}"):
        return []
    return parse(f"\\boxed{{{text}}}", [LatexExtractionConfig()], parsing_timeout=0)


@lru_cache(maxsize=4096)
def _gold(answer: str) -> _Answer:
    held = values.marked(answer)
    text = _clean(answer if held is None else held).strip()
    spans = [] if held is not None else _spans(text)
    if (spans and _DIGITS.search(_UNITS.sub("", _SPAN.sub("", text)))) or len(spans) > 1:
        raise ValueError(f"{answer[:80]!r} holds more than one answer; give it alone, or in one \\boxed{{}}")
    text = spans[0] if spans else text
    gold = _boxed(text)
    if gold.number is not None or gold.words is not None:
        return gold
    if not gold.parsed or isinstance(gold.parsed[0], str):
        raise ValueError(f"math-verify finds no mathematical answer in {answer[:80]!r}")
    shown = str(gold.parsed[-1])
    digits = ["".join(sorted("".join(_DIGITS.findall(t)))) for t in (shown, _UNITS.sub("", text))]
    words = [w.strip() for w in _WRAPPED.findall(text)]
    if _INEXACT.search(text) or digits[0] != digits[1] or any(w and w in shown for w in words):
        raise ValueError(f"math-verify reads {answer[:80]!r} as {shown[:80]!r}; write it as one value")
    return gold


def _spans(text: str) -> list[str]:
    return [next(filter(None, found)) for found in _SPAN.findall(text)]


def _given(completion: str) -> _Answer:
    """The answer of a completion: of its last box or ####, else between its dollar signs, else of its last line."""
    from math_verify import parse

    text = _clean(completion[-LOOK:])
    held = values.marked(text)
    if held is not None and text.count("\\boxed") < 2:
        return _boxed(held)
    spans = _spans(text)
    if held is None and len(spans) == 1:
        return _boxed(spans[0])
    if held is not None or spans:
        parsed = parse(text, parsing_timeout=0)
        shown = str(parsed[-1]) if parsed else ""
        return _boxed(shown) if len(parsed) == 2 and values.whole(shown) is not None else _Answer(None, None, parsed)
    line = next((x.strip() for x in reversed(text.split("\n")) if x.strip()), "").rstrip(".")
    if not _wordless(line) and values.whole(line) is None:
        line = _SAYS.split(line)[-1].strip()
    if "\\" in line or _wordless(line) or _WORDS.fullmatch(line) or values.whole(line) is not None:
        return _boxed(line)
    return _Answer(values.answer(text), None, [])


def _wordless(line: str) -> bool:
    return all(word.startswith("\\") for word in _PLAIN.findall(_WRAPPED.sub("", line)))


def _same(gold: _Answer, got: _Answer) -> bool:
    from math_verify import verify as equal

    if gold.words is not None or got.words is not None:
        return gold.words == got.words
    if gold.number is not None and got.number is not None:
        a, b = gold.number, got.number
        scaled = 100 * b.value if b.percent and not a.percent else b.value
        return _near_enough(a.value, b.value) or _near_enough(a.value, scaled)
    a, b = (x.parsed or (_latex(x.text) if x.text else []) for x in (gold, got))
    return bool(a and b) and bool(equal(a, b, timeout_seconds=0))


def _near_enough(gold: Fraction | float, got: Fraction | float) -> bool:
    """Beside a whole number as `values.equal`, else to six digits, as math-verify does."""
    whole = isinstance(gold, Fraction) and gold.denominator == 1
    return values.equal(gold, got) if whole else math.isclose(values.size(gold), values.size(got), rel_tol=2e-6)


def _shown(got: _Answer) -> str | None:
    """The answer, spelled alike where it is of equal value."""
    if got.words is not None:
        return got.words
    if got.number is not None:
        return values.spelled(got.number.value)
    if not got.parsed:
        return None
    from sympy import Expr

    first = got.parsed[0]
    return str(first.expand() if isinstance(first, Expr) else first)


def verify(completion: str, answer: str) -> dict[str, object]:
    """format: something mathematical was found; closeness: of numbers, else exactness; exactness: of equal value."""
    gold, got = _gold(answer), _given(completion)
    if got.words is not None and gold.words is None:  # "who knows" is no mathematical answer
        got = _Answer(None, None, [])
    found = got.number is not None or got.words is not None or bool(got.parsed)
    exactness = float(_same(gold, got))
    closeness = exactness
    if not exactness and gold.number is not None and got.number is not None:
        value, target = (np.array([values.size(n.value)]) for n in (got.number, gold.number))
        closeness = float(near(value, target)[0])
    parts = dict(zip(PARTS, (float(found), closeness, exactness), strict=True))
    reward = sum(WEIGHTS[name] * value for name, value in parts.items())
    return {"reward": reward, "correct": exactness, "answer": _shown(got), **parts}
