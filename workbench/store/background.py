"""Background threads of a writer: one writes records in order, one compacts the store while that goes on, one gives signs
of life.

Nothing that was handed over is ever dropped. The queue is bounded: `put` waits while it is full. After an error the thread
rests with the failed record still at the head of the queue, until `retry`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Record = TypeVar("Record")

FEWEST, MOST = 64, 512
"""Commits that wait for the writer's next compaction: an eighth of those compacted, within these bounds."""

TAIL_BYTES = 64 * 1024 * 1024
"""And bytes of them: readers hold in memory what is not compacted."""


BEAT, STILL = 5.0, 45.0
"""Seconds between two signs of life of a writer, and after how many without one it counts as stopped."""


class Heartbeat:
    """Calls beat() every few seconds while the process runs, so that readers know a trainer that was stopped, or whose
    children outlived it, from one that trains."""

    def __init__(self, beat: Callable[[], object], name: str) -> None:
        self._beat, self._ended = beat, threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No more signs of life."""
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.wait(BEAT):
            self._beat()


class Recorder(Generic[Record]):
    """Calls write(record) for every record, in order, in a thread of its own. room: records that may wait."""

    def __init__(self, write: Callable[[Record], None], room: int, name: str) -> None:
        self._write, self._room = write, room
        self._queue: deque[Record] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> list[Record]:
        """Records that are not durable yet, in order."""
        with self._changed:
            return list(self._queue)

    def put(self, record: Record, *, waited: Callable[[float], None] | None = None) -> bool:
        """Hand a record over; False (and not taken) while an error stands.

        Where the queue was full, waited(seconds) is called before the record is taken. Without waited it goes in at
        once, full or not."""
        with self._changed:
            if waited is not None and self.error is None and len(self._queue) >= self._room:
                began = time.perf_counter()
                self._changed.wait_for(lambda: len(self._queue) < self._room or self.error is not None)
                waited(time.perf_counter() - began)
            if self.error is not None and waited is not None:
                return False
            self._queue.append(record)
            self._changed.notify_all()
            return True

    def flush(self) -> None:
        """Wait until everything is written, or an error stands."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue or self.error is not None)

    def retry(self) -> None:
        """Forget the error and try again from the failed record on; waits like flush."""
        with self._changed:
            self.error = None
            self._changed.notify_all()
        self.flush()

    def stop(self) -> None:
        """End the thread; what still waits is not written."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or (self._queue and self.error is None))
                if self._stopped:
                    return
                record = self._queue[0]
            error = None
            try:
                self._write(record)
            except BaseException as raised:
                error = raised
            with self._changed:
                self.error = error
                if error is None:
                    self._queue.popleft()
                self._changed.notify_all()


def is_due(seq: int, mark: int, held: int = 0) -> bool:
    """Whether a writer at commit seq, compacted up to mark, should compact: cost per commit stays bounded.

    held: bytes of the commits that wait."""
    waiting = seq - 1 - mark
    return waiting >= min(max((mark + 1) // 8, FEWEST), MOST) or (waiting >= FEWEST // 4 and held >= TAIL_BYTES)


class Compactor:
    """Calls fold(), which returns the last commit that is folded then, one call at a time.

    folded: the last commit that was before, -1 for none. Where it fails, failed(error) is called and nothing is compacted
    any more: the commits are all there, reading is only slower. A compactor that is not on does nothing."""

    def __init__(self, fold: Callable[[], int], folded: int, failed: Callable[[Exception], None], on: bool) -> None:
        self._fold, self._folded, self._failed, self._on = fold, folded, failed, on
        self._held = 0  # bytes of commits that the next compaction will fold
        self._thread: threading.Thread | None = None

    def wrote(self, seq: int, n_bytes: int) -> None:
        """Another commit is there, of so many bytes that readers hold; seq: the number of the next one."""
        self._held += n_bytes
        if not self._on or (self._thread and self._thread.is_alive()):
            return
        if is_due(seq, self._folded, self._held):
            self._held = 0
            self._thread = threading.Thread(target=self._work, name="compactor", daemon=True)
            self._thread.start()

    def join(self) -> None:
        """Wait for the compaction that is under way."""
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            self._folded = self._fold()
        except Exception as error:
            self._on = False
            self._failed(error)
