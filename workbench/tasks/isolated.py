"""Sandbox for custom verifiers (reward functions): processes of their own, with a time and a memory limit for each.

A verifier that raises, hangs, dies, eats memory or returns nonsense costs one null reward and never the run. Each of
`workers` processes takes the next completion as soon as it is free, so one that hangs holds up no other; it is killed
and started again. `submit` returns at once: finished batches are judged while the next ones are generated.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from workbench.tasks.fingerprint import source_of
from workbench.tasks.process import START_SECONDS, Gone, Hang, Worker, order_of
from workbench.tasks.verifiers import REWARDS, Verdicts
from workbench.types import Pool

PATIENCE = 10
"""Hangs in one call after which the rest of its completions are given up as timed out."""


def spare_cores() -> int:
    """Processes that may judge beside the training: half of the cores, at least one, at most eight."""
    return min(8, max(1, (os.cpu_count() or 1) // 2))


class _Seat:
    """A place in the pool: the process that sits there, if one does."""

    def __init__(self) -> None:
        self.worker: Worker | None = None

    def drop(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.close()


class Isolated:
    """A researcher's verifier, `verify(completion, answer)` or `verify(completion, answer, row)`.

    It returns a bool, a number, or a mapping with "reward" and, if it likes, "correct" (0 or 1), "answer" (text) and
    further named parts, None or NaN for a part that does not apply; row is a mapping with id, text, prefix, stratum,
    messages, and the columns of the table that have no role, under their names. Without "correct" a reward of at least 1, within 1e-9, counts as correct. parts: the names of the parts it returns, so that every step has the same columns.
    memory: bytes of address space each process may use, None for no limit (a verifier that loads CUDA needs None).
    workers: processes, None for half of the cores. A verifier that keeps something between calls keeps it per process.
    """

    def __init__(
        self,
        verify: Callable | str,
        *,
        timeout: float = 5.0,
        rewards: str = "graded",
        parts: Sequence[str] = (),
        memory: int | None = 8 << 30,
        workers: int | None = None,
    ) -> None:
        if rewards not in REWARDS:
            raise ValueError(f"rewards={rewards!r}; it is one of {', '.join(REWARDS)}")
        if timeout <= 0:
            raise ValueError(f"timeout={timeout}; a verifier needs some time for a completion")
        if workers is not None and workers < 1:
            raise ValueError(f"workers={workers}; a verifier needs at least one process")
        self.name = verify if isinstance(verify, str) else getattr(verify, "__qualname__", type(verify).__name__)
        self.timeout, self.rewards, self.parts, self.memory = timeout, rewards, tuple(parts), memory
        self._order = order_of(verify)
        self.source = source_of(verify)
        self._lock = threading.Lock()
        self._seats = [_Seat() for _ in range(workers or spare_cores())]
        self._queue: ThreadPoolExecutor | None = None
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return f"Isolated({self.name!r}, timeout={self.timeout})"

    def start(self) -> Isolated:
        """Start a process now, so that a verifier that cannot be loaded is an error at once."""
        with self._lock:
            try:
                self._ready(self._seats[0])
            except Hang:
                raise ValueError(f"verifier {self.name!r} was not loaded in {START_SECONDS:.0f} s") from None
            except Gone:
                raise ValueError(f"the process of verifier {self.name!r} ended while it was loaded") from None
            except ValueError as error:
                raise ValueError(f"verifier {self.name!r} cannot be loaded: {error}") from None
        return self

    def close(self) -> None:
        """End the processes; the next call starts them again. What was submitted is judged before."""
        if self._queue is not None:
            self._queue.shutdown()
            self._queue = None
        with self._lock:
            for seat in self._seats:
                seat.drop()

    def submit(self, text: Sequence[str], pool: Pool, rows: np.ndarray) -> Future[Verdicts]:
        """As a call, in the background; calls are served in the order in which they were submitted."""
        if self._queue is None:
            self._queue = ThreadPoolExecutor(1, "verifier")
        return self._queue.submit(self, list(text), pool, np.array(rows))

    def __call__(self, text: Sequence[str], pool: Pool, rows: np.ndarray) -> Verdicts:
        """Verdicts on R completions of the pool's rows, in order."""
        outcomes: list[dict] = [{}] * len(rows)
        left = iter(range(len(rows)))
        hangs, stopped = [], threading.Event()

        def serve(seat: _Seat) -> None:
            for i in left:  # next() on a range iterator is one step of the interpreter: two threads get two numbers
                if stopped.is_set():
                    return
                if len(hangs) >= PATIENCE:
                    outcomes[i] = {
                        "failure": "verifier_timeout",
                        "message": f"given up after {len(hangs)} hangs in one call",
                    }
                    continue
                outcomes[i] = self._judge(seat, text[i], pool, int(rows[i]))
                if outcomes[i].get("failure") == "verifier_timeout":
                    hangs.append(i)

        with self._lock:
            busy = self._seats[: max(1, min(len(self._seats), len(rows)))]
            if len(busy) == 1:
                serve(busy[0])
            else:
                self._together(serve, busy, stopped)
        for outcome in outcomes:
            if "failure" in outcome:
                self._warn(str(outcome["message"]))
        return self._table(outcomes)

    @staticmethod
    def _together(serve: Callable[[_Seat], None], busy: list[_Seat], stopped: threading.Event) -> None:
        with ThreadPoolExecutor(len(busy)) as threads:
            running = [threads.submit(serve, seat) for seat in busy]
            try:
                for one in running:
                    one.result()
            except BaseException:  # interrupted: a verdict that comes later must not be taken for the next one's
                stopped.set()
                for seat in busy:
                    seat.drop()
                raise

    def _ready(self, seat: _Seat) -> Worker:
        if seat.worker is None:
            seat.worker = Worker(self._order, self.memory)
        return seat.worker

    def _judge(self, seat: _Seat, completion: str, pool: Pool, row: int) -> dict:
        try:
            worker = self._ready(seat)
        except (Hang, Gone, ValueError, OSError) as error:
            why = str(error) or type(error).__name__
            return {"failure": "verifier_died", "message": f"could not be started again: {why}"}
        job: dict[str, object] = {
            "completion": completion,
            "answer": pool.answer[row],
            "timeout": self.timeout,
            "with_row": worker.with_row,
            "row": None,
        }
        if worker.with_row:
            job["row"] = {
                **(json.loads(pool.extra["row"][row] or "{}") if "row" in pool.extra else {}),
                "id": pool.ids[row],
                "text": pool.text[row],
                "prefix": pool.prefix[row],
                "stratum": pool.stratum[row],
                "messages": pool.extra["messages"][row] if "messages" in pool.extra else "",
            }
        try:
            return worker.ask(job, self.timeout)
        except Hang:
            seat.drop()
            return {"failure": "verifier_timeout", "message": f"no verdict within {self.timeout} s"}
        except (Gone, ValueError):
            seat.drop()
            return {"failure": "verifier_died", "message": "the process ended without a verdict"}
        except BaseException:  # interrupted: a verdict that comes later must not be taken for the next one's
            seat.drop()
            raise

    def _table(self, outcomes: list[dict]) -> Verdicts:
        def column(name: str) -> np.ndarray:
            return np.array([o.get(name, np.nan) for o in outcomes], float)

        reward, correct = column("reward"), column("correct")
        if self.parts:
            found = [o.get("parts", {}) for o in outcomes]
            parts = {n: np.array([p.get(n, np.nan) for p in found], float) for n in self.parts}
            extra = sorted({n for p in found for n in p} - set(self.parts))
            if extra:
                self._warn(f"parts {', '.join(extra)} are not kept; name them in parts=")
        else:
            parts = {"score": reward}
        answer, failure, message = (np.full(len(outcomes), None, dtype=object) for _ in range(3))
        answer[:] = [o.get("answer") for o in outcomes]
        failure[:] = [o.get("failure", "") for o in outcomes]
        message[:] = [o.get("message", "") for o in outcomes]
        reward = correct.copy() if self.rewards == "binary" else reward
        return Verdicts(answer, reward, correct, parts, failure, message)

    def _warn(self, message: str) -> None:
        if message not in self._warned and len(self._warned) < 20:
            self._warned.add(message)
            warnings.warn(f"verifier {self.name}: {message}", RuntimeWarning, stacklevel=2)
