"""The process in which a verifier that is not ours runs: jobs come in as JSON lines, verdicts go out as JSON lines.

Started as a script by `process`, with nothing imported but the standard library, so that it is up in some 30 ms.
The only thing unpickled here is the verifier that the researcher gave; what it is shown is text.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import inspect
import json
import math
import numbers
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

ANSWER_CHARACTERS = 400

FULL = 1 - 1e-9
"""A reward that counts as full: 0.7 + 0.2 + 0.1 is a little less than 1 in floating point."""


class NotANumber(ValueError):
    """A reward that is NaN or infinite."""


def load(order: Mapping[str, str]) -> Callable:
    """The verifier of an order: {"import": "package.module:function", or "/path/file.py:function"} or {"pickle": base64}."""
    if "import" not in order:
        return pickle.loads(base64.b64decode(order["pickle"]))
    module, _, path = order["import"].partition(":")
    if module.endswith(".py"):
        folder, _, file = module.rpartition("/")
        sys.path.insert(0, folder)
        module = file.removesuffix(".py")
    thing = importlib.import_module(module)
    for name in path.split("."):
        thing = getattr(thing, name)
    return thing  # type: ignore[return-value]


def _real(value: Any, what: str) -> float:
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # numpy and torch scalars
        value = value.item()
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{what} is {type(value).__name__}, not a number")
    if not math.isfinite(value):
        raise NotANumber(f"{what} is {float(value)}")
    return float(value)


def _part(value: Any, what: str) -> float:
    """A part of a reward; NaN where it is null: it does not apply to this completion."""
    try:
        return math.nan if value is None else _real(value, what)
    except NotANumber:
        if math.isinf(value):  # type: ignore[arg-type]
            raise
        return math.nan


def verdict(result: object) -> dict[str, object]:
    """What a verifier returned, as reward, correct, answer and parts; raises where it is no verdict."""
    given = dict(result) if isinstance(result, Mapping) else {"reward": result}
    if "reward" not in given:
        raise TypeError(f"the verifier returned a mapping with {sorted(map(str, given))} and no 'reward'")
    reward = _real(given.pop("reward"), "reward")
    correct = _real(given.pop("correct", reward >= FULL), "correct")
    if correct not in (0, 1):
        raise TypeError(f"correct is {correct}, not 0 or 1")
    answer = given.pop("answer", None)
    parts = {str(name): _part(value, str(name)) for name, value in given.items()}
    answer = None if answer is None else str(answer)[:ANSWER_CHARACTERS]
    return {"reward": reward, "correct": correct, "answer": answer, "parts": parts}


def judge(verify: Callable, job: Mapping) -> dict[str, object]:
    """The verdict on one completion, or what went wrong."""
    row = {"row": job["row"]} if job["with_row"] else {}
    try:
        result = verify(job["completion"], job["answer"], **row)
    except MemoryError as error:
        return _failed("verifier_memory", error)
    except BaseException as error:  # a verifier that calls sys.exit has failed, no more
        return _failed("verifier_raised", error)
    try:
        return verdict(result)
    except NotANumber as error:
        return {"failure": "verifier_nan", "message": str(error)}
    except Exception as error:  # what it returned may be of any type, and do anything when it is looked at
        return _failed("verifier_invalid", error)


def _failed(kind: str, error: BaseException) -> dict[str, object]:
    try:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except Exception:  # an error that cannot be printed
        text = type(error).__name__
    return {"failure": kind, "message": text[:500].encode("utf-8", "replace").decode("utf-8")}


def _leave_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _limit_memory(size: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def main() -> None:
    """Read the order, load the verifier, then answer jobs until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    jobs = os.fdopen(os.dup(0))
    os.dup2(2, 1)  # what a verifier prints goes to stderr and not between the replies
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def reply(message: Mapping) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    order = json.loads(jobs.readline())
    sys.path[:] = order["path"]
    threading.Thread(target=_leave_with_parent, args=(order["parent"],), daemon=True).start()
    if order["memory"]:
        with contextlib.suppress(ImportError, ValueError):
            _limit_memory(order["memory"])
    try:
        verify = load(order)
        if not callable(verify):
            raise TypeError(f"{type(verify).__name__} is not callable")
        try:
            with_row = "row" in inspect.signature(verify).parameters
        except ValueError:  # a builtin without a signature
            with_row = False
    except BaseException as error:
        reply({"error": f"{type(error).__name__}: {error}"[:500]})
        return
    reply({"ready": with_row})
    for line in jobs:
        job = json.loads(line)
        # a loop in C holds the interpreter and would outlive a killed parent: the kernel ends it by CPU time
        signal.setitimer(signal.ITIMER_PROF, 2 * job["timeout"] + 1)
        outcome = judge(verify, job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        reply(outcome)


if __name__ == "__main__":
    main()
