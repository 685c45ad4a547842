"""Asking a run for something while it goes: from a page, a notebook or a program, in this process or another.

The words are those of `Commands`; `Remote` leaves each as a request in the run's inbox (`inbox`). Nothing here imports what
draws or trains.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from html import escape
from typing import Any

from workbench.runs.steering.inbox import Inbox, Request


class Commands:
    """The words with which a run is steered; a subclass says what becomes of a request in `ask`, `answer` and `told`."""

    asked: Request | None = None
    """The last request."""

    def answer(self, request: Request) -> dict[str, Any] | None:
        """The command (kind, step, payload, who) that a request became, None before that. kind "refused" holds the
        reason under payload["why"]; step: from which it acts."""
        raise NotImplementedError

    def told(self, request: Request) -> str:
        """What is being done for a request that waits, where that takes long; "" for nothing."""
        raise NotImplementedError

    def ask(self, kind: str, **payload: Any) -> Any:
        """Ask for something: kind is a key of KINDS."""
        raise NotImplementedError

    def resume(self) -> Any:
        """Go on after a pause."""
        return self.ask("resume")

    def pause(self) -> Any:
        """Wait after the step in hand."""
        return self.ask("pause")

    def step(self, n: int = 1) -> Any:
        """Make n single steps, then wait."""
        return self.ask("step", n=n)

    def set(self, **settings: float) -> Any:
        """Other settings from the next step on: prompts, rollouts or group_size, temperature, lr."""
        return self.ask("set", **settings)

    def pin(self, prompt: str) -> Any:
        """Have this prompt in every step; whoever selects fills the rest."""
        return self.ask("pin", prompt=prompt)

    def drop(self, prompt: str) -> Any:
        """Take this prompt out of the pool."""
        return self.ask("drop", prompt=prompt)

    def boost(self, prompt: str, factor: float = 2.0) -> Any:
        """Give this prompt factor times its rollouts whenever it is asked, at the cost of the others of the step."""
        return self.ask("boost", prompt=prompt, factor=factor)

    def free(self, prompt: str) -> Any:
        """Take back what was asked for this prompt."""
        return self.ask("free", prompt=prompt)

    def swap(self, pipeline: Any) -> Any:
        """Another pipeline from the next step on."""
        return self.ask("swap", pipeline=pipeline)

    def add(self, method: str) -> Any:
        """One more method, as in `add("vade(lambda_sample=0.8)")`; one that is there gets the settings given."""
        return self.ask("add", method=method)

    def remove(self, method: str) -> Any:
        """One method less."""
        return self.ask("remove", method=method)

    def checkpoint(self) -> Any:
        """Save the weights now."""
        return self.ask("checkpoint")

    def undo(self, id: str = "") -> Any:
        """Back to what was before a command, by the id under which it was recorded; "" = the last one that can be."""
        return self.ask("undo", id=id)


def progress_html(run: Any, *more: str) -> str:
    """A run for a notebook's cell: how far it is, itself in words, and more of it, text that is escaped."""
    bar = f'<progress value="{run.n_steps}" max="{max(run.target_steps, 1)}"></progress>'
    hint = "<code>workbench.views.notebook.controls(...)</code> steers it"
    return f"{bar} <code>{escape(repr(run))}</code><br>{'; '.join([*map(escape, more), hint])}"


class Remote(Commands):
    """A run of a store, steered from another process: every word leaves a request, and returns it.

    status and n_steps are those recorded; `answer` says what became of a request."""

    def __init__(self, store_url: str, run: str | None = None, who: str = "") -> None:
        from workbench.store import Store

        self.store_url, self.who = str(store_url), who
        self.error: str | None = None
        self._store = Store.open(self.store_url)
        chosen = run or self._store.latest()
        if chosen not in {r["run"] for r in self._store.runs().to_pylist()}:
            raise ValueError(f"the store {self.store_url} has no run {chosen!r}")
        self.run = str(chosen)
        self.inbox = Inbox(self.store_url, self.run)

    def ask(self, kind: str, **payload: Any) -> Request:
        """Leave a request. Raises ValueError where the run has ended, for then nobody takes it."""
        if (ended := self._row()["status"]) != "running":
            raise ValueError(f"the run {self.run} is {ended}: nobody is there to be asked; resume it first")
        self.asked = self.inbox.put(Request.of(kind, plain(payload), self.who))
        return self.asked

    def start(self) -> Request:
        """Go on after a pause."""
        return self.resume()

    def stop(self, timeout: float | None = None) -> Request:
        """End after the step in hand; does not wait for it."""
        return self.ask("stop")

    def answer(self, request: Request) -> dict[str, Any] | None:
        """The recorded command that a request became, with its time; see `Commands.answer`."""
        for row in self._store.ask("commands", run=self.run).to_pylist():
            payload = json.loads(row["payload"] or "{}")
            if payload.get("id") == request.id:
                return {**row, "payload": payload}
        return None

    def told(self, request: Request) -> str:
        """What the training process is doing for a request."""
        id, text = self.inbox.told()
        return text if id == request.id else ""

    def wait(self, request: Request, timeout: float = 60) -> dict[str, Any]:
        """The answer, and the step that applied it recorded. Raises ValueError where it was refused, TimeoutError."""
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
        return next(r for r in self._store.runs().to_pylist() if r["run"] == self.run)

    @property
    def status(self) -> str:
        """running, paused, finished, stopped or failed."""
        status = self._row()["status"]
        return (
            "paused" if status == "running" and self._store.ask("paused", run=self.run)["paused"][0].as_py() else status
        )

    @property
    def n_steps(self) -> int:
        """Steps recorded."""
        return int(self._row()["last_step"] or 0)

    @property
    def target_steps(self) -> int:
        """Steps after which the run is finished."""
        return int(self._store.ask("page_run", run=self.run)["target"][0].as_py() or 0)

    def on_change(self, callback: Callable[[Remote], None], period: float = 1.0) -> None:
        """Call back when the record moves, or what is being done for a request, from a thread of its own, until the run
        ends. A store that cannot be read at a moment is read again after the next period."""
        from workbench.store import StoreError

        def watch() -> None:
            seen = None
            while seen is None or seen[0] in ("running", "paused"):
                with suppress(StoreError, OSError):
                    n_commands = self._store.ask("commands", run=self.run).num_rows
                    now = (self.status, self.n_steps, n_commands, self.inbox.told())
                    if now != seen:
                        callback(self)
                        seen = now
                time.sleep(period)

        threading.Thread(target=watch, name=f"watch {self.run}", daemon=True).start()

    def _repr_html_(self) -> str:
        return progress_html(self)

    def __repr__(self) -> str:
        return f"Remote({self.run}: {self.status}, step {self.n_steps} of {self.target_steps})"


def plain(payload: dict[str, Any]) -> dict[str, Any]:
    """A payload as JSON has it; a pipeline as its rows."""
    return {k: getattr(v, "spec", v) for k, v in payload.items()}
