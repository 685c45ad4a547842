"""The fork server in which a verifier that is not ours is loaded: jobs come in, verdicts go out, JSON both ways.

Started by `process` with nothing imported but the standard library, so that it is up in some 50 ms. In the sandbox each
job is a process of its own, forked after the verifier was loaded; without, the server judges by itself, one job after the
other. The only thing unpickled here is the verifier that the researcher gave; what it is shown is text.

A job is its length in 8 digits, its JSON, and then a secret that its reply must begin with. The secret is read when the
process that judges has been forked, so that nothing that a completion does can find it.
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
from typing import Any, NamedTuple

from .jail import VERDICT_BYTES, Heard, Jail, Unavailable

ANSWER_CHARACTERS = 400

FULL = 1 - 1e-9
"""A reward that counts as full: 0.7 + 0.2 + 0.1 is a little less than 1 in floating point."""

MESSAGE_CHARACTERS = 500
LENGTH, SECRET = 8, 32
"""Bytes in front of a job, and behind it."""


class NotANumber(ValueError):
    """A reward that is NaN or infinite."""


class Call(NamedTuple):
    """How a verifier is called. names: the arguments it takes of those that there are, None for all of them."""

    verify: Callable
    batch: bool
    names: frozenset[str] | None


def load(order: Mapping[str, Any]) -> Callable:
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


def call_of(verify: Callable) -> Call:
    """How a verifier is called: one that names a parameter `completions` gets lists."""
    if not callable(verify):
        raise TypeError(f"{type(verify).__name__} is not callable")
    try:
        parameters = inspect.signature(verify).parameters
    except ValueError:  # a builtin without a signature
        return Call(verify, False, frozenset())
    every = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    batch = "completions" in parameters
    return Call(verify, batch, None if every and batch else frozenset(parameters))


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
    if value is None:
        return math.nan
    try:
        return _real(value, what)
    except NotANumber:
        if math.isinf(value):
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


def checked(result: object) -> dict[str, object]:
    """As `verdict`, and what is wrong with it where it is none."""
    try:
        return verdict(result)
    except NotANumber as error:
        return failed("verifier_nan", str(error))
    except Exception as error:  # what a verifier returned may be of any type, and do anything when it is looked at
        return failed("verifier_invalid", error)


def failed(kind: str, why: BaseException | str) -> dict[str, object]:
    """The outcome of a verifier without a verdict."""
    try:
        text = why if isinstance(why, str) else f"{type(why).__name__}: {why}".removesuffix(": ")
    except Exception:  # an error that cannot be printed
        text = type(why).__name__
    return {"failure": kind, "message": text[:MESSAGE_CHARACTERS].encode("utf-8", "replace").decode("utf-8")}


def _result(call: Call, job: Mapping) -> tuple[object, dict[str, object] | None]:
    """What a verifier returned, or how it failed."""
    names = {name: value for name, value in job["named"].items() if call.names is None or name in call.names}
    try:
        return call.verify(*job["plain"], **names), None
    except MemoryError as error:
        return None, failed("verifier_memory", error)
    except BaseException as error:  # a verifier that calls sys.exit has failed, no more
        return None, failed("verifier_raised", error)


def judge(call: Call, job: Mapping) -> list[dict[str, object]]:
    """The verdicts on the completions of a job, or what went wrong; a result that is judged elsewhere is kept as text."""
    result, failure = _result(call, job)
    if failure is not None:
        return [failure] * job["n"]
    if job["kept"]:
        try:
            return [{"result": json.dumps(result)}]
        except Exception as error:
            return [failed("verifier_invalid", error)]
    if not call.batch:
        return [checked(result)]
    try:
        results = list(result)  # type: ignore[call-overload]
    except Exception as error:
        return [failed("verifier_invalid", error)] * job["n"]
    if len(results) != job["n"]:
        return [failed("verifier_invalid", f"{len(results)} rewards for {job['n']} completions")] * job["n"]
    return [checked(one) for one in results]


def _plain(outcome: object) -> dict[str, object]:
    """An outcome that a judged process has sent, made again of plain values; raises where it is none."""
    if not isinstance(outcome, dict):
        raise TypeError
    if "failure" in outcome:
        return failed(str(outcome["failure"])[:40], str(outcome["message"]))
    if "result" in outcome:
        return {"result": str(outcome["result"])}
    return verdict(
        {"reward": outcome["reward"], "correct": outcome["correct"], "answer": outcome["answer"], **outcome["parts"]}
    )


def _outcomes(heard: Heard, job: Mapping) -> list[dict[str, object]]:
    """What became of a job in a process of its own."""
    if heard.late:
        return [failed("verifier_timeout", f"no verdict within {job['timeout']} s")] * job["n"]
    if heard.verdict is None:
        signalled, code = os.WIFSIGNALED(heard.status), os.waitstatus_to_exitcode(heard.status)
        how = f"signal {-code}" if signalled else f"exit status {code}"
        return [failed("verifier_died", f"the process ended without a verdict ({how})")] * job["n"]
    if len(heard.verdict) > VERDICT_BYTES:
        return [failed("verifier_invalid", f"a verdict of more than {VERDICT_BYTES} bytes")] * job["n"]
    try:
        outcomes = [_plain(one) for one in json.loads(heard.verdict)]
    except Exception:  # what was judged may have written anything, in its own name
        outcomes = []
    if len(outcomes) != job["n"]:
        return [failed("verifier_invalid", "what the process has sent is no verdict")] * job["n"]
    return outcomes


class _Jobs:
    """The pipe that jobs come through."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def read(self, size: int) -> bytes:
        """Exactly so many bytes; the end of the input ends the process."""
        found = b""
        while len(found) < size:
            more = os.read(self.fd, size - len(found))
            if not more:
                raise EOFError
            found += more
        return found

    def job(self) -> dict[str, Any]:
        """The next one, without its secret."""
        return json.loads(self.read(int(self.read(LENGTH))))


