"""Processes that answer the statements of readers, so that no statement takes the dashboard with it.

One is kept warm for a store; one that reaches a limit is killed with what it spilled, and another started. Nothing secret
is in its arguments: the store's URL goes through its input.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

from workbench.store.errors import StoreError
from workbench.store.reader import MEMORY

MOST = 4
"""Statements on one store that run at once; further ones wait their turn."""

START = 120.0
"""Seconds in which a process must have opened its store."""

_LOOK = 0.05
"""Seconds between two looks whether a statement was cancelled."""


class Limits(NamedTuple):
    """Of one statement. seconds: by the clock, with twice as many of processors (it has two threads). memory: bytes of
    address space beyond those of a process that has opened the store."""

    seconds: float = 20.0
    memory: int = 1 << 30


LIMITS = Limits()


class Cancelled(StoreError):
    """A statement that its reader gave up."""


class _Gone(Exception):
    """The process ended without an answer."""


class _Late(Exception):
    """The time is over."""


def _kill(process: subprocess.Popen, spill: tempfile.TemporaryDirectory) -> None:
    with suppress(ProcessLookupError, PermissionError):
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(OSError):
                pipe.close()
    spill.cleanup()


class Worker:
    """One process with the store open; it answers one statement at a time. `close` kills it."""

    def __init__(self, url: str, memory: int) -> None:
        spill = tempfile.TemporaryDirectory(prefix="workbench-sql-", ignore_cleanup_errors=True)
        # one arena: those of idle threads are addresses too
        environment = {**os.environ, "TMPDIR": spill.name, "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.sql_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._rest = b""
        self.close = weakref.finalize(self, _kill, self.process, spill)
        self._order = {"url": url, "memory": memory, "parent": os.getpid()}
        self._ready = False

    def ask(
        self, job: Mapping[str, Any], limits: Limits, cancelled: threading.Event
    ) -> tuple[pa.Table | None, dict[str, Any]]:
        """The answer's table (None for an error) and what was said of it. Raises _Gone, _Late or Cancelled, after which
        the worker is of no use."""
        if not self._ready:
            head = self._exchange(self._order, START, cancelled)[1]
            if "error" in head:
                self.close()
                raise StoreError(head["error"])
            self._ready = True
        return self._exchange({**job, "processor": 2 * limits.seconds + 1}, limits.seconds, cancelled)

    def _exchange(
        self, message: Mapping[str, Any], seconds: float, cancelled: threading.Event
    ) -> tuple[pa.Table | None, dict[str, Any]]:
        deadline = time.monotonic() + seconds
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]
        except OSError as error:
            raise _Gone from error
        while b"\n" not in self._rest:
            self._read(deadline, cancelled)
        line, self._rest = self._rest.split(b"\n", 1)
        head = json.loads(line)
        while len(self._rest) < head["bytes"]:
            self._read(deadline, cancelled)
        body, self._rest = self._rest[: head["bytes"]], self._rest[head["bytes"] :]
        return pa.ipc.open_stream(body).read_all() if body else None, head

    def _read(self, deadline: float, cancelled: threading.Event) -> None:
        fd = self.process.stdout.fileno()  # type: ignore[union-attr]
        with selectors.DefaultSelector() as ready:
            ready.register(fd, selectors.EVENT_READ)
            while not ready.select(_LOOK):
                if cancelled.is_set():
                    raise Cancelled("cancelled")
                if time.monotonic() > deadline:
                    raise _Late
        chunk = os.read(fd, 1 << 20)
        if not chunk:
            raise _Gone
        self._rest += chunk


class Workers:
    """The processes of one store: at most one waits for a statement, at most MOST answer one."""

    def __init__(self, url: str, limits: Limits = LIMITS) -> None:
        self._url, self.limits = url, limits
        self._lock = threading.Lock()
        self._idle: Worker | None = None
        self._seats = threading.Semaphore(MOST)

    def warm(self) -> None:
        """Have a process ready, so that the next statement does not wait for it; returns at once."""
        with self._lock:
            if self._idle is None or self._idle.process.poll() is not None:
                self._idle = Worker(self._url, self.limits.memory)

    def ask(self, job: Mapping[str, Any], cancelled: threading.Event | None = None) -> tuple[pa.Table, float]:
        """The table that answers a job and the seconds that it took; whatever is over the limits is killed and is an error
        that says so: TimeoutError, StoreError, Cancelled."""
        stop, limits = cancelled or threading.Event(), self.limits
        while not self._seats.acquire(timeout=_LOOK):
            if stop.is_set():
                raise Cancelled("cancelled before its turn came")
        try:
            for fresh in (False, True):
                worker = self._taken()
                try:
                    table, head = worker.ask(job, limits, stop)
                except _Gone:
                    died = _cause(worker, limits)
                    if died is None and not fresh:  # it had left after a long rest
                        continue
                    raise died or StoreError("the process of the statement ended without an answer") from None
                except _Late:
                    worker.close()
                    raise TimeoutError(f"given up after {limits.seconds:g} s; ask for fewer steps or rows") from None
                except BaseException:
                    worker.close()
                    raise
                if "memory" in head:
                    worker.close()
                    raise _too_large(limits)
                self._back(worker)
                if table is None:
                    raise StoreError(head["error"])
                return table, head["seconds"]
            raise AssertionError("a second process gives an answer or an error")
        finally:
            self._seats.release()
            self.warm()

    def close(self) -> None:
        """End the process that waits."""
        with self._lock:
            idle, self._idle = self._idle, None
        if idle is not None:
            idle.close()

    def _taken(self) -> Worker:
        with self._lock:
            worker, self._idle = self._idle, None
        return worker or Worker(self._url, self.limits.memory)

    def _back(self, worker: Worker) -> None:
        with self._lock:
            spare, self._idle = self._idle, worker
        if spare is not None:
            spare.close()


def _cause(worker: Worker, limits: Limits) -> Exception | None:
    """What ended a worker; None where it went of its own accord."""
    code = worker.process.wait()
    worker.close()
    if code == 0:
        return None
    if code == -getattr(signal, "SIGXCPU", 0):
        return TimeoutError(f"given up after {2 * limits.seconds:g} s of processors; ask for fewer steps or rows")
    return _too_large(limits)


def _too_large(limits: Limits) -> StoreError:
    return StoreError(
        f"given up, it takes too much memory (DuckDB has {MEMORY}, its process {limits.memory >> 20:,} MiB in all); ask for "
        "fewer rows, or for the beginning of texts"
    )
