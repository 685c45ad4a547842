"""How the processes of one run fail together: each looks whether another one has said that it failed.

It is said in the store that they met in. One that waits for the failed one in vain cannot know by itself, so a thread of
its own looks, and ends the process where it has not ended meanwhile.
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
    """Looks whether another process has failed; where this one has not ended `grace` seconds later, it waits in vain, and is
    ended after its last words. met: the store that all processes met in."""

    def __init__(
        self, met: Any, mine: int, *, grace: float = GRACE, every: float = 0.5, end: Callable[[int], Any] = os._exit
    ) -> None:
        self._met, self._mine, self._grace, self._every, self._end = met, mine, grace, every, end
        self.words: list[Callable[[BaseException], object]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="other processes", daemon=True)
        self._thread.start()

    def say(self, error: BaseException) -> None:
        """This process fails."""
        said = {"rank": self._mine, "kind": type(error).__name__, "why": str(error)}
        with suppress(Exception):  # who keeps the store is gone: then all will know
            self._met.compare_set(_FAILED, "", json.dumps(said))

    def told(self) -> BaseException | None:
        """What another process failed of; None where none has, or this one was the first to."""
        if not self._met.check([_FAILED]):
            return None
        said = json.loads(self._met.get(_FAILED))
        if said["rank"] == self._mine:
            return None
        if said["kind"] == KeyboardInterrupt.__name__:
            return KeyboardInterrupt(f"process {said['rank']} was interrupted")
        return ProcessError(f"process {said['rank']} failed: {said['kind']}: {said['why']}")

    def _look(self) -> None:
        told: BaseException | None = None
        while told is None:
            if self._over.wait(self._every):
                return
            try:
                told = self.told()
            except Exception as error:
                told = ProcessError(f"the store that the processes met in has gone ({error})")
        if self._over.wait(self._grace):
            return
        print(f"workbench: process {self._mine} ends: {told}", file=sys.stderr, flush=True)
        for say in reversed(self.words):
            with suppress(Exception):
                say(told)
        self._end(1)

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join(self._every + 1)
