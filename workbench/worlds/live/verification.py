"""Verification of finished groups of rollouts while others are still being generated.

Only verifiers that run in processes of their own (`tasks.isolated`) gain by it: they are handed each group as soon as
its last rollout has ended. One that hangs holds up its own verdicts, never the generation. Others judge all at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np

from workbench.parallel import processes
from workbench.types import Pool, Ragged, Rollouts
from workbench.worlds.live.growing_rows import UNVERIFIED
from workbench.worlds.training import data_parallel

COLUMNS = ("answer", "reward", "correct", "failure")
"""What a verdict fills, beside the named parts of the reward."""


class Verification:
    """The verdicts on the rollouts of one call of `sample`. A context manager: leaving it early drops what is under way.

    early: whether groups may be handed in by `put` before all are there; nothing is done with them where it is False.
    """

    def __init__(self, task: Any, pool: Pool) -> None:
        self.task, self.pool = task, pool
        apart = hasattr(task, "score_each") and hasattr(getattr(task, "verifier", None), "submit")
        self.early = apart and processes.ranks() == 1
        self._parts: SimpleQueue[Rollouts | None] = SimpleQueue()
        self._put: set[str] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._scored: Future[list[Rollouts]] | None = None

    def put(self, part: Rollouts) -> None:
        """Have some rollouts judged from now on; their ids, prompts and texts are what counts."""
        if self._scored is None:
            self._thread = ThreadPoolExecutor(1, "verification")
            self._scored = self._thread.submit(self.task.score_each, iter(self._parts.get, None), self.pool)
        self._put |= set(part.id)
        self._parts.put(part)

    def finish(self, rows: Rollouts) -> Rollouts:
        """All rows with their verdicts; what was put is not judged again, what was cut off is not judged at all."""
        cut = np.isin(rows.finish, UNVERIFIED)
        if processes.ranks() > 1:
            return verify_together(self.task, rows, self.pool, np.flatnonzero(~cut))
        if self._scored is None and not cut.any():
            return self.task.score(rows, self.pool)
        rest = np.flatnonzero(~cut & ~np.isin(rows.id, list(self._put)))
        if self._scored is None:
            return filled(rows, [self.task.score(rows.take(rest), self.pool)] if len(rest) else [])
        if len(rest):
            self.put(rows.take(rest))
        self._parts.put(None)
        return filled(rows, self._scored.result())

    def __enter__(self) -> Verification:
        return self

    def __exit__(self, *error: object) -> None:
        self._parts.put(None)
        if self._thread is not None:
            self._thread.shutdown(wait=False)


def verify_together(task: Any, rows: Rollouts, pool: Pool, which: np.ndarray) -> Rollouts:
    """All rows, with the verdicts on those at which (K,), of which each process judges some."""
    own = rows.take(data_parallel.mine(which))
    return filled(rows, [p for p in processes.gather_results(lambda: task.score(own, pool)) if len(p)])


def filled(rows: Rollouts, parts: list[Rollouts]) -> Rollouts:
    """Rows with the verdicts of the parts, found by id; a row in no part gets no reward and no failure of its own.

    Extra columns that the task left go along; a row without a verdict has none of theirs: an empty ragged row, NaN, "" or None.
    """
    place = {id_: i for i, id_ in enumerate(rows.id)}
    columns = {
        "answer": np.full(len(rows), None, dtype=object),
        "reward": np.full(len(rows), np.nan),
        "correct": np.full(len(rows), np.nan),
        "failure": rows.failure.copy(),
    }
    rewards = {name: np.full(len(rows), np.nan) for part in parts for name in part.rewards}
    for part in parts:
        at = np.array([place[i] for i in part.id], np.int64)
        for name in COLUMNS:
            columns[name][at] = getattr(part, name)
        for name, values in part.rewards.items():
            rewards[name][at] = values
    left = dict.fromkeys(name for part in parts for name in part.extra if name not in rows.extra)
    extra = {name: _spread(name, parts, place) for name in left}
    return rows.with_(**columns, rewards={**rows.rewards, **rewards}, extra={**rows.extra, **extra})


def _spread(name: str, parts: list[Rollouts], place: Mapping[str, int]) -> np.ndarray | Ragged:
    """An extra column of some parts, at the places of their rows among all."""
    mine = [part for part in parts if name in part.extra]
    at = [place[i] for part in mine for i in part.id]
    columns = [part.extra[name] for part in mine]
    if isinstance(columns[0], Ragged):
        values = [column.values for column in columns]
        rows: list[np.ndarray] = [np.empty(0, np.result_type(*values))] * len(place)
        for i, row in zip(at, (row for column in columns for row in column.rows()), strict=True):
            rows[i] = row
        return Ragged.of(rows, np.result_type(*values))
    dense = np.concatenate(columns)
    if len(at) < len(place) and dense.dtype.kind in "biu":
        dense = dense.astype(float)  # whole numbers have no NaN
    whole = np.empty((len(place), *dense.shape[1:]), dense.dtype)
    if dense.dtype.kind == "f":
        whole[:] = np.nan
    elif dense.dtype.kind == "U":
        whole[:] = ""
    whole[at] = dense
    return whole
