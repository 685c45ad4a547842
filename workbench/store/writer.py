"""Records a run: one commit directory per step, written by a background thread.

`append` checks the ledger and hands the step over; it waits only while the bounded queue is full, and says so as an
event. An error of the background thread (a full disk) is raised at the next call; what was handed over stays in memory
and `retry()` writes it once there is room. `committed` is the last step that is durable.

Beliefs: the first record of an attempt holds every prompt of every method (record `beliefs(0, ...)` before the first
step to have the priors); after that a step writes the prompts it observed and those whose mean, low or high moved by
more than `tolerance` since they were last written. A view draws prompts x steps by forward fill; exact values anywhere
come from folding.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import re
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa

from workbench.store import folder as files
from workbench.store import ledger, tables
from workbench.store.compaction import compact, is_due
from workbench.store.errors import LedgerError, RunBusyError, StoreError
from workbench.store.reader import Store
from workbench.store.schema import SCHEMA_VERSION
from workbench.types import Event, Pool, Rollouts, Step

ENDINGS = ("finished", "stopped", "failed")
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
Beliefs = Mapping[str, Mapping[str, np.ndarray]]


@dataclass
class _Commit:
    """What is to be written in one piece; beliefs are resolved when its turn comes."""

    kind: str
    step: int
    tables: list[tables.Tables]
    time: datetime = field(default_factory=lambda: datetime.now(UTC).replace(tzinfo=None))
    beliefs: Beliefs = field(default_factory=dict)
    observed: np.ndarray | None = None
    events: list[tuple[Event, str]] = field(default_factory=list)


class Writer:
    """Records one run into a store folder; one writer per run at a time.

    experiment, world and who (verb -> method names) are JSON-able; experiment may name `name` and `seed`. An unknown
    run id starts a run of that name, a known one goes on with it: `start` is the first step that will be recorded
    (default: after the last one), and steps from there on recorded earlier are hidden, not deleted.
    """

    def __init__(
        self,
        folder: str | Path,
        experiment: Mapping[str, object],
        pool: Pool,
        evaluation: Pool | None = None,
        *,
        run: str | None = None,
        parent: str | None = None,
        parent_step: int | None = None,
        world: Mapping[str, object] | None = None,
        who: Mapping[str, list[str]] | None = None,
        start: int | None = None,
        tolerance: float = 0.01,
        queue: int = 8,
        compacting: bool = True,
    ) -> None:
        self.folder = Path(folder).resolve()
        self.pool, self.evaluation_pool = pool, evaluation
        self.tolerance = tolerance
        files.create(self.folder)
        self.run, self._home, self._lock = _claim(self.folder, run, str(experiment.get("name") or "run"))
        self._name = f"{self.run}/r0"
        self._seq = files.last_commit(self.folder, self._name, self._home) + 1
        self._estimator = "+".join((who or {}).get("estimate", [])) or "unknown"
        self._carried: dict[str, int] = {}
        self._evaluated: set[int] = set()
        self._written: dict[str, dict[str, np.ndarray]] = {}
        self.attempt, self.step = self._history(start)
        self.committed = self.step
        self._queue: deque[_Commit] = deque()
        self._room, self._condition = queue, threading.Condition()
        self._error: BaseException | None = None
        self._closing = self._closed = False
        self._compacting, self._compactor = compacting, None
        self._put(_Commit("open", self.step, self._opening(experiment, parent, parent_step, world, who)))
        self._thread = threading.Thread(target=self._work, name=f"recorder {self.run}", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)
        try:
            self.flush()
        except BaseException:
            self._release()
            raise

    def append(self, step: Step, beliefs: Beliefs | None = None, evaluation: Rollouts | None = None) -> None:
        """Record a finished step, the beliefs after it, and an evaluation made after it.

        Raises LedgerError where it does not add up (nothing is recorded then), StoreError where an earlier step
        could not be written."""
        self._check_open()
        if step.step <= self.step:
            raise StoreError(
                f"step {step.step} of {self.run} was already recorded (last step {self.step}); to go back, open "
                f"Writer(..., run={self.run!r}, start={step.step})"
            )
        if (step.prompts >= len(self.pool)).any() or (step.plan.prompt >= len(self.pool)).any():
            raise LedgerError(f"step {step.step} names a prompt row beyond the {len(self.pool)} of the pool")
        seen = ledger.origins(step.step, step.rollouts, step.plan, self._carried)
        ledger.check(step, seen, self.pool)
        commit = _Commit("step", step.step, [])
        commit.beliefs = self._checked(beliefs or {})
        commit.observed = np.unique(np.concatenate([step.prompts, step.rollouts.prompt]))
        commit.tables.append(tables.step_tables(step, seen, self.pool, self._estimator, commit.time))
        commit.events = [(event, "step") for event in step.events]
        if evaluation is not None:
            commit.tables.append(self._evaluation_tables(step.step, evaluation))
        self._put(commit)
        if evaluation is not None:
            self._evaluated.add(step.step)
        self._carried = ledger.carried_out(step.rollouts, step.fate, self._carried, seen, step.plan)
        self.step = step.step

    def evaluation(self, step: int, rollouts: Rollouts) -> None:
        """Record an evaluation made after a step (0: before any update), rows of the evaluation pool."""
        self._check_open()
        self._put(_Commit("evaluation", step, [self._evaluation_tables(step, rollouts)]))
        self._evaluated.add(step)

    def beliefs(self, step: int, beliefs: Beliefs) -> None:
        """Record beliefs outside a step, above all the priors as step 0."""
        self._check_open()
        self._put(_Commit("beliefs", step, [], beliefs=self._checked(beliefs)))

    def command(
        self, kind: str, payload: Mapping[str, object] | None = None, step: int | None = None, who: str = ""
    ) -> None:
        """Record what the researcher did; step = the last finished step when it was done."""
        self._check_open()
        commit = _Commit("note", self.step if step is None else step, [])
        commit.tables.append({"commands": {"step": [commit.step], "time": commit.time, "kind": kind,
                                           "payload": tables.to_json(payload or {}), "who": who}})  # fmt: skip
        self._put(commit)

    def event(self, event: Event, step: int | None = None, source: str = "session") -> None:
        """Record something worth telling that is not part of a step."""
        self._check_open()
        self._put(_Commit("note", self.step if step is None else step, [], events=[(event, source)]))

    def flush(self) -> None:
        """Wait until all that was handed over is durable; raise what went wrong."""
        with self._condition:
            self._condition.wait_for(lambda: not self._queue or self._error is not None)
        self._raise()

    def retry(self) -> None:
        """After a write error: try again what is still in memory, and wait for it."""
        with self._condition:
            self._error = None
            self._condition.notify_all()
        self.flush()

    def close(self, status: str = "finished", message: str = "") -> None:
        """Write what is left and how the run ended (finished, stopped, failed); once more where writing had failed."""
        if self._closed:
            return
        if status not in ENDINGS:
            raise StoreError(f"a run ends as one of {', '.join(ENDINGS)}, not as {status!r}")
        if not self._closing:
            end = _Commit("close", self.step, [])
            end.tables.append({"statuses": {"attempt": [self.attempt], "status": status, "time": end.time,
                                            "last_step": self.step, "message": message}})  # fmt: skip
            with self._condition:
                self._queue.append(end)
                self._closing = True
                self._condition.notify_all()
        try:
            self.flush()
        except StoreError:
            self.retry()
        self._release()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            self.close()
        elif isinstance(error, KeyboardInterrupt):
            self.close("stopped")
        else:
            with contextlib.suppress(StoreError):
                self.close("failed", f"{type(error).__name__}: {error}")

    def __repr__(self) -> str:
        return f"Writer({self.run} in {self.folder}: step {self.step} handed over, {self.committed} durable)"

    def _history(self, start: int | None) -> tuple[int, int]:
        """(attempt, last step that holds), from what earlier attempts recorded."""
        if self._seq == 0:
            return 0, (start or 1) - 1
        store = Store.open(self.folder)
        try:
            found = store.sql("SELECT max(attempt) + 1, (SELECT max(step) FROM steps WHERE run = $run)"
                              " FROM attempts WHERE run = $run", {"run": self.run})  # fmt: skip
            attempt, last = (column[0].as_py() for column in found.columns)
            step = (last or 0) if start is None else start - 1
            known = store.sql("SELECT prompt_id FROM prompts WHERE run = $run AND pool = 'train' ORDER BY position",
                              {"run": self.run})["prompt_id"].to_pylist()  # fmt: skip
            if known != self.pool.ids.tolist():
                raise StoreError(f"{self.run} was recorded with another pool ({len(known)} prompts, not {len(self.pool)}"
                                 " or other ids); start a new run with parent and parent_step")  # fmt: skip
            rows = store.sql(
                "SELECT rollout_id, arg_max(length, step) FROM rollouts JOIN fates USING (run, rank, step, row, rollout_id)"
                " WHERE run = $run AND step <= $step GROUP BY rollout_id HAVING arg_max(fate, step) = 'carried'",
                {"run": self.run, "step": step},
            )
            self._carried = dict(zip(rows[0].to_pylist(), rows[1].to_pylist(), strict=True))
            return attempt or 0, step
        except BaseException:
            self._lock.close()
            raise
        finally:
            store.close()

    def _opening(self, experiment, parent, parent_step, world, who) -> list[tables.Tables]:
        now = datetime.now(UTC).replace(tzinfo=None)
        made: list[tables.Tables] = []
        if self.attempt == 0:
            seed = experiment.get("seed")
            row = {"started": now, "name": str(experiment.get("name") or "run"), "experiment": tables.to_json(experiment),
                   "world": tables.to_json(world or {}), "seed": None if seed is None else int(seed),  # type: ignore[call-overload]
                   "parent": parent, "parent_step": parent_step, "n_prompts": [len(self.pool)],
                   "n_evaluation": len(self.evaluation_pool) if self.evaluation_pool is not None else 0}  # fmt: skip
            pools = {"train": self.pool} | ({} if self.evaluation_pool is None else {"eval": self.evaluation_pool})
            made += [{"runs": row}, tables.prompt_tables(pools)]
        attempt = {"attempt": [self.attempt], "from_step": self.step + 1, "started": now,
                   "pipeline": tables.to_json(who or {}), "code_version": _version("rollout-workbench"),
                   "machine": tables.to_json(_machine())}  # fmt: skip
        return [*made, {"attempts": attempt}]

    def _evaluation_tables(self, step: int, rollouts: Rollouts) -> tables.Tables:
        if self.evaluation_pool is None:
            raise StoreError("this run has no evaluation pool; give Writer(..., evaluation=pool)")
        if step in self._evaluated:
            raise StoreError(f"the evaluation of step {step} was already recorded")
        seen = ledger.origins(step, rollouts, None, {})
        ledger.check_rows(f"evaluation of step {step}", rollouts, seen, self.evaluation_pool)
        if (rollouts.purpose != "eval").any():
            raise LedgerError(f"evaluation of step {step}: all rollouts must have the purpose 'eval'")
        row = -1 - np.arange(len(rollouts))
        failed = rollouts.failure != ""
        fate = np.where(failed, "failed", "dropped").astype(object)
        reason = np.where(failed, rollouts.failure, "purpose").astype(object)
        return {
            **tables.rollout_tables(step, rollouts, seen, self.evaluation_pool, row),
            **tables.fate_table(step, rollouts, seen, self.evaluation_pool, row, fate, reason),
        }

    def _checked(self, beliefs: Beliefs) -> Beliefs:
        for method, columns in beliefs.items():
            for name, column in columns.items():
                if np.shape(column) != (len(self.pool),):
                    raise StoreError(f"belief {method}.{name} has shape {np.shape(column)}, not ({len(self.pool)},)")
        return beliefs

    def _put(self, commit: _Commit) -> None:
        with self._condition:
            if self._error is None and len(self._queue) >= self._room:
                began = time.perf_counter()
                self._condition.wait_for(lambda: len(self._queue) < self._room or self._error is not None)
                waited = time.perf_counter() - began
                text = f"the loop waited {waited:.2f} s because {self._room} commits were still being written"
                commit.events.append((Event("warning", "recorder", text), "store"))
            if self._error is None:
                self._queue.append(commit)
                self._condition.notify_all()
        self._raise()

    def _check_open(self) -> None:
        if self._closing:
            raise StoreError(f"the writer of {self.run} is closed")
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            step = self._queue[0].step
            raise StoreError(
                f"step {step} of {self.run} could not be written to {self.folder}: {self._error}. All {self.committed} "
                f"steps before it are safe on disk and {len(self._queue)} records wait in memory; make room (or give "
                "write permission) and call writer.retry()"
            ) from self._error

    def _work(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: (self._queue and self._error is None) or self._closed)
                if self._closed:
                    return
                commit = self._queue[0]
            try:
                self._write(commit)
            except BaseException as error:
                with self._condition:
                    self._error = error
                    self._condition.notify_all()
                continue
            with self._condition:
                self._queue.popleft()
                if commit.kind == "step":
                    self.committed = commit.step
                self._condition.notify_all()
            self._compact()

    def _write(self, commit: _Commit) -> None:
        key = {"run": self.run, "rank": 0, "seq": self._seq}
        parts = [{"commits": {"attempt": [self.attempt], "kind": commit.kind, "step": commit.step, "time": commit.time,
                              "schema_version": SCHEMA_VERSION}},
                 *commit.tables, tables.event_table(commit.events, commit.step, commit.time)]  # fmt: skip
        chosen = self._moved(commit)
        if commit.beliefs:
            parts.append(tables.belief_table(commit.step, commit.beliefs, chosen, self.pool))
        made: dict[str, list[pa.Table]] = {}
        for part in parts:
            for name, columns in part.items():
                made.setdefault(name, []).append(tables.arrow(name, columns, key))
        files.commit(self._home, self._seq, {n: pa.concat_tables(t) for n, t in made.items()})
        self._seq += 1
        for method, rows in chosen.items():
            self._written.setdefault(method, _blank(len(self.pool)))
            for name, kept in self._written[method].items():
                kept[rows] = np.asarray(commit.beliefs[method].get(name, kept), float)[rows]

    def _moved(self, commit: _Commit) -> dict[str, np.ndarray]:
        """Method -> rows of the pool whose belief is to be written."""
        chosen = {}
        for method, columns in commit.beliefs.items():
            if method not in self._written:
                chosen[method] = np.arange(len(self.pool))
                continue
            moved = np.zeros(len(self.pool), bool)
            if commit.observed is not None:
                moved[commit.observed] = True
            for name, kept in self._written[method].items():
                now = np.asarray(columns.get(name, kept), float)
                moved |= (np.abs(now - kept) > self.tolerance) | (np.isnan(now) != np.isnan(kept))
            chosen[method] = np.flatnonzero(moved)
        return chosen

    def _compact(self) -> None:
        if not self._compacting or (self._compactor and self._compactor.is_alive()):
            return
        if is_due(self._seq, files.read_current(self.folder).mark.get(self._name, -1)):
            self._compactor = threading.Thread(target=self._compact_quietly, name="compactor", daemon=True)
            self._compactor.start()

    def _compact_quietly(self) -> None:
        try:
            compact(self.folder)
        except Exception as error:  # the commits are all there: reading is only slower
            self._compacting = False
            event = Event("warning", "compaction", f"{type(error).__name__}: {error}; commits stay as they are")
            with self._condition:
                if not self._closing:
                    self._queue.append(_Commit("note", self.step, [], events=[(event, "store")]))
                    self._condition.notify_all()

    def _at_exit(self) -> None:
        with contextlib.suppress(Exception):
            self.flush()

    def _release(self) -> None:
        with self._condition:
            self._closed = self._closing = True
            self._condition.notify_all()
        self._thread.join()
        if self._compactor is not None:
            self._compactor.join()
        atexit.unregister(self._at_exit)
        self._lock.close()


def _blank(n: int) -> dict[str, np.ndarray]:
    return {name: np.full(n, np.nan) for name in ("mean", "low", "high")}


def _claim(folder: Path, run: str | None, name: str):
    """(run id, its folder, the lock held): a fresh id, or the one asked for."""
    if run is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}", run):
        raise StoreError(f"run id {run!r} must be letters, digits, '.', '_' and '-', at most 101 of them")
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
    day = datetime.now(UTC).date().isoformat()
    while True:
        chosen = run or f"{day}-{slug}-{''.join(secrets.choice(LETTERS) for _ in range(4))}"
        try:
            (folder / "commits" / chosen).mkdir(exist_ok=run is not None)
            break
        except FileExistsError:
            continue
    home = folder / "commits" / chosen / "r0"
    home.mkdir(exist_ok=True)
    for _ in range(50):  # a reader looking whether we live holds the lock for an instant
        held = files.lock(home / "LOCK")
        if held is not None:
            break
        time.sleep(0.02)
    else:
        who = (home / "LOCK").read_text(encoding="utf-8").strip() or "another writer"
        raise RunBusyError(f"run {chosen} is being written by {who}; stop it, or start a run under another id")
    held.truncate(0)
    held.write(f"process {os.getpid()} on {platform.node()}\n")
    held.flush()
    return chosen, home, held


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _machine() -> dict[str, object]:
    packages = ("numpy", "pyarrow", "duckdb", "torch", "transformers")
    return {"host": platform.node(), "process": os.getpid(), "platform": platform.platform(), "processors": os.cpu_count(),
            "python": sys.version.split()[0], "packages": {p: _version(p) for p in packages}}  # fmt: skip
