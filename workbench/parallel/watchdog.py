"""Watchdog over the processes of one run: where one fails, those that wait for it end too.

A failure is reported in the rendezvous store. A process that waits for the failed one in vain cannot know by itself, so a
thread of its own looks into the store, and ends the process where it has not ended meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

GRACE = 10.0
"""Seconds that a process has to end by itself once another one has failed."""

_FAILED = "failed"


class ProcessError(RuntimeError):
    """Another process of this run has failed, or has gone."""


class Watch:
    """A thread that looks every `every` seconds whether another process has failed; where this one has not ended `grace`
    seconds later, its callbacks are called, the last one first, and it is ended. store: the rendezvous store."""

    def __init__(
        self,
        store: Any,
        rank: int,
        *,
        grace: float = GRACE,
        every: float = 0.5,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._store, self._rank, self._grace, self._every, self._end = store, rank, grace, every, end
        self.callbacks: list[Callable[[BaseException], object]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="other processes", daemon=True)
        self._thread.start()

    def report(self, error: BaseException) -> None:
        """This process fails."""
        report = {"rank": self._rank, "kind": type(error).__name__, "why": str(error)}
        with suppress(Exception):  # who keeps the store is gone: then all will know
            self._store.compare_set(_FAILED, "", json.dumps(report))

    def failure(self) -> BaseException | None:
        """What another process failed of; None where none has, or this one was the first to."""
        if not self._store.check([_FAILED]):
            return None
        report = json.loads(self._store.get(_FAILED))
        if report["rank"] == self._rank:
            return None
        if report["kind"] == KeyboardInterrupt.__name__:
            return KeyboardInterrupt(f"process {report['rank']} was interrupted")
        return ProcessError(f"process {report['rank']} failed: {report['kind']}: {report['why']}")

    def _look(self) -> None:
        failure: BaseException | None = None
        while failure is None:
            if self._over.wait(self._every):
                return
            try:
                failure = self.failure()
            except Exception as error:
                failure = ProcessError(f"the rendezvous store of the processes has gone ({error})")
        if self._over.wait(self._grace):
            return
        print(f"workbench: process {self._rank} ends: {failure}", file=sys.stderr, flush=True)
        for callback in reversed(self.callbacks):
            with suppress(Exception):
                callback(failure)
        self._end(1)

    def end(self) -> None:
        """Look no more. Waits for a look that is under way: a thread that comes back from the store while the interpreter
        ends aborts its process."""
        self._over.set()
        self._thread.join()
