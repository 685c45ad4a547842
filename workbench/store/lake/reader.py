"""Storage backend that reads a shared catalog: whole transactions, between two of its snapshots.

One DuckDB holds the catalog, read-only, and no query sees it. The one of the `Store`, in memory and shut off from
everything but the folder of the data, takes in the rows of the narrow tables and the names of the Parquet files of
completions, so that no query can reach the server.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import pyarrow as pa

from workbench.store.lake.catalog import Lake, attach, connect, reported
from workbench.store.lake.lock import held, key_of
from workbench.store.records import News
from workbench.store.schema import WIDE, tables
from workbench.store.statements import columns_of, insert, quoted, transaction


class LakeReader:
    """Reads a shared catalog; folders are the only ones that queries may read: that of its data."""

    def __init__(self, url: str | Path, threads: int) -> None:
        self.lake = Lake.parse(url)
        self.url, self.where = self.lake.url, str(self.lake)
        self._snapshot = -1
        self._ids: dict[int, str] = {}  # DuckLake's number of a table -> its name
        self._con = connect(self.lake, threads=threads)
        try:
            self.folders = [Path(attach(self._con, self.lake))]
        except BaseException:
            self._con.close()
            raise

    @contextmanager
    def news(self, con: duckdb.DuckDBPyConnection) -> Iterator[News | None]:
        """Take in the rows between our snapshot and the newest; all rows at first, and after deletions."""
        with reported(self.lake):
            snapshot, anew, rows, completions = self._read()
        if snapshot == self._snapshot:
            yield None
            return
        try:
            with reported(self.lake), transaction(con):
                if anew:
                    con.execute("".join(f"DELETE FROM tail.{name};" for name in tables()))
                for name, found in rows.items():
                    insert(con, f"tail.{name}", found)
                sources = {name: f"SELECT * FROM tail.{name}" for name in tables()}
                if completions:
                    chosen = ", ".join(f'"{f.name}"' for f in tables()[WIDE[0]])
                    sources[WIDE[0]] = (
                        f"SELECT {chosen} FROM (SELECT * FROM read_parquet([{', '.join(map(quoted, completions))}],"
                        f" union_by_name = true) UNION ALL BY NAME {sources[WIDE[0]]})"
                    )  # the empty table gives a column that an earlier version lacks
                yield News(sources, anew)
        except BaseException:
            self.forget()
            raise
        self._snapshot = snapshot

    def forget(self) -> None:
        """Read the whole catalog at the next refresh."""
        self._snapshot = -1

    @property
    def damaged(self) -> dict[str, str]:
        """Nothing is known to be: DuckLake keeps no checksums."""
        return {}

    def examine(self) -> bool:
        """Whether files turned out to be damaged."""
        return False

    def living(self, attempts: Collection[tuple[str, int]]) -> set[str]:
        """Runs of which the server holds the lock of a rank."""
        if not attempts:
            return set()
        with reported(self.lake):
            keys = held(self._con)
        return {run for run, rank in attempts if key_of(self.lake, f"{run}/r{rank}") in keys}

    def close(self) -> None:
        """Leave the server."""
        self._con.close()

    def _read(self) -> tuple[int, bool, dict[str, pa.Table], list[str]]:
        """The newest snapshot, whether all is read again, rows by table, files of completions: from one transaction."""
        con = self._con
        con.execute("BEGIN TRANSACTION")
        try:
            snapshot = con.execute("FROM lake.current_snapshot()").fetchone()[0]  # type: ignore[index]
            if snapshot == self._snapshot:
                return snapshot, False, {}, []
            changed = self._changed(snapshot)
            anew = changed is None
            grown = set(columns_of(con, "lake")) if changed is None else changed
            rows: dict[str, pa.Table] = {}
            for name in tables():
                if name in grown and name not in WIDE:
                    between = f"'{name}', {self._snapshot + 1}, {snapshot}"
                    source = f"lake.{name}" if anew else f"ducklake_table_insertions('lake', 'main', {between})"
                    rows[name] = con.execute(f"FROM {source}").to_arrow_table()
            listed = con.execute(f"SELECT data_file FROM ducklake_list_files('lake', '{WIDE[0]}')").fetchall()
            return snapshot, anew, rows, [path for (path,) in listed]
        finally:
            with suppress(duckdb.Error):
                con.execute("ROLLBACK")

    def _changed(self, snapshot: int) -> set[str] | None:
        """The tables that grew since our snapshot; None where all must be read again."""
        if self._snapshot < 0:
            return None
        metadata = f"__ducklake_metadata_lake.{self.lake.schema}"
        found: set[int] = set()
        for (text,) in self._con.execute(
            f"SELECT changes_made FROM {metadata}.ducklake_snapshot_changes WHERE snapshot_id > ? AND snapshot_id <= ?",
            [self._snapshot, snapshot],
        ).fetchall():
            for what, number in re.findall(r"(\w+):(\d+)", text or ""):
                if what in ("inserted_into_table", "inlined_insert"):
                    found.add(int(number))
                elif what not in ("inline_flush", "merge_adjacent", "created_table"):
                    return None
        if not found <= self._ids.keys():
            ids = self._con.execute(f"SELECT table_id, table_name FROM {metadata}.ducklake_table")
            self._ids = dict(ids.fetchall())
        return {self._ids[i] for i in found if i in self._ids}
