"""Verifiers (reward functions) of a researcher, each completion in a sandbox: a process of its own, with limits.

A verifier that raises, hangs, dies, eats memory or returns nonsense costs one null reward and never the run. Each of
`workers` servers takes the next completion as soon as it is free, so one that hangs holds up no other; see
`tasks.sandbox`. `submit` returns at once: finished batches are judged while the next ones are generated.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from workbench.tasks.fingerprint import source_of
from workbench.tasks.process import START_SECONDS, Gone, Hang, Worker, order_of
from workbench.tasks.sandbox.worker import checked, failed
from workbench.tasks.verifiers import REWARDS, Verdicts
from workbench.types import Pool

PATIENCE = 10
"""Time-outs in a row after which a verifier is given up for the rest of the run."""

VERDICT_WEIGHS, CREDIT = 3, 40
"""A verdict takes back so many time-outs, and up to so many before they happen: a verifier is given up that hangs on
more than three completions of four from the start, or on 50 in a row after it has worked."""


def spare_cores() -> int:
    """Processes that may judge beside the training: half of the cores, at least one, at most eight."""
    return min(8, max(1, (os.cpu_count() or 1) // 2))


class Judge(Protocol):
    """What decides on the result of an execution, in the trainer: what is executed never sees the answer."""

    def question(self, answer: str) -> Mapping[str, Any]:
        """What of an answer the execution may know; goes into its `row`."""
        ...

    def verdict(self, result: str | None, answer: str) -> Mapping[str, Any]:
        """The verdict, as a verifier returns it, on what came back as JSON; None where nothing did."""
        ...


class _Seat:
    """A place in the pool: the process that sits there, if one does."""

    def __init__(self) -> None:
        self.worker: Worker | None = None

    def drop(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.close()


class Isolated:
    """A researcher's verifier, `verify(completion, answer)` or `verify(completion, answer, row)`, or of many at once.

    It returns a bool, a number, or a mapping with "reward" and, if it likes, "correct" (0 or 1), "answer" (text) and
    further named parts, None or NaN for a part that does not apply; row is a mapping with id, text, prefix, stratum,
    messages, and the columns of the table that have no role, under their names. Without "correct" a reward of at least 1,
    within 1e-9, counts as correct. parts: the names of the parts it returns, so that every step has the same columns.

    A verifier with a parameter `completions` gets lists, by name, and returns one of the above for each: prompts,
    completions, answer, and the columns of the row, of which it gets those that it names, all with `**kwargs`. Reward
    functions of TRL have this form. timeout is then for the whole list.

    sandbox: whether each call is a process of its own, without network, environment and memory of earlier calls, which
    writes to a folder of its own; read `docs/security.md`. False is for verifiers that never execute what they judge:
    they are called in a lasting process with the trainer's rights. memory: bytes of address space each process may use,
    None for no limit (a verifier that loads CUDA needs None). workers: servers, None for half of the cores.

    judge: decides on what verify(completion, row) returns, which is JSON and never sees the answer; see `Judge`. The
    execution then reads nothing but Python's own library, and what it does wrong is a result of None.
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
        sandbox: bool = True,
        judge: Judge | None = None,
    ) -> None:
        if rewards not in REWARDS:
            raise ValueError(f"rewards={rewards!r}; it is one of {', '.join(REWARDS)}")
        if timeout <= 0:
            raise ValueError(f"timeout={timeout}; a verifier needs some time for a completion")
        if workers is not None and workers < 1:
            raise ValueError(f"workers={workers}; a verifier needs at least one process")
        self.name = verify if isinstance(verify, str) else getattr(verify, "__qualname__", type(verify).__name__)
        self.timeout, self.rewards, self.parts, self.memory = timeout, rewards, tuple(parts), memory
        self.sandbox = "none" if not sandbox else "full" if judge is None else "stdlib"
        self._judge = judge
        self._order = order_of(verify)
        self.source = source_of(verify)
        self._lock = threading.Lock()
        self._seats = [_Seat() for _ in range(workers or spare_cores())]
        self._queue: ThreadPoolExecutor | None = None
        self._warned: set[str] = set()
        self._hung, self._counting = 0, threading.Lock()

    def __repr__(self) -> str:
        return f"Isolated({self.name!r}, timeout={self.timeout})"

    @property
    def given_up(self) -> bool:
        """Whether so many calls have hung that there are no more in this run."""
        return self._hung >= PATIENCE

    def start(self) -> Isolated:
        """Start a process now, so that a verifier that cannot be loaded is an error at once."""
        with self._lock:
            try:
                lacks = self._ready(self._seats[0]).lacks
            except Hang:
                raise ValueError(f"verifier {self.name!r} was not loaded in {START_SECONDS:.0f} s") from None
            except Gone:
                raise ValueError(f"the process of verifier {self.name!r} ended while it was loaded") from None
            except ValueError as error:
                raise ValueError(f"verifier {self.name!r} cannot be loaded: {error}") from None
        if lacks:
            self._warn(
                f"its sandbox has no {', no '.join(lacks)} on this machine; docs/security.md says what that means"
            )
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
        stopped = threading.Event()
        with self._lock:
            at_once = self._is_batch() and len(rows)
            jobs = [range(len(rows))] if at_once else [range(i, i + 1) for i in range(len(rows))]
            left = iter(jobs)

            def serve(seat: _Seat) -> None:
                for job in left:  # next() on a list's iterator is one step of the interpreter: two threads get two jobs
                    if stopped.is_set():
                        return
                    given = [text[i] for i in job], pool, [int(rows[i]) for i in job]
                    outcomes[job.start : job.stop] = self._outcomes(seat, *given)

            busy = self._seats[: max(1, min(len(self._seats), len(jobs)))]
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
            seat.worker = Worker(self._order, self.memory, self.sandbox)
        return seat.worker

    def _is_batch(self) -> bool:
        """Whether the verifier takes lists; one that cannot be started says so when it is called."""
        try:
            return self._ready(self._seats[0]).batch
        except (Hang, Gone, ValueError, OSError):
            return False

    def _outcomes(self, seat: _Seat, text: list[str], pool: Pool, rows: list[int]) -> list[dict]:
        """The outcomes of one call on completions of some rows."""
        if self.given_up:
            why = f"given up: no verdict within {self.timeout} s, {PATIENCE} times and more in a row"
            return [failed("verifier_timeout", why)] * len(rows)
        try:
            worker = self._ready(seat)
        except (Hang, Gone, ValueError, OSError) as error:
            why = f"could not be started again: {str(error) or type(error).__name__}"
            return [failed("verifier_died", why)] * len(rows)
        answer = [str(pool.answer[row]) for row in rows]
        job = {"n": len(rows), "kept": self._judge is not None, **self._arguments(worker, text, answer, pool, rows)}
        try:
            outcomes = worker.ask(job, self.timeout)
        except Hang:
            seat.drop()
            outcomes = [failed("verifier_timeout", f"no verdict within {self.timeout} s")] * len(rows)
        except (Gone, ValueError):
            seat.drop()
            outcomes = [failed("verifier_died", "the process ended without a verdict")] * len(rows)
        except BaseException:  # interrupted: a verdict that comes later must not be taken for the next one's
            seat.drop()
            raise
        if outcomes[0].get("failure") == "verifier_unavailable":
            return [o | {"failure": "verifier_died"} for o in outcomes]
        if self._judge is not None:
            return [self._decided(o, a) for o, a in zip(outcomes, answer, strict=True)]
        with self._counting:
            hung = outcomes[0].get("failure") == "verifier_timeout"
            self._hung = self._hung + 1 if hung else max(self._hung - VERDICT_WEIGHS, -CREDIT)
        return outcomes

    def _arguments(
        self, worker: Worker, text: list[str], answer: list[str], pool: Pool, rows: list[int]
    ) -> dict[str, object]:
        """What a call is given: arguments by place, and those by name of which the verifier takes what it has."""
        if self._judge is not None:
            return {"plain": [text[0], {**_columns(pool, rows[0]), **self._judge.question(answer[0])}], "named": {}}
        columns = [_columns(pool, row) for row in rows] if worker.takes_row or worker.batch else []
        if not worker.batch:
            return {"plain": [text[0], answer[0]], "named": {"row": columns[0]} if columns else {}}
        named = {name: [c[name] for c in columns] for name in columns[0] if name != "text"}
        named |= {"prompts": [c["text"] for c in columns], "completions": text, "answer": answer}
        return {"plain": [], "named": named}

    def _decided(self, outcome: dict, answer: str) -> dict:
        """The judge's verdict on an execution, whatever became of it."""
        assert self._judge is not None
        try:
            return checked(self._judge.verdict(outcome.get("result"), answer))
        except Exception as error:
            return failed("verifier_raised", error)

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


def _columns(pool: Pool, row: int) -> dict[str, object]:
    """What a verifier may know of a prompt beside its answer."""
    others = json.loads(pool.extra["row"][row] or "{}") if "row" in pool.extra else {}
    messages = pool.extra["messages"][row] if "messages" in pool.extra else ""
    given = {"id": pool.ids[row], "text": pool.text[row], "prefix": pool.prefix[row], "stratum": pool.stratum[row]}
    return {**others, **given, "messages": messages}
