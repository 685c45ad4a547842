"""Asking a run for something while it goes: from a page, a notebook or a program, in this process or another.

Who asks puts a `Request` into the run's inbox, a folder beside its store, as one file renamed into place. The training
process takes what is there before each step and while it is paused, applies or refuses it (`obeying`), and records that
with the request's id among the run's commands; then the file goes. So a request is asked, then recorded as taken for a
step, and applied once that step is recorded. Nothing here imports what draws or trains.
"""

from __future__ import annotations

import getpass
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from workbench.store.place import folder_of

KINDS = {
    "resume": "go on after a pause",
    "pause": "wait after the step in hand",
    "step": "make some single steps (n), then wait",
    "stop": "end after the step in hand, with everything recorded",
    "set": "another prompts, rollouts, group_size, temperature or lr",
    "pin": "this prompt in every step",
    "drop": "this prompt no more",
    "boost": "factor times the rollouts for this prompt whenever it is asked",
    "free": "take back pin, drop and boost of this prompt",
    "swap": "another pipeline",
    "add": "one method more, or its other settings",
    "remove": "one method less",
    "checkpoint": "save the weights now",
    "undo": "back to what was before the command of this id",
}
"""What may be asked, and what it means; all of it acts from the next step on."""

CONTROLS = ("resume", "pause", "step", "stop")
"""Kinds that change no setting, but when the run goes on."""

LONGEST = 64 * 1024
"""Bytes of a request; what is longer is refused unread."""

DEEPEST = 32
TOO_DEEP = f"a request is nested at most {DEEPEST} deep"


class Request(NamedTuple):
    """What somebody asked of a run: kind is a key of KINDS, payload its figures, asked the time in UTC."""

    id: str
    kind: str
    payload: dict[str, Any]
    who: str = ""
    asked: str = ""

    @classmethod
    def of(cls, kind: str, payload: dict[str, Any], who: str = "") -> Request:
        """A new request, with an id of its own. Raises ValueError for a kind that does not exist."""
        if kind not in KINDS:
            raise ValueError(f"a run cannot be asked to {kind!r}; it can be asked to {', '.join(KINDS)}")
        who = (who or me())[:80]
        _check_writable([payload, who])
        now = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
        return cls(secrets.token_hex(5), kind, payload, who, now)


def me() -> str:
    """Who asks from this process, where nothing else is said."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "researcher"


def taken_back(undoes: Mapping[str, str]) -> set[str]:
    """Ids of commands that no longer hold: undone by another that does. undoes: id -> the id that it undoes ("" = none),
    the oldest first."""
    gone: set[str] = set()
    for id, undone in reversed(undoes.items()):
        if undone and id not in gone:
            gone.add(undone)
    return gone


class Inbox:
    """The requests that wait for a run: files of a folder that every viewer of the store may write to.

    It stands beside the store's commits, and for a shared catalog in the folder of its data."""

    def __init__(self, store_url: str, run: str) -> None:
        if not run or "/" in run or run.startswith("."):
            raise ValueError(f"{run!r} is no run id")
        self.run = run
        self.folder = folder_of(store_url) / "inbox" / run

    def put(self, request: Request) -> Request:
        """Leave a request, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{time.time_ns()}-{request.id}"
        part = self.folder / f".{name}.tmp"
        try:
            part.write_text(json.dumps(request._asdict()), encoding="utf-8")
            part.replace(self.folder / f"{name}.json")
        except OSError as error:
            part.unlink(missing_ok=True)
            raise PermissionError(
                f"{self.folder} cannot be written ({error.strerror}): who steers a run needs to write to its store"
            ) from error
        return request

    def files(self) -> list[Path]:
        """The files that wait, the oldest first."""
        try:
            return sorted(self.folder.glob("[0-9]*.json"))
        except (FileNotFoundError, NotADirectoryError):
            return []

    @staticmethod
    def read(path: Path) -> Request:
        """The request in a file; ValueError where it is none."""
        if path.stat().st_size > LONGEST:
            raise ValueError(f"a request holds at most {LONGEST:,} bytes")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except RecursionError:
            raise ValueError(TOO_DEEP) from None
        if not isinstance(found, dict) or not isinstance(found.get("payload"), dict):
            raise ValueError("a request is an object with id, kind, payload, who and asked")
        _check_writable(found)
        words = {k: str(found.get(k, ""))[:80] for k in ("kind", "who", "asked")}
        name = path.stem.encode("utf-8", "replace").decode()
        return Request(str(found.get("id") or name.rpartition("-")[2])[:80], payload=found["payload"], **words)

    def waiting(self) -> list[Request]:
        """What was asked and not yet taken; what cannot be read is left to the training process."""
        found = []
        for path in self.files():
            try:
                found.append(self.read(path))
            except (ValueError, OSError):  # taken just now, or none
                continue
        return found


class Commands:
    """The words with which a run is steered; a subclass says what becomes of a request in `ask`."""

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
        return self.inbox.put(Request.of(kind, plain(payload), self.who))

    def start(self) -> Request:
        """Go on after a pause."""
        return self.resume()

    def stop(self, timeout: float | None = None) -> Request:
        """End after the step in hand; does not wait for it."""
        return self.ask("stop")

    def answer(self, request: Request) -> dict[str, Any] | None:
        """The recorded command (kind, step, payload, ...) that a request became, None before that.

        kind "refused" holds the reason under payload["why"]."""
        for row in self._store.ask("commands", run=self.run).to_pylist():
            payload = json.loads(row["payload"] or "{}")
            if payload.get("id") == request.id:
                return {**row, "payload": payload}
        return None

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
        """Steps of the experiment."""
        found = self._store.sql("SELECT experiment FROM runs WHERE run = ?", [self.run])["experiment"][0].as_py()
        return int(json.loads(found).get("steps") or 0)

    def on_change(self, callback: Callable[[Remote], None], period: float = 1.0) -> None:
        """Call back when the record moves, from a thread of its own, until the run ends."""

        def watch() -> None:
            seen = None
            while seen is None or seen[0] in ("running", "paused"):
                now = (self.status, self.n_steps)
                if now != seen:
                    seen = now
                    callback(self)
                time.sleep(period)

        threading.Thread(target=watch, name=f"watch {self.run}", daemon=True).start()

    def __repr__(self) -> str:
        return f"Remote({self.run}: {self.status}, step {self.n_steps} of {self.target_steps})"


def _check_writable(found: object) -> None:
    """Raise ValueError where the record could not hold it: nested too deep, or with text that UTF-8 cannot hold."""
    level = [found]
    for _ in range(DEEPEST):
        deeper: list[object] = []
        for part in level:
            if isinstance(part, Mapping):
                deeper += [*part.keys(), *part.values()]
            elif isinstance(part, (list, tuple)):
                deeper += part
            elif isinstance(part, str):
                try:
                    part.encode()
                except UnicodeEncodeError:
                    raise ValueError(f"a request is text, and {part[:80]!a} holds half a surrogate pair") from None
        level = deeper
    if level:
        raise ValueError(TOO_DEEP)


def plain(payload: dict[str, Any]) -> dict[str, Any]:
    """A payload as JSON has it; a pipeline as its rows."""
    return {k: getattr(v, "spec", v) for k, v in payload.items()}
