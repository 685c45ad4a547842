"""Verifier of code: a completion that is a Python function, held against tests of what it returns.

The function runs in the sandbox with the arguments of its tests; what it should return stays in this process, where
the results are compared. So a completion wins nothing by what it does to its own process: it has to know the results.

An answer is a solution, and its tests in the last line: `# tests: [[[2, 3], 5], [[0, 0], 0]]`, a list of arguments and
what is to be returned for each, as JSON. So written, an answer is a completion that is right.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from workbench.tasks.isolated import Isolated
from workbench.tasks.verifiers import PARTS, WEIGHTS

MARK = "# tests: "
_FUNCTION = re.compile(r"^def ([A-Za-z_]\w*)\(", re.MULTILINE)


def answer_of(solution: str, tests: Sequence[tuple[Sequence[object], object]]) -> str:
    """The answer of a prompt: a solution that defines one function or more, and tests of the last one."""
    return f"{solution.rstrip()}\n{MARK}{json.dumps(tests)}"


@lru_cache(maxsize=4096)
def _read(answer: str) -> tuple[str, list[Any], list[Any]]:
    """Name of the function, arguments of each test, and what is expected of each."""
    solution, _, tests = answer.rpartition(f"\n{MARK}")
    names = _FUNCTION.findall(solution)
    if not names:
        raise ValueError(
            f"an answer of the code verifier is a function and a last line {MARK}[[[arguments], result], ...], not {answer[:80]!r}"
        )
    cases = json.loads(tests)
    return names[-1], [case[0] for case in cases], [case[1] for case in cases]


def same(got: object, expected: object) -> bool:
    """Whether two values of JSON are equal: 1 is not True, and numbers may differ by 1e-9 of their size."""
    if isinstance(expected, list) and isinstance(got, list):
        return len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, dict) and isinstance(got, dict):
        return got.keys() == expected.keys() and all(same(got[key], expected[key]) for key in expected)
    numbers = [isinstance(v, (int, float)) and not isinstance(v, bool) for v in (got, expected)]
    if all(numbers) and float in (type(got), type(expected)):
        return math.isclose(got, expected, rel_tol=1e-9)  # type: ignore[arg-type]
    return type(got) is type(expected) and got == expected


def _passed(text: object, expected: object) -> bool:
    try:
        return isinstance(text, str) and same(json.loads(text), expected)
    except (ValueError, RecursionError, OverflowError):  # whatever a completion wrote
        return False


class Tests:
    """Decides on the results of a function; see `isolated.Judge`."""

    def question(self, answer: str) -> Mapping[str, Any]:
        """What the sandbox is told: which function is called with what."""
        name, calls, _ = _read(answer)
        return {"function": name, "calls": calls}

    def verdict(self, result: str | None, answer: str) -> Mapping[str, Any]:
        """format: there is such a function, and it came to an end; closeness: share of the tests it passes; exactness: all."""
        _, _, expected = _read(answer)
        try:
            found = json.loads(result or "[]")
        except (ValueError, RecursionError):
            found = []
        there = isinstance(found, list) and len(found) == len(expected)
        passed = [_passed(text, e) for text, e in zip(found, expected, strict=True)] if there else [False]
        share = sum(passed) / len(passed)
        parts = dict(zip(PARTS, (float(there), share, float(all(passed))), strict=True))
        told = f"{sum(passed)} of {len(expected)} tests passed" if there else None
        return {
            "reward": sum(WEIGHTS[n] * v for n, v in parts.items()),
            "correct": all(passed),
            "answer": told,
            **parts,
        }


def verifier(*, timeout: float = 2.0, rewards: str = "graded", memory: int | None = 1 << 30) -> Isolated:
    """The verifier of code, for rows whose answer is of the form above. timeout: seconds for all tests of a completion."""
    execute = "sandbox.execution:execute"
    made = Isolated(execute, timeout=timeout, rewards=rewards, parts=PARTS, memory=memory, judge=Tests())
    made.name = "code"
    return made
