"""Records a run into a shared catalog: a commit is one DuckLake transaction over all tables.

What a step is, and everything before it is written, is `Writer`'s; here is where it goes. Appends of several writers
never conflict: DuckLake numbers their snapshots and tries again by itself. Where the server's answer to a commit was
lost, the next try looks first whether (run, rank, seq) is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa

from workbench.store.errors import RunBusyError, StoreError
from workbench.store.folder import claim
from workbench.store.folder.writer import Writer
from workbench.store.lake.care import compact_lake
from workbench.store.lake.catalog import Lake, connect, explained, told
from workbench.store.lake.lock import Lock, attach_to_write
from workbench.store.urls import redacted

TRIES = 4
"""Of a commit, a quarter of a second, a half and one apart, before the error goes to `retry()`."""


class LakeWriter(Writer):
    """Records one run into a shared catalog; made by `Writer("ducklake:postgres:...", ...)`."""

    REMEDY = "see that the server runs and the data folder has room"

    def _claim(self, folder: str | Path, run: str | None, name: str) -> None:
        self.lake = self.folder = Lake.parse(folder)  # type: ignore[assignment]
        claim.check_id(run, self.rank)
        self._con = connect(self.lake, writes=True)
        self._doubt = False  # whether the last try may have been committed after all
        try:
            self.data = attach_to_write(self._con, self.lake)
            self._take_run(run, name)
        except BaseException:
            self._con.close()
            raise

    def _take_run(self, run: str | None, name: str) -> None:
        while True:
            self.run = run or claim.proposed(name)
            self._lock = _Held(self._con, self.lake, self._name)
            if not self._lock.take():
                if run is None:
                    continue
                what = f"rank {self.rank} of run {run}" if self.rank else f"run {run}"
                who = self._lock.holder()
                raise RunBusyError(f"{what} is being written by {who}; stop it, or start a run under another id")
            if run is not None or self._found()[0] < 0:
                return
            self._lock.release()

    def _found(self) -> tuple[int, int]:
        with told(self.lake):
            last = self._con.execute(
                "SELECT coalesce(max(seq), -1) FROM lake.commits WHERE run = ? AND rank = ?", [self.run, self.rank]
            ).fetchone()[0]  # type: ignore[index]
        return last, last  # compaction counts from here

    def _keep(self, made: Mapping[str, pa.Table]) -> int:
        rows = {name: table for name, table in made.items() if len(table)}
        if "runs" in rows:
            rows["runs"] = _without_password(rows["runs"])
        for left in reversed(range(TRIES)):
            try:
                self._lock.sure()
                if not (self._doubt and self._is_there()):
                    self._doubt = True
                    self._commit(rows)
                self._doubt = False
                return sum(table.nbytes for table in rows.values())
            except RunBusyError:
                raise
            except (duckdb.Error, StoreError) as error:
                if not left:
                    raise StoreError(explained(self.lake, error)) from error
                time.sleep(2.0 ** (1 - left) / 2)
        raise AssertionError("unreachable")

    def _commit(self, rows: Mapping[str, pa.Table]) -> None:
        con = self._con
        con.execute("BEGIN TRANSACTION")
        try:
            for name, table in rows.items():
                con.register("handed_over", table)
                con.execute(f"INSERT INTO lake.{name} BY NAME SELECT * FROM handed_over")
            con.execute("COMMIT")
        except BaseException:
            with suppress(duckdb.Error):
                con.execute("ROLLBACK")
            raise
        finally:
            with suppress(duckdb.Error):
                con.unregister("handed_over")

    def _is_there(self) -> bool:
        query = "SELECT count(*) FROM lake.commits WHERE run = ? AND rank = ? AND seq = ?"
        return bool(self._con.execute(query, [self.run, self.rank, self._seq]).fetchone()[0])  # type: ignore[index]

    def _fold(self) -> int:
        last = self._seq - 1
        compact_lake(self.lake)
        return last


class _Held(Lock):
    """The lock of the run; closing it closes the connection, since nothing is written without it."""

    def __init__(self, con: duckdb.DuckDBPyConnection, lake: Lake, what: str) -> None:
        super().__init__(con, lake, what)
        self._whole = con

    def release(self) -> None:
        """Let go, and keep the connection."""
        super().close()

    def close(self) -> None:
        """Let go of lock and connection."""
        super().close()
        self._whole.close()


def _without_password(runs: pa.Table) -> pa.Table:
    """The experiment names its store: what others read must not name its password."""
    kept = []
    for text in runs["experiment"].to_pylist():
        experiment = json.loads(text)
        if isinstance(experiment.get("store"), str):
            experiment["store"] = redacted(experiment["store"])
        kept.append(json.dumps(experiment, ensure_ascii=False))
    at = runs.schema.get_field_index("experiment")
    return runs.set_column(at, runs.schema.field(at), pa.array(kept, runs.schema.field(at).type))
