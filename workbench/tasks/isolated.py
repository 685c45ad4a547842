"""Verifiers that are not ours run in a process of their own, with a time limit for each completion.

A verifier that raises, hangs, dies or returns nonsense costs one null reward and never the run. One worker serves
a task; it is killed and started again after a hang. It is a plain interpreter and not one of multiprocessing's:
"spawn" runs the caller's script again, "fork" copies a process in which torch's threads hold locks. A function
travels by name where its module can be imported and by value (dill) where it cannot, as with a lambda or a function
of a notebook cell.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from workbench.tasks.verifiers import REWARDS, Verdicts
from workbench.types import Pool

START_SECONDS = 120.0
PATIENCE = 10
"""Hangs in one call after which the rest of its completions are given up as timed out."""

_SCRIPT = Path(__file__).with_name("worker.py")


class _Hang(Exception):
    pass


class _Gone(Exception):
    pass


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # its own session: children of the verifier go with it
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()


class Worker:
    """One process with one verifier loaded; `ask` is a question and its answer."""

    def __init__(self, order: Mapping[str, str], memory: int | None) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        self._process = subprocess.Popen(
            [sys.executable, str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
        self._rest = b""
        self.close = weakref.finalize(self, _kill, self._process)
        first = self.ask({**order, "path": sys.path, "memory": memory, "parent": os.getpid()}, START_SECONDS)
        if "error" in first:
            self.close()
            raise ValueError(first["error"])
        self.with_row = bool(first["ready"])

    def ask(self, message: Mapping, seconds: float) -> dict:
        """The reply to one message; raises _Hang after so many seconds and _Gone where the process died."""
        pipe = self._process.stdin
        try:
            pipe.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]
            pipe.flush()  # type: ignore[union-attr]
        except OSError as error:
            raise _Gone from error
        return json.loads(self._line(time.monotonic() + seconds))

    def _line(self, deadline: float) -> bytes:
        fd = self._process.stdout.fileno()  # type: ignore[union-attr]
        with selectors.DefaultSelector() as ready:
            ready.register(fd, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    raise _Hang
                chunk = os.read(fd, 1 << 16)
                if not chunk:
                    raise _Gone
                self._rest += chunk
        line, self._rest = self._rest.split(b"\n", 1)
        return line


def _order(verify: Callable | str) -> dict[str, str]:
    if isinstance(verify, str):
        module, colon, name = verify.partition(":")
        if not (module and colon and name):
            raise ValueError(f"verifier {verify!r} is neither a built-in one nor written as 'package.module:function'")
        return {"import": verify}
    if not callable(verify):
        raise TypeError(f"a verifier is a name or a function; {type(verify).__name__} was given")
    import dill

    try:
        return {"pickle": base64.b64encode(dill.dumps(verify, recurse=True)).decode()}
    except Exception as error:  # dill raises what the object's own pickling raises
        raise ValueError(
            f"{verify!r} cannot be sent to its process ({type(error).__name__}: {error}); "
            "put it into a module and give 'package.module:function'"
        ) from error


class Isolated:
    """A researcher's verifier, `verify(completion, answer)` or `verify(completion, answer, row)`.

    It returns a bool, a number, or a mapping with "reward" and, if it likes, "correct" (0 or 1), "answer" (text) and
    further named parts; row is a mapping with id, text, prefix, stratum and messages. Without "correct" a reward of
    at least 1 counts as correct. parts: the names of the parts it returns, so that every step has the same columns.
    memory: bytes of address space it may use, None for no limit (a verifier that loads CUDA needs None).
    """

    def __init__(
        self,
        verify: Callable | str,
        *,
        timeout: float = 5.0,
        rewards: str = "graded",
        parts: Sequence[str] = (),
        memory: int | None = 8 << 30,
    ) -> None:
        if rewards not in REWARDS:
            raise ValueError(f"rewards={rewards!r}; it is one of {', '.join(REWARDS)}")
        if timeout <= 0:
            raise ValueError(f"timeout={timeout}; a verifier needs some time for a completion")
        self.name = verify if isinstance(verify, str) else getattr(verify, "__qualname__", type(verify).__name__)
        self.timeout, self.rewards, self.parts, self.memory = timeout, rewards, tuple(parts), memory
        self._order = _order(verify)
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return f"Isolated({self.name!r}, timeout={self.timeout})"

    def start(self) -> Isolated:
        """Start the process now, so that a verifier that cannot be loaded is an error at once."""
        with self._lock:
            try:
                self._ready()
            except _Hang:
                raise ValueError(f"verifier {self.name!r} was not loaded in {START_SECONDS:.0f} s") from None
            except _Gone:
                raise ValueError(f"the process of verifier {self.name!r} ended while it was loaded") from None
            except ValueError as error:
                raise ValueError(f"verifier {self.name!r} cannot be loaded: {error}") from None
        return self

    def close(self) -> None:
        """End the process; the next call starts it again."""
        with self._lock:
            self._drop()

    def __call__(self, text: Sequence[str], pool: Pool, rows: np.ndarray) -> Verdicts:
        """Verdicts on R completions of the pool's rows, one by one."""
        with self._lock:
            outcomes, hangs = [], 0
            for completion, row in zip(text, rows, strict=True):
                if hangs >= PATIENCE:
                    outcome = {"failure": "verifier_timeout", "message": f"given up after {hangs} hangs in one call"}
                else:
                    outcome = self._judge(completion, pool, int(row))
                    hangs += outcome.get("failure") == "verifier_timeout"
                if "failure" in outcome:
                    self._warn(str(outcome["message"]))
                outcomes.append(outcome)
        return self._table(outcomes)

    def _ready(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self._order, self.memory)
        return self._worker

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _judge(self, completion: str, pool: Pool, row: int) -> dict:
        try:
            worker = self._ready()
        except (_Hang, _Gone, ValueError, OSError) as error:
            return {"failure": "verifier", "message": f"could not be started again: {error or type(error).__name__}"}
        job: dict[str, object] = {
            "completion": completion,
            "answer": pool.answer[row],
            "timeout": self.timeout,
            "with_row": worker.with_row,
            "row": None,
        }
        if worker.with_row:
            job["row"] = {
                "id": pool.ids[row],
                "text": pool.text[row],
                "prefix": pool.prefix[row],
                "stratum": pool.stratum[row],
                "messages": pool.extra["messages"][row] if "messages" in pool.extra else "",
            }
        try:
            return worker.ask(job, self.timeout)
        except _Hang:
            self._drop()
            return {"failure": "verifier_timeout", "message": f"no verdict within {self.timeout} s"}
        except (_Gone, ValueError):
            self._drop()
            return {"failure": "verifier", "message": "the process ended without a verdict"}
        except BaseException:  # interrupted: a verdict that comes later must not be taken for the next one's
            self._drop()
            raise

    def _table(self, outcomes: list[dict]) -> Verdicts:
        def column(name: str) -> np.ndarray:
            return np.array([o.get(name, np.nan) for o in outcomes], float)

        reward, correct = column("reward"), column("correct")
        if self.parts:
            found = [o.get("parts", {}) for o in outcomes]
            parts = {n: np.array([p.get(n, np.nan) for p in found], float) for n in self.parts}
            extra = sorted({n for p in found for n in p} - set(self.parts))
            if extra:
                self._warn(f"parts {', '.join(extra)} are not kept; name them in parts=")
        else:
            parts = {"score": reward}
        answer, failure = (np.full(len(outcomes), None, dtype=object) for _ in range(2))
        answer[:] = [o.get("answer") for o in outcomes]
        failure[:] = [o.get("failure", "") for o in outcomes]
        return Verdicts(answer, correct.copy() if self.rewards == "binary" else reward, correct, parts, failure)

    def _warn(self, message: str) -> None:
        if message not in self._warned and len(self._warned) < 20:
            self._warned.add(message)
            warnings.warn(f"verifier {self.name}: {message}", RuntimeWarning, stacklevel=2)
