"""Health of a run while it runs: the rules of the diagnosis, asked again and again of its record, in a thread of their own.

The rules are those of `workbench diagnose`, from the second step on. They take at most a twentieth of the time: where asking
them takes 0.2 s, they are asked every 4 s.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from shlex import split

from workbench.analysis.diagnose import Diagnosis, Finding, examine
from workbench.store import Store, StoreError

SHARE = 0.05
"""Of the time, for asking."""


class Health:
    """What is wrong with a run of a store, as it goes. A context manager.

    on_finding is called once for each rule that finds something, from the thread that asks. diagnosis: the newest one."""

    def __init__(self, store_url: str, run: str, on_finding: Callable[[Finding], None] = lambda finding: None) -> None:
        self.diagnosis = Diagnosis([], {})
        self._store_url, self._run, self._on_finding = store_url, run, on_finding
        self._told: set[str] = set()
        self._step = self._asked = 0
        self._wake = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._watch, name=f"health {run}", daemon=True)

    def stepped(self, step: int) -> None:
        """A step was made: there is more to ask about."""
        with self._wake:
            self._step = step
            self._wake.notify()

    def ask(self) -> Diagnosis:
        """Ask all rules now, and tell of what is found for the first time."""
        with Store.open(self._store_url) as store:
            self.diagnosis = examine(store, self._run)
        for finding in self.diagnosis.findings:
            if finding.rule not in self._told:
                self._told.add(finding.rule)
                self._on_finding(finding)
        return self.diagnosis

    def start(self) -> Health:
        """Begin to ask, whenever a step was made."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ask a last time, where steps were made since, and end; returns at once."""
        with self._wake:
            self._ended = True
            self._wake.notify()

    def _watch(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._ended or self._due())
                if not self._due():
                    return
                self._asked = self._step
            began = time.monotonic()
            try:
                self.ask()
            except (StoreError, ValueError):  # damaged or gone: the run itself says so, with what to do
                return
            with self._wake:
                self._wake.wait_for(lambda: self._ended, (time.monotonic() - began) * (1 / SHARE - 1))

    def _due(self) -> bool:
        return self._step > max(self._asked, 1)

    def __enter__(self) -> Health:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._thread.join()


def alert(command: str, run: str) -> Callable[[Finding], None]:
    """What runs a command once for each finding: WORKBENCH_RUN and WORKBENCH_RULE say which, its standard input has the text.

    Nothing of a run's texts is among the arguments or in the environment. ValueError for a command that cannot be split."""
    words = split(command)
    if not words:
        raise ValueError("--alert needs a command")

    def call(finding: Finding) -> None:
        env = {**os.environ, "WORKBENCH_RUN": run, "WORKBENCH_RULE": finding.rule}
        with subprocess.Popen(words, stdin=subprocess.PIPE, text=True, env=env) as process:
            process.communicate(str(finding))

    return call
