"""One process with one verifier in it, and how a function gets there.

It is a plain interpreter and not one of multiprocessing's: "spawn" runs the caller's script again, "fork" copies a
process in which torch's threads hold locks. A function travels by name where its module can be imported and by value
(dill) where it cannot, as with a lambda or a function of a notebook cell.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.tasks.sandbox.worker import LENGTH, SECRET

START_SECONDS = 120.0
_HERE = str(Path(__file__).parent)
_START = "import sys; sys.path.insert(0, sys.argv[1]); from sandbox.worker import main; main()"
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
"""What a sandboxed process is told of the trainer's environment."""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_GRACE = 30.0
"""Seconds beyond a job's limit after which a server that keeps that limit itself is taken for dead."""


class Hang(Exception):
    """No reply in time."""


class Gone(Exception):
    """The process has died."""


def _kill(process: subprocess.Popen, apart: bool) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()
    if apart:  # at the end of its input the server ends what it has under way, wherever that has gone
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # its own session: children of the verifier go with it
    process.wait()


class Worker:
    """One process with one verifier loaded; `ask` is a job and its outcomes.

    sandbox: "full" for a process per job that reads what Python imports from, "stdlib" for one that reads Python's own
    library alone, "none" to judge in this process, with the trainer's environment."""

    def __init__(self, order: Mapping[str, str], memory: int | None, sandbox: str) -> None:
        self.apart = sandbox != "none"
        names = _KEPT if self.apart else tuple(os.environ)
        environment = {name: os.environ[name] for name in names if name in os.environ}
        for name in _ONE_THREAD if self.apart else _ONE_THREAD[:1]:
            environment[name] = os.environ.get(name, "1")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, _HERE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
        self._rest = b""
        self.close = weakref.finalize(self, _kill, self._process, self.apart)
        path = [p or str(Path.cwd()) for p in sys.path] if sandbox != "stdlib" else _stdlib()
        how = {"path": path, "memory": memory, "parent": os.getpid(), "sandbox": sandbox}
        first = self._ask({**order, **how, "patience": int(START_SECONDS)}, START_SECONDS)
        if "failure" in first:
            self.close()
            raise ValueError(first["message"])
        self.takes_row, self.batch, self.lacks = first["row"], first["batch"], tuple(first["lacks"])

    def ask(self, job: Mapping, seconds: float) -> list[dict[str, Any]]:
        """The outcomes of one job; raises Hang after so many seconds and Gone where the process died."""
        return self._ask({**job, "timeout": seconds}, seconds + (_GRACE if self.apart else 0))

    def _ask(self, message: Mapping, seconds: float) -> Any:
        pipe, text = self._process.stdin, json.dumps(message).encode()
        secret = secrets.token_hex(SECRET // 2).encode()
        try:
            pipe.write(b"%0*d" % (LENGTH, len(text)) + text + secret)  # type: ignore[union-attr]
            pipe.flush()  # type: ignore[union-attr]
        except (OSError, ValueError) as error:
            raise Gone from error
        line = self._line(time.monotonic() + seconds)
        if not hmac.compare_digest(line[:SECRET], secret):
            raise Gone("a reply without the secret of its job")
        return json.loads(line[SECRET:])

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


def _stdlib() -> list[str]:
    """Where Python's own library is, and the folder of `sandbox`."""
    import sysconfig

    return [sysconfig.get_path("stdlib"), *(p for p in sys.path if Path(p).name == "lib-dynload"), _HERE]


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
