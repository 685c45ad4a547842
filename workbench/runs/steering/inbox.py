"""Inbox of a run: the folder where requests of other processes wait, one file a request, renamed into place.

The training process takes what is there before each step and while it is paused, applies or refuses it (`queue`), and
records that with the request's id among the run's commands; then the file goes. So a request waits, then is recorded as
taken for a step, and is applied once that step is recorded.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from workbench.runs.steering.requests import TOO_DEEP, Request, check_writable
from workbench.store.errors import StoreError
from workbench.store.open import data_folder
from workbench.store.rows.attempts import check_id

LONGEST = 64 * 1024
"""Bytes of a request; what is longer is refused unread."""

WORKING = ".working.json"
"""File of an inbox that says what is being done for a request."""


class Inbox:
    """The requests that wait for a run: files of a folder that every viewer of the store may write to.

    It stands beside the store's commits, and for a shared catalog in the folder of its data."""

    def __init__(self, store_url: str, run: str) -> None:
        try:
            check_id(run, 0)
        except StoreError as error:
            raise ValueError(str(error)) from None
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
        try:
            found = json.loads(_text(path))
        except RecursionError:
            raise ValueError(TOO_DEEP) from None
        if not isinstance(found, dict) or not isinstance(found.get("payload"), dict):
            raise ValueError("a request is an object with id, kind, payload, who and sent")
        check_writable(found)
        texts = {k: str(found.get(k, ""))[:80] for k in ("kind", "who", "sent")}
        name = path.stem.encode("utf-8", "replace").decode()
        return Request(str(found.get("id") or name.rpartition("-")[2])[:80], payload=found["payload"], **texts)

    def waiting(self) -> list[Request]:
        """The requests that wait; what cannot be read is left to the training process."""
        found = []
        for path in self.files():
            with suppress(ValueError, OSError):  # taken just now, or none
                found.append(self.read(path))
        return found

    def set_working_status(self, id: str, text: str) -> None:
        """Say what the training process is doing for the request of this id, where that takes long; "" takes it back."""
        path = self.folder / WORKING
        with suppress(OSError):  # of another user's folder: then nobody reads of it, and the work goes on
            if not text:
                path.unlink(missing_ok=True)
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".tmp")
            part.unlink(missing_ok=True)  # what others may have put there is not written through
            with part.open("x", encoding="utf-8") as file:
                file.write(json.dumps({"id": id, "text": text}))
            part.replace(path)

    def working_status(self) -> tuple[str, str]:
        """The id of the request that is being done, and what is being done for it; ("", "") for none."""
        try:
            found = json.loads(_text(self.folder / WORKING))
            return str(found["id"])[:80], str(found["text"])[:300]
        except (OSError, ValueError, KeyError, TypeError):
            return "", ""


def _text(path: Path) -> str:
    """What a file holds that anybody may have put there: a regular one of at most LONGEST bytes, or ValueError.

    Opening a pipe or a device would wait for what never comes; a link leads to a file that its maker may not read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ValueError("a request is a regular file, and this is a link, a socket or a device") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("a request is a regular file, and this is a pipe, a device or a folder")
        held = os.read(handle, LONGEST + 1)
    finally:
        os.close(handle)
    if len(held) > LONGEST:
        raise ValueError(f"a request holds at most {LONGEST:,} bytes")
    return held.decode()


class InboxReader:
    """The training process's side of an inbox. What lies there at the beginning was sent to an earlier attempt."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        inbox.set_working_status("", "")
        self._stale = set(inbox.files())
        self._handled: set[Path] = set()

    def files(self) -> list[Path]:
        """The files that wait and were not handled yet."""
        return [p for p in self.inbox.files() if p not in self._handled]

    def read(self, path: Path) -> tuple[Request, bool] | None:
        """The request in a file, of the kind "unreadable" where it is none, and whether it was sent to an earlier attempt;
        None where the file is gone."""
        try:
            request = Inbox.read(path)
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            name, why = (x.encode("utf-8", "replace").decode() for x in (path.stem, str(error)[:300]))
            request = Request(name.rpartition("-")[2], "unreadable", {"error": why})
        return request, path in self._stale

    def clear(self, files: Iterable[Path]) -> None:
        """Take handled files away; one that may not be taken away, as in a folder of another user, is remembered."""
        for path in files:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                self._handled.add(path)

    def close(self) -> None:
        """Remove the folder, where nothing waits in it."""
        with suppress(OSError):  # never made, or somebody sends at this moment
            self.inbox.folder.rmdir()
