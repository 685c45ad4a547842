"""What requests do to a run: taken between steps, checked, applied, recorded; and rebuilt from the record on resuming.

A request is refused with a sentence, and nothing changes then; a change of the plan is rehearsed first (`pipeline.
rehearse`), so that a method that cannot serve it says so now and not in the middle of a step.

A pinned, boosted or dropped prompt could have been a method put in by a swap. But at select one method decides: it would
have replaced the very selector that it steers, and amending the plan afterwards leaves the displaced prompts counted as
chosen. So the prompt_settings go to the loop (`pipeline.PromptSettings`): pinned prompts stand in the draft before anybody selects, boosts
weigh what was allocated, dropped prompts are no candidates, and no method needs to know.

Where several processes make the run, each has a helm and makes the same calls. The first one's requests and inbox are told
to all before a step, and all take or refuse them alike; a stop counts whoever wants it.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.parallel import processes
from workbench.pipeline import Pipeline
from workbench.runs.steering.changes import (
    BUDGET,
    DIALS,
    LASTING,
    PROMPTS,
    Change,
    checkpoint,
    prompt,
    restore,
    setting,
    swap,
    wished,
)
from workbench.runs.steering.inbox import CONTROLS, KINDS, Inbox, Request, taken_back
from workbench.store.errors import StoreError
from workbench.types import Budget, Event
from workbench.validate import whole

if TYPE_CHECKING:
    from workbench.runs.run import Run
    from workbench.store import Store


class Helm:
    """The requests to one run: those of this process, and those of its inbox. Ask from any thread.

    paused, stopping: what `ready` obeys; refused: why the last request was not, "" when it was; known, since: what
    requests became, and from which step it acts; working: the request that is being done, and what takes long about it.
    It is made before the run, so that one can ask while the model loads."""

    def __init__(self) -> None:
        self.paused = self.stopping = False
        self.singles = 0
        self.refused = ""
        self.known: dict[str, tuple[str, dict[str, Any]]] = {}
        self.since: dict[str, int] = {}
        self.working = ("", "")
        self._asked: deque[Request] = deque()
        self._later: list[tuple[int, str, dict[str, Any]]] = []
        self._inbox: Inbox | None = None
        self._stale: set[Path] = set()
        self._handled: set[Path] = set()

    def ask(self, request: Request) -> None:
        """Hand over a request of this process."""
        self._asked.append(request)

    def check(self, run: Run, request: Request) -> None:
        """Raise ValueError where a request cannot be done, from any thread. While changes wait that were asked before it,
        only the coming step can tell what it meets: it refuses then, and records why."""
        waiting = {r.id for r in self._asked.copy() if r.kind not in (*CONTROLS, "checkpoint")}
        try:
            self.change(run, request, rehearsed=False)
        except ValueError:
            named = request.payload.get("id")  # of what an undo takes back
            if not waiting or (named and named not in waiting):
                raise

    def open(self, store_url: str, run: str) -> None:
        """Look into the inbox of a run from now on. What lies there already was asked of an earlier attempt."""
        self._inbox = Inbox(store_url, run)
        self._inbox.tell("", "")
        self._stale = set(self._inbox.files())

    def tell(self, text: str) -> None:
        """Let who steers know what is being done for the request in hand; "" ends it."""
        self.working = (self.working[0], text)
        if self._inbox:
            self._inbox.tell(*self.working)

    def ready(
        self, run: Run, stop: Callable[[], bool] = lambda: False, told: Callable[[], None] = lambda: None
    ) -> bool:
        """Take what was asked, and wait while the run is paused (told is called then, again and again); False where it
        shall end."""
        while True:
            if self.take(run, stop()) or self.stopping:
                return False
            if not self.paused:
                return True
            if self.singles:
                self.singles -= 1
                return True
            told()
            time.sleep(0.05)

    def take(self, run: Run, stop: bool = False) -> bool:
        """Apply or refuse, in order: what the record says of the coming step (after a resume), then what is asked. Whether
        this process or another one of the run wants it to stop."""
        while self._later and self._later[0][0] <= run.n_steps + 1:
            step, kind, payload = self._later.pop(0)
            try:
                restore(run, kind, payload)
            except Exception as error:
                again = f"{kind}, commanded of step {step}, could not be done again: {_told(error)}"
                run.writer.event(Event("warning", "steering", again), run.n_steps)
        own, files = list(self._asked.copy()), self._files()
        read = ((self._read(path), path in self._stale) for path in files)
        said = processes.gather((stop, [*((r, False) for r in own), *((r, stale) for r, stale in read if r)]))
        for request, stale in said[0][1]:
            if request.id in self.known:
                continue
            if stale and request.kind in CONTROLS:
                self._refuse(run, request, "asked before the run was resumed; ask again")
            else:
                self._obey(run, request)
        for _ in own:  # not before: until it is known, it waits
            self._asked.popleft()
        if files:
            run.writer.flush()  # before the file goes: a request is in the inbox, or in the record, or in both
            self._clear(files)
        return any(stops for stops, _ in said)

    def leave(self) -> None:
        """Let the other processes know, who may be asking whether there is another step, that this one makes none."""
        processes.gather((True, []))

    def _files(self) -> list[Path]:
        """The files that wait and were not handled yet."""
        return [p for p in self._inbox.files() if p not in self._handled] if self._inbox else []

    def _clear(self, files: Iterable[Path]) -> None:
        """Take handled files away; one that may not be taken away, as in a folder of another user, is remembered."""
        for path in files:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                self._handled.add(path)

    def _read(self, path: Path) -> Request | None:
        """The request in a file, of the kind "unreadable" where it is none; None where the file is gone."""
        try:
            return Inbox.read(path)
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            name, why = (x.encode("utf-8", "replace").decode() for x in (path.stem, str(error)[:300]))
            return Request(name.rpartition("-")[2], "unreadable", {"error": why})

    def _obey(self, run: Run, request: Request) -> None:
        found: list[Change] = []
        self.working = (request.id, "")
        if not (why := self._why_not(request, lambda: found.append(self._checked(run, request)))):
            change = found[0]
            why = self._why_not(request, change.act)
        if self.working[1]:
            self.tell("")
        self.refused = why
        if why:
            self._refuse(run, request, why)
            return
        self.known[request.id] = (change.kind, change.payload)
        self.since[request.id] = change.step
        head = {"id": request.id, "asked": request.asked}
        run.writer.command(change.kind, head | change.payload, change.step, request.who)

    def _why_not(self, request: Request, work: Callable[[], object]) -> str:
        """Why a request cannot be checked or done; "" where it was. Raises ProcessError where processes do not agree."""
        why = ""
        try:
            work()
        except (ValueError, StoreError) as error:  # of the store: a method asks for columns that were not kept
            why = str(error)
        except Exception as error:  # of a method, of a checkpoint: as little an end of the run
            why = f"{request.kind} cannot be done: {_told(error)}"
        processes.check_same(bool(why), f"answers to {request.kind}" + (f" ({why})" if why else ""))
        return processes.broadcast(why)

    def _refuse(self, run: Run, request: Request, reason: str) -> None:
        """Record why a request is not done."""
        why = {"kind": request.kind, "payload": request.payload, "why": reason}
        head = {"id": request.id, "asked": request.asked}
        run.writer.command("refused", head | why, run.n_steps, request.who)
        self.known[request.id] = ("refused", why)
        self.since[request.id] = run.n_steps

    def _checked(self, run: Run, request: Request) -> Change:
        """The change, or ValueError: what others write into the inbox must never end a run."""
        try:
            return self.change(run, request)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"{request.kind} could not be read: {_told(error)}") from error

    def end(self, run: Run) -> None:
        """The run ends: what still waits is refused, so that who asked knows."""
        left = [*self._asked]
        self._asked.clear()
        files = self._files()
        for path in files:
            with suppress(ValueError, OSError):
                left.append(Inbox.read(path))
        for request in left:
            if request.id not in self.known:
                self._refuse(run, request, "the run has ended")
        if files:
            run.writer.flush()
        self._clear(files)
        if self._inbox:
            with suppress(OSError):  # never made, or somebody asks at this moment
                self._inbox.folder.rmdir()

    def change(self, run: Run, request: Request, rehearsed: bool = True) -> Change:
        """What a request would do. Raises ValueError, which says what to do, where it cannot be done.

        rehearsed=False checks the request alone, as from another thread than the one that trains."""
        kind, payload = request.kind, request.payload
        if kind not in KINDS:
            raise ValueError(f"a run cannot be asked to {kind!r}; it can be asked to {', '.join(KINDS)}")
        if kind in CONTROLS:
            return self._control(run, kind, payload)
        if kind == "undo":
            return self._undo(run, payload, rehearsed)
        if kind == "set":
            return setting(run, payload, rehearsed)
        if kind in PROMPTS:
            return prompt(run, kind, payload, rehearsed)
        if kind == "checkpoint":
            return checkpoint(run)
        return swap(run, kind, payload)

    def _control(self, run: Run, kind: str, payload: Mapping[str, Any]) -> Change:
        n = whole("n", payload.get("n", 1)) if kind == "step" else 0

        def act() -> None:
            self.stopping |= kind == "stop"
            self.paused = kind in ("pause", "step")
            self.singles = self.singles + n if kind == "step" else 0

        at = run.n_steps + 1 + self.singles if kind == "step" else run.n_steps
        return Change(kind, {"n": n} if n else {}, at, act)

    def _undo(self, run: Run, payload: Mapping[str, Any], rehearsed: bool) -> Change:
        wanted = str(payload.get("id") or self._last_lasting())
        kind, done = self.known.get(wanted, ("", {}))
        if kind not in LASTING:
            what = f"{kind} leaves nothing to take back" if kind else f"no command {wanted!r} was applied in this run"
            what = what if wanted else "nothing was commanded that still lasts"
            raise ValueError(f"cannot undo: {what}; {', '.join(LASTING)} can be undone")
        if kind == "set":
            change = setting(run, done["before"], rehearsed)
        elif kind == "swap":
            change = swap(run, "swap", {"pipeline": done["from"]})
        else:
            change = wished(run, kind, done["prompt"], done["before"], rehearsed)
        return change._replace(payload=change.payload | {"undoes": wanted})

    def _last_lasting(self) -> str:
        """The newest command that can be taken back, was not, and takes nothing back itself; "" for none."""
        undone = taken_back({i: p.get("undoes", "") for i, (_, p) in self.known.items()})
        lasting = [
            i for i, (kind, p) in self.known.items() if kind in LASTING and "undoes" not in p and i not in undone
        ]
        return lasting[-1] if lasting else ""

    def rebuild(self, run: Run, store: Store, name: str, at: int) -> None:
        """Read what was commanded of a run that is resumed after step `at`: applied now up to there, later when its
        step comes. What the experiment given now says otherwise than the one recorded is a newer wish, and wins."""
        rows = store.sql(
            "SELECT step, kind, payload FROM commands WHERE run = ? ORDER BY step, seq", [name]
        ).to_pylist()
        found = store.sql("SELECT experiment FROM runs WHERE run = ?", [name])["experiment"][0].as_py()
        began, given = json.loads(found), run.experiment.to_dict()
        for row in rows:
            kind, payload = row["kind"], json.loads(row["payload"] or "{}")
            self.known[payload.get("id", "")] = (kind, payload)
            self.since[payload.get("id", "")] = row["step"]
        swaps = [json.loads(r["payload"])["to"] for r in rows if r["kind"] == "swap"]
        plans = [Pipeline.parse(spec).spec for spec in (began["pipeline"], *swaps[-1:])]
        newer = {name for name in DIALS if given["world"].get(name) != began.get("world", {}).get(name)}
        newer |= set(BUDGET) if Budget(**given["budget"]) != Budget(**began["budget"]) else set()
        if swaps and given["pipeline"] in plans:
            run.pipeline = Pipeline.parse(began["pipeline"])
            run.pipeline.check(run.world)
        for row in rows:
            kind, payload = row["kind"], json.loads(row["payload"] or "{}")
            if kind not in LASTING or (kind == "swap" and given["pipeline"] not in plans):
                continue
            if kind == "set":
                payload["to"] = {k: v for k, v in payload["to"].items() if k not in newer}
            if row["step"] <= at:
                restore(run, kind, payload, folded=False)
            else:
                self._later.append((row["step"], kind, payload))


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