def _leave_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _serve_apart(call: Call, jobs: _Jobs, reply: Callable, jail: Jail) -> None:
    """A process for each job."""
    while True:
        job, secret = jobs.job(), b""

        def started() -> None:
            nonlocal secret
            secret = jobs.read(SECRET)

        def work(job: Mapping = job) -> bytes:
            return json.dumps(judge(call, job)).encode() + b"\n"

        try:
            outcomes = _outcomes(jail.run(work, job["timeout"], started), job)
        except Unavailable as error:
            outcomes = [failed("verifier_unavailable", str(error))] * job["n"]
            secret = secret or jobs.read(SECRET)
        reply(outcomes, secret)


def _serve_here(call: Call, jobs: _Jobs, reply: Callable) -> None:
    """All jobs in this process."""
    while True:
        job = jobs.job()
        secret = jobs.read(SECRET)
        # a loop in C holds the interpreter and would outlive a killed parent: the kernel ends it by CPU time
        signal.setitimer(signal.ITIMER_PROF, 2 * job["timeout"] + 1)
        outcomes = judge(call, job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        reply(outcomes, secret)


def _limit_memory(size: int | None) -> None:
    if size:
        with contextlib.suppress(ImportError, ValueError):
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (size, size))


def main() -> None:
    """Read the order, load the verifier, then answer jobs until the input ends."""
    replies, jobs = os.dup(1), _Jobs(os.dup(0))
    os.dup2(2, 1)  # what a verifier prints goes to stderr and not between the replies
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def reply(message: object, secret: bytes) -> None:
        text = secret + json.dumps(message).encode() + b"\n"
        while text:
            text = text[os.write(replies, text) :]

    order = jobs.job()
    secret = jobs.read(SECRET)
    sys.path[:] = order["path"]
    apart = order["sandbox"] != "none"
    if apart:
        signal.alarm(
            order["patience"]
        )  # a trainer that is gone leaves nobody who would end what hangs while it is loaded
    else:
        threading.Thread(target=_leave_with_parent, args=(order["parent"],), daemon=True).start()
        _limit_memory(order["memory"])
    try:
        call = call_of(load(order))
        jail = None
        if apart:
            stdlib = order["sandbox"] == "stdlib"
            jail = Jail(memory=order["memory"], path=sys.path, stdlib=stdlib, mine=(jobs.fd, replies))
    except BaseException as error:
        reply(failed("error", error), secret)
        return
    signal.alarm(0)
    takes_row = call.names is None or "row" in call.names
    reply({"row": takes_row, "batch": call.batch, "lacks": jail.lacks if jail else []}, secret)
    with contextlib.suppress(EOFError), contextlib.ExitStack() as ends:
        if jail is None:
            _serve_here(call, jobs, reply)
        else:
            ends.callback(jail.close)
            _serve_apart(call, jobs, reply, jail)
