"""Storage backend that writes a shared catalog: a commit is one DuckLake transaction over all tables.

Appends of several writers never conflict: DuckLake numbers their snapshots and tries again by itself. Where the server's
answer to a commit was lost, the next try looks first whether (run, rank, seq) is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

from workbench.store.background import Heartbeat
from workbench.store.errors import RunBusyError, StoreError
from workbench.store.lake.care import compact
from workbench.store.lake.catalog import Lake, connect, explained, reported
from workbench.store.lake.lock import Lock, attach_to_write
from workbench.store.rows.attempts import check_id, proposed
from workbench.store.statements import insert, transaction
from workbench.store.urls import redacted

TRIES = 4
"""Of a commit, a quarter of a second, a half and one apart, before the error goes to `retry()`."""


class LakeWriter:
    """Writes one rank of a run; RunBusyError where another process holds it. run None: a fresh id."""

    remedy = "see that the server runs and the data folder has room"

    def __init__(self, url: str | Path, run: str | None, name: str, rank: int) -> None:
        check_id(run, rank)
        self.lake, self.rank = Lake.parse(url), rank
        self.url, self.where = self.lake.url, str(self.lake)
        self._con = connect(self.lake, writes=True)
        self._doubt = False  # whether the last try may have been committed after all
        try:
            attach_to_write(self._con, self.lake)
            self._take_run(run, name)
        except BaseException:
            self._con.close()
            raise
        self._heart = Heartbeat(self.lock.beat, f"alive {self.run}/r{rank}")

    def _take_run(self, run: str | None, name: str) -> None:
        while True:
            self.run = run or proposed(name)
            self.lock = Lock(self._con, self.lake, f"{self.run}/r{self.rank}")
            if self.lock.take():
                self._last = self.progress()[0]
                if run is not None or self._last < 0:
                    return
            elif run is not None:
                raise RunBusyError.of(run, self.rank, self.lock.holder())
            self.lock.close()

    def progress(self) -> tuple[int, int]:
        """The last commit of this writer, -1 for none, twice: compaction counts from here."""
        with reported(self.lake):
            query = "SELECT coalesce(max(seq), -1) FROM lake.commits WHERE run = ? AND rank = ?"
            last = self._con.execute(query, [self.run, self.rank]).fetchone()[0]  # type: ignore[index]
        return last, last

    def commit(self, seq: int, tables: Mapping[str, pa.Table]) -> int:
        """Write a transaction, again where that fails."""
        rows = {name: table for name, table in tables.items() if len(table)}
        if "runs" in rows:
            rows["runs"] = _without_password(rows["runs"])
        for left in reversed(range(TRIES)):
            try:
                self.lock.sure()
                if not (self._doubt and self.progress()[0] >= seq):
                    self._doubt = True
                    self._commit(rows)
                self._doubt, self._last = False, seq
                return sum(table.nbytes for table in rows.values())
            except RunBusyError:
                raise
            except (duckdb.Error, StoreError) as error:
                if not left:
                    raise StoreError(explained(self.lake, error)) from None
                time.sleep(2.0 ** (1 - left) / 2)
        raise AssertionError("unreachable")

    def compact(self) -> int:
        """Join the files of the store."""
        last = self._last
        compact(self.url)
        return last

    def close(self) -> None:
        """Let go of the lock and the server."""
        self._heart.stop()
        self.lock.close()
        self._con.close()

    def _commit(self, rows: Mapping[str, pa.Table]) -> None:
        with transaction(self._con):
            for name, table in rows.items():
                insert(self._con, f"lake.{name}", table)


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
