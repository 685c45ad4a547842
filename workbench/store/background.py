"""A background thread that writes records in order; nothing that was handed over is ever dropped.

The queue is bounded: `put` waits while it is full. After an error the thread rests with the failed record still at the
head of the queue, until `retry`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Record = TypeVar("Record")


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
