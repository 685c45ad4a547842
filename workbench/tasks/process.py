"""One process with one verifier in it, and how a function gets there.

It is a plain interpreter and not one of multiprocessing's: "spawn" runs the caller's script again, "fork" copies a
process in which torch's threads hold locks. A function travels by name where its module can be imported and by value
(dill) where it cannot, as with a lambda or a function of a notebook cell.
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
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

START_SECONDS = 120.0
_SCRIPT = Path(__file__).with_name("worker.py")


class Hang(Exception):
    """No reply in time."""


class Gone(Exception):
    """The process has died."""


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
        """The reply to one message; raises Hang after so many seconds and Gone where the process died."""
        pipe = self._process.stdin
        try:
            pipe.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]
            pipe.flush()  # type: ignore[union-attr]
        except OSError as error:
            raise Gone from error
        return json.loads(self._line(time.monotonic() + seconds))

    def _line(self, deadline: float) -> bytes:
        fd = self._process.stdout.fileno()  # type: ignore[union-attr]
        with selectors.DefaultSelector() as ready:
            ready.register(fd, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    raise Hang
                chunk = os.read(fd, 1 << 16)
                if not chunk:
                    raise Gone
                self._rest += chunk
        line, self._rest = self._rest.split(b"\n", 1)
        return line


def order_of(verify: Callable | str) -> dict[str, str]:
    """What tells a process which verifier to load: by name, or by value."""
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
