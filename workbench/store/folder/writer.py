"""Storage backend that writes a folder: one commit directory per record, under a lock held while the process lives."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from workbench.store.background import Heartbeat
from workbench.store.errors import Damaged, RunBusyError
from workbench.store.folder import files
from workbench.store.folder.compaction import Quarantine, compact
from workbench.store.folder.damage import gaps, told
from workbench.store.rows.attempts import check_id, proposed


class FolderWriter:
    """Writes one rank of a run; RunBusyError where another process holds it. run None: a fresh id."""

    remedy = "make room (or give write permission, or bring the folder back)"

    def __init__(self, folder: str | Path, run: str | None, name: str, rank: int) -> None:
        check_id(run, rank)
        self._folder = Path(folder).resolve()
        self.url = self.where = str(self._folder)
        files.create(self._folder)
        self.run = run or self._fresh(name)
        self._name = f"{self.run}/r{rank}"
        self._home = files.home(self._folder, self.run, rank)
        self._home.mkdir(parents=True, exist_ok=True)
        for made in (self._home.parent, self._folder / "commits"):
            files.fsync(made)
        for _ in range(50):  # a reader that looks whether we live holds the lock for an instant
            lock = files.lock(self._home / "LOCK")
            if lock is not None:
                break
            time.sleep(0.02)
        else:
            raise RunBusyError.of(self.run, rank, (self._home / "LOCK").read_text(encoding="utf-8").strip())
        self._lock = lock
        self._lock.truncate(0)
        self._lock.write(f"process {os.getpid()} on {platform.node()}\n")
        self._lock.flush()
        self._heart = Heartbeat(self._beat, f"alive {self._name}")

    def progress(self) -> tuple[int, int]:
        """The last commit of this writer, and the last that was compacted; -1 for none."""
        mark = self._mark()
        last = max([seq for seq, _ in files.commits_after(self._home, mark)], default=mark)
        if found := gaps(self._folder, {self._name: last}).get(self._name):
            raise Damaged(told(self._name, found, self._folder))
        return last, mark

    def commit(self, seq: int, tables: Mapping[str, pa.Table]) -> int:
        """Write a commit directory."""
        return files.commit(self._home, seq, tables)

    def compact(self) -> int:
        """Fold the commits of the store."""
        try:
            compact(self._folder)
        except Quarantine as error:
            if self._name in error.found:
                raise  # others' are not ours to tell
        return self._mark()

    def close(self) -> None:
        """Release the lock."""
        self._heart.stop()
        self._lock.close()

    def _beat(self) -> None:
        with suppress(OSError):
            os.utime(self._lock.fileno())  # readers look at the time of LOCK

    def _mark(self) -> int:
        return files.read_current(self._folder).mark.get(self._name, -1)

    def _fresh(self, name: str) -> str:
        while True:
            run = proposed(name)
            try:
                (self._folder / "commits" / run).mkdir()
            except FileExistsError:
                continue
            return run
