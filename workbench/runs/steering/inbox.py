"""What is asked of a run, and the folder where it waits: one file a request, renamed into place.

The training process takes what is there before each step and while it is paused, applies or refuses it (`queue`), and
records that with the request's id among the run's commands; then the file goes. So a request is asked, then recorded as
taken for a step, and applied once that step is recorded.
"""

from __future__ import annotations

import getpass
import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from workbench.store.open import data_folder

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

WORKING = ".working.json"
"""File of an inbox that says what is being done for a request."""

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
        self.folder = data_folder(store_url) / "inbox" / run

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

    def tell(self, id: str, text: str) -> None:
        """Say what the training process is doing for the request of this id, where that takes long; "" takes it back."""
        path = self.folder / WORKING
        with suppress(OSError):  # of another user's folder: then nobody hears of it, and the work goes on
            if not text:
                path.unlink(missing_ok=True)
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".tmp")
            part.write_text(json.dumps({"id": id, "text": text}), encoding="utf-8")
            part.replace(path)

    def told(self) -> tuple[str, str]:
        """The id of the request that is being done, and what is being done for it; ("", "") for none."""
        try:
            found = json.loads((self.folder / WORKING).read_text(encoding="utf-8"))
            return str(found["id"])[:80], str(found["text"])[:300]
        except (OSError, ValueError, KeyError, TypeError):
            return "", ""

    def waiting(self) -> list[Request]:
        """What was asked and not yet taken; what cannot be read is left to the training process."""
        found = []
        for path in self.files():
            try:
                found.append(self.read(path))
            except (ValueError, OSError):  # taken just now, or none
                continue
        return found


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
