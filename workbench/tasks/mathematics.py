"""Mathematical answers through math-verify: fractions, LaTeX, sets, expressions of equal value.

Runs in the verifier's own process: math-verify builds sympy expressions, which can take any time. Its own limits
(an alarm signal, after which an answer counts as wrong) are off; the worker's limit gives a null reward instead.
It parses LaTeX into expressions and evaluates no Python.
"""

from __future__ import annotations

import logging
from functools import lru_cache

from workbench.tasks.verifiers import LOOK, PARTS, WEIGHTS

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its limits are off


@lru_cache(maxsize=4096)
def _gold(answer: str) -> list:
    from math_verify import parse

    gold = parse(answer, parsing_timeout=0) or parse(f"${answer}$", parsing_timeout=0)
    if not gold:
        raise ValueError(f"math-verify finds no mathematical answer in {answer[:80]!r}")
    return gold


def _nearness(gold: list, got: list) -> float:
    try:
        off = abs(float(got[0]) - float(gold[0])) / (1 + abs(float(gold[0])) / 10)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return 0.0  # not both numbers
    return max(0.0, 1 - off) if off == off else 0.0


def verify(completion: str, answer: str) -> dict[str, object]:
    """format: something mathematical was found; closeness: of numbers, else exactness; exactness: of equal value."""
    from math_verify import parse
    from math_verify import verify as equal

    gold = _gold(answer)
    got = parse(completion[-LOOK:], parsing_timeout=0)
    exactness = float(bool(got) and bool(equal(gold, got, timeout_seconds=0)))
    closeness = max(exactness, _nearness(gold, got)) if got else 0.0
    parts = dict(zip(PARTS, (float(bool(got)), closeness, exactness), strict=True))
    reward = sum(WEIGHTS[name] * value for name, value in parts.items())
    return {"reward": reward, "correct": exactness, "answer": str(got[-1]) if got else None, **parts}
