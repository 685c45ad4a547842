"""Queue of requests to a run: taken between steps, checked, applied to its state, recorded.

A request is refused with a sentence, and nothing changes then.

A pinned, boosted or dropped prompt could have been a method put in by a swap. But at select one method decides: it would
have replaced the very selector that it steers, and amending the plan afterwards leaves the displaced prompts counted as
chosen. So they go to the loop (`pipeline.PromptSettings`): pinned prompts are in the draft before anybody selects, boosts
weigh what was allocated, dropped prompts are no candidates, and no method needs to know.

Where several processes make the run, each has a queue and makes the same calls. The requests and the inbox of the first one
are broadcast before a step, and all take or refuse them alike; a stop counts whichever process wants it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from workbench.parallel import processes
from workbench.pipeline import Pipeline
from workbench.runs.record import RunRecord
from workbench.runs.state import RunState
from workbench.runs.steering import changes
from workbench.runs.steering.changes import Change
from workbench.runs.steering.inbox import Inbox, InboxReader
from workbench.runs.steering.requests import CONTROLS, KINDS, LASTING, PROMPTS, Request, undone, unknown
from workbench.store.errors import StoreError
from workbench.types import Event
from workbench.validate import whole


class Outcome(NamedTuple):
    """What a request became, as it is recorded: kind "refused" has the reason under payload["why"]. step: from which it
    acts."""

    kind: str
    payload: dict[str, Any]
    step: int


class RequestQueue:
    """The requests to one run: those of this process, and those of its inbox. Put from any thread.

    paused, stopping: what `ready` does; refused: why the last request was, "" when it was not; outcomes by request id;
    working: the id of the request that is being done, and what takes long about it. It is made before the run, so that
    requests are taken while the model loads."""

    def __init__(self) -> None:
        self.paused = self.stopping = False
        self.single_steps = 0
        self.refused = ""
        self.outcomes: dict[str, Outcome] = {}
        self.working = ("", "")
        self.to_restore: list[tuple[int, str, dict[str, Any]]] = []
        """(step, kind, payload) of recorded commands that a resumed run has still to do again."""
        self._requests: deque[Request] = deque()
        self._inbox: InboxReader | None = None
        self._state: RunState
        self._record: RunRecord
        self._begun = False
        self._on_report: Callable[[str], None] = lambda text: None

    def begin(self, state: RunState, record: RunRecord, on_report: Callable[[str], None]) -> None:
        """Take requests to a run from now on. on_report is called with what takes long about one."""
        self._state, self._record, self._on_report = state, record, on_report
        if processes.first():
            self._inbox = InboxReader(Inbox(record.store_url, record.run_id))
        self._begun = True

    def put(self, request: Request) -> None:
        """Hand over a request of this process. Raises ValueError where it cannot be done.

        Before the run has begun, and while changes wait that were put before it, only the coming step can tell what it
        meets: it refuses then, and records why."""
        if self._begun:
            waiting = {r.id for r in self._requests.copy() if r.kind not in (*CONTROLS, "checkpoint")}
            try:
                self.change(request, rehearsed=False)
            except ValueError:
                undoes = request.payload.get("id")
                if not waiting or (undoes and undoes not in waiting):
                    raise
        self._requests.append(request)

    def report(self, text: str) -> None:
        """Let who steers know what is being done for the request in hand; "" ends it."""
        self.working = (self.working[0], text)
        if self._inbox:
            self._inbox.inbox.set_working_status(*self.working)
        if text:
            self._on_report(text)

    def ready(self, stop: Callable[[], bool] = lambda: False, on_wait: Callable[[], None] = lambda: None) -> bool:
        """Take what waits, and wait while the run is paused (on_wait is called then, again and again); False where the run
        shall end."""
        while True:
            if self.take(stop()) or self.stopping:
                return False
            if not self.paused:
                return True
            if self.single_steps:
                self.single_steps -= 1
                return True
            on_wait()
            time.sleep(0.05)

    def take(self, stop: bool = False) -> bool:
        """Apply or refuse, in order: what the record says of the coming step (after a resume), then what waits. Whether this
        process or another one of the run wants it to stop."""
        self._restore()
        inbox = self._inbox
        own, files = list(self._requests.copy()), inbox.files() if inbox else []
        left = [found for path in files if (found := inbox.read(path))] if inbox else []
        parts = processes.gather((stop, [*((r, False) for r in own), *left]))
        for request, stale in parts[0][1]:
            if request.id in self.outcomes:
                continue
            if stale and request.kind in CONTROLS:
                self._refuse(request, "asked before the run was resumed; ask again")
            else:
                self._apply(request)
        for _ in own:  # not before: until its outcome is known, it waits
            self._requests.popleft()
        if inbox and files:
            self._record.writer.flush()  # before the file goes: a request is in the inbox, or in the record, or in both
            inbox.clear(files)
        return any(stops for stops, _ in parts)

    def leave(self) -> None:
        """Let the other processes know, who may be asking whether there is another step, that this one makes none."""
        processes.gather((True, []))

    def end(self) -> None:
        """The run ends: what still waits is refused, so that who sent it knows."""
        left = [*self._requests]
        self._requests.clear()
        files = self._inbox.files() if self._inbox else []
        for path in files:
            with suppress(ValueError, OSError):
                left.append(Inbox.read(path))
        for request in left:
            if request.id not in self.outcomes:
                self._refuse(request, "the run has ended")
        if self._inbox:
            if files:
                self._record.writer.flush()
            self._inbox.clear(files)
            self._inbox.close()

    def _restore(self) -> None:
        state = self._state
        while self.to_restore and self.to_restore[0][0] <= state.step + 1:
            step, kind, payload = self.to_restore.pop(0)
            try:
                if kind == "swap":
                    changes.take_over(state, self._record, Pipeline.parse(payload["to"]), self.report)
                else:
                    changes.restore(state, kind, payload)
            except Exception as error:
                again = f"{kind}, commanded of step {step}, could not be done again: {_text(error)}"
                self._record.writer.event(Event("warning", "steering", again), state.step)

    def _apply(self, request: Request) -> None:
        found: list[Change] = []
        self.working = (request.id, "")
        if not (why := self._why_not(request, lambda: found.append(self._checked(request)))):
            why = self._why_not(request, found[0].act)
        if self.working[1]:
            self.report("")
        self.refused = why
        if why:
            self._refuse(request, why)
        else:
            self._conclude(request, Outcome(*found[0][:3]))

    def _why_not(self, request: Request, work: Callable[[], object]) -> str:
        """Why a request cannot be checked or done; "" where it was. Raises ProcessError where processes do not agree."""
        why = ""
        try:
            work()
        except (ValueError, StoreError) as error:  # of the store: a method asks for columns that were not kept
            why = str(error)
        except Exception as error:  # of a method, of a checkpoint: as little an end of the run
            why = f"{request.kind} cannot be done: {_text(error)}"
        processes.check_same(bool(why), f"answers to {request.kind}" + (f" ({why})" if why else ""))
        return processes.broadcast(why)

    def _refuse(self, request: Request, reason: str) -> None:
        payload = {"kind": request.kind, "payload": request.payload, "why": reason}
        self._conclude(request, Outcome("refused", payload, self._state.step))

    def _conclude(self, request: Request, outcome: Outcome) -> None:
        """Record what became of a request."""
        self.outcomes[request.id] = outcome
        payload = {"id": request.id, "asked": request.sent} | outcome.payload
        self._record.writer.command(outcome.kind, payload, outcome.step, request.who)

    def _checked(self, request: Request) -> Change:
        """The change, or ValueError: what others write into the inbox must never end a run."""
        try:
            return self.change(request)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"{request.kind} could not be read: {_text(error)}") from error

    def change(self, request: Request, rehearsed: bool = True) -> Change:
        """What a request would do. Raises ValueError, which says what to do, where it cannot be done.

        rehearsed=False checks the request alone, as from another thread than the one that trains."""
        kind, payload = request.kind, request.payload
        if kind not in KINDS:
            raise ValueError(unknown(kind))
        if kind in CONTROLS:
            return self._control(kind, payload)
        if kind == "undo":
            return self._undo(payload, rehearsed)
        if kind == "set":
            return changes.settings(self._state, payload, rehearsed)
        if kind in PROMPTS:
            return changes.prompt(self._state, kind, payload, rehearsed)
        if kind == "checkpoint":
            return changes.checkpoint(self._state, self._record)
        return changes.pipeline(self._state, self._record, kind, payload, self.report)

    def _control(self, kind: str, payload: Mapping[str, Any]) -> Change:
        n = whole("n", payload.get("n", 1)) if kind == "step" else 0

        def act() -> None:
            self.stopping |= kind == "stop"
            self.paused = kind in ("pause", "step")
            self.single_steps = self.single_steps + n if kind == "step" else 0

        at = self._state.step + (1 + self.single_steps if kind == "step" else 0)
        return Change(kind, {"n": n} if n else {}, at, act)

    def _undo(self, payload: Mapping[str, Any], rehearsed: bool) -> Change:
        id = str(payload.get("id") or self._last_lasting())
        kind, done, _ = self.outcomes.get(id, Outcome("", {}, 0))
        if kind not in LASTING:
            what = f"{kind} leaves nothing to take back" if kind else f"no command {id!r} was applied in this run"
            what = what if id else "nothing was commanded that still lasts"
            raise ValueError(f"cannot undo: {what}; {', '.join(LASTING)} can be undone")
        if kind == "set":
            change = changes.settings(self._state, done["before"], rehearsed)
        elif kind == "swap":
            change = changes.pipeline(self._state, self._record, "swap", {"pipeline": done["from"]}, self.report)
        else:
            change = changes.set_prompt(self._state, kind, done["prompt"], done["before"], rehearsed)
        return change._replace(payload=change.payload | {"undoes": id})

    def _last_lasting(self) -> str:
        """The newest command that can be undone, was not, and undoes nothing itself; "" for none."""
        undoes = {id: outcome.payload.get("undoes", "") for id, outcome in self.outcomes.items()}
        gone = undone(undoes)
        lasting = [i for i, o in self.outcomes.items() if o.kind in LASTING and not undoes[i] and i not in gone]
        return lasting[-1] if lasting else ""


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
