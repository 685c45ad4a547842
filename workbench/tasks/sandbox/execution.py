"""Execution of a completion that is a Python function: what it returns for some arguments, as text.

Runs in the sandbox, where nothing is known of what it should return.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import CodeType

RESULT_CHARACTERS = 4000


def source_of(completion: str, prefix: str, function: str) -> str:
    """The code of a completion: its last fenced block, or all of it; behind the prefix where that begins the function."""
    if completion.count("```") >= 2:
        completion = completion.split("```")[-2].removeprefix("python")
    if f"def {function}(" not in completion and "def " in prefix:
        completion = prefix[prefix.index("def ") :] + completion
    return completion


def compiled(source: str) -> CodeType:
    """The code as far as it is code: a model goes on in words, or is cut off in the middle of a line."""
    lines = source.splitlines()
    while lines:
        try:
            return compile("\n".join(lines), "completion", "exec")
        except (SyntaxError, ValueError):
            lines.pop()
    raise SyntaxError("no line of the completion is code")


def execute(completion: str, row: Mapping) -> list[str | None]:
    """What the function `row["function"]` of a completion returns for each list of arguments in `row["calls"]`.

    Each as JSON, None where it raises or returns what JSON does not have; empty where there is no such function."""
    space: dict = {"__name__": "completion"}
    exec(compiled(source_of(completion, row["prefix"], row["function"])), space)
    function = space.get(row["function"])
    if not callable(function):
        return []
    found: list[str | None] = []
    for arguments in row["calls"]:
        try:
            text = json.dumps(function(*arguments), allow_nan=False)
            found.append(text if len(text) <= RESULT_CHARACTERS else None)
        except Exception:
            found.append(None)
    return found
