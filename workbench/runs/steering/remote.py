"""Remote control of a run in another process, through its store."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from workbench.runs.steering.commands import Commands, progress_html
from workbench.runs.steering.inbox import Inbox
from workbench.runs.steering.requests import Request
from workbench.store import Store, StoreError

if TYPE_CHECKING:
    from typing import Self


class Remote(Commands):
    """A run of a store, steered from another process: every command leaves a request in the run's inbox.

    status and n_steps are those recorded; `wait` waits for the answer to the last request.

    >>> import tempfile
    >>> from workbench import Experiment
    >>> with tempfile.TemporaryDirectory() as store:
    ...     session = Experiment(model="sim", steps=2, store=store).start().wait()
    ...     Remote(store).n_steps
    2
    """

    error: str | None = None
    """Of a session: what ended it. The record of a run in another process has no traceback."""

    def __init__(self, store_url: str, run_id: str | None = None, who: str = "") -> None:
        self.store_url, self.who = str(store_url), who
        self._store = Store.open(self.store_url)
        chosen = run_id or self._store.latest()
        if chosen not in {r["run"] for r in self._store.runs().to_pylist()}:
            raise ValueError(f"the store {self._store.where} has no run {chosen!r}")
        self.run_id = str(chosen)
        self.inbox = Inbox(self.store_url, self.run_id)

    def request(self, kind: str, **payload: object) -> Self:
        """Leave a request. Raises ValueError where the run has ended, for then nobody takes it."""
        if (ended := self._row()["status"]) != "running":
            raise ValueError(f"the run {self.run_id} is {ended}: nobody is there to be asked; resume it first")
        self.last_request = self.inbox.put(Request.of(kind, payload, self.who))
        return self

    def start(self) -> Self:
        """Go on after a pause."""
        return self.resume()

    def stop(self, timeout: float | None = None) -> Self:
        """End after the step in hand; does not wait for it."""
        return self.request("stop")

    def answer(self, request: Request) -> dict[str, Any] | None:
        """The recorded command that a request became, with its time; see `Commands.answer`."""
        for row in self._store.ask("commands", run=self.run_id).to_pylist():
            payload = json.loads(row["payload"] or "{}")
            if payload.get("id") == request.id:
                return {**row, "payload": payload}
        return None

    def working_status(self, request: Request) -> str:
        """What the training process is doing for a request."""
        id, text = self.inbox.working_status()
        return text if id == request.id else ""

    def wait(self, request: Request | None = None, timeout: float = 60) -> dict[str, Any]:
        """The answer to a request, of the last one where None, once the step that applied it is recorded. Raises ValueError
        where it was refused, TimeoutError."""
        if (request := request or self.last_request) is None:
            raise ValueError("nothing was asked of the run yet; give a command first, such as pause()")
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            found = self.answer(request)
            if found and found["kind"] == "refused":
                raise ValueError(found["payload"]["why"])
            if found and (found["step"] <= self.n_steps or self._row()["status"] != "running"):
                return found
            time.sleep(0.1)
        raise TimeoutError(f"{request.kind} was not applied within {timeout} s; the run is {self.status}")

    def _row(self) -> dict[str, Any]:
        return next(r for r in self._store.runs().to_pylist() if r["run"] == self.run_id)

    @property
    def status(self) -> str:
        """running, paused, finished, stopped or failed."""
        status = self._row()["status"]
        paused = status == "running" and self._store.ask("paused", run=self.run_id)["paused"][0].as_py()
        return "paused" if paused else status

    @property
    def n_steps(self) -> int:
        """Steps recorded."""
        return int(self._row()["last_step"] or 0)

    @property
    def target_steps(self) -> int:
        """Steps after which the run is finished."""
        return int(self._store.ask("page_run", run=self.run_id)["target"][0].as_py() or 0)

    def on_change(self, callback: Callable[[Remote], None], period: float = 1.0) -> None:
        """Call back when the record moves, or what is being done for a request, from a thread of its own, until the run
        ends. A store that cannot be read at a moment is read again after the next period."""

        def watch() -> None:
            seen = None
            while seen is None or seen[0] in ("running", "paused"):
                with suppress(StoreError, OSError):
                    n_commands = self._store.ask("commands", run=self.run_id).num_rows
                    now = (self.status, self.n_steps, n_commands, self.inbox.working_status())
                    if now != seen:
                        callback(self)
                        seen = now
                time.sleep(period)

        threading.Thread(target=watch, name=f"watch {self.run_id}", daemon=True).start()

    def _repr_html_(self) -> str:
        return progress_html(self)

    def __repr__(self) -> str:
        return f"Remote({self.run_id}: {self.status}, step {self.n_steps} of {self.target_steps})"
