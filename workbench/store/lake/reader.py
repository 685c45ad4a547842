"""Reads a shared catalog as `Store` reads a folder: the same views, questions and limits, whole steps only.

One DuckDB holds the catalog, read-only, and is never seen by a query. Another, in memory and shut off from everything
but the folder of the data, holds the rows of the narrow tables and the names of the Parquet files of completions; it is
the one that queries run on, so that no query can reach the server. A refresh reads what came between two snapshots of
the catalog, which is whole transactions: all tables move at once.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import duckdb
import pyarrow as pa

from workbench.store.errors import StoreError
from workbench.store.folder.compaction import quoted
from workbench.store.folder.reader import Store
from workbench.store.lake.catalog import Lake, attach, connect, explained, there, told
from workbench.store.lake.lock import held, key_of
from workbench.store.schema import SCHEMA_VERSION, WIDE, tables

News = tuple[int, bool, dict[str, pa.Table], list[str]]
"""Snapshot, whether it is all there is (not only what is new), rows by table, files of completions."""


class LakeStore(Store):
    """The runs of a shared catalog; open it with `Store.open("ducklake:postgres:...")`."""

    def __init__(self, lake: Lake, source: duckdb.DuckDBPyConnection, data: str, *, live: bool, threads: int) -> None:
        self.lake, self._source = lake, source
        self._ids: dict[int, str] = {}
        super().__init__(Path(data), live=live, threads=threads)
        self.folder = lake  # type: ignore[assignment]  # what messages name

    @classmethod
    def at(cls, url: str | Path | Lake, *, live: bool = True, threads: int = 2) -> LakeStore:
        """A reader of the catalog at a URL."""
        lake = Lake.parse(url)
        source = connect(lake, threads=threads)
        try:
            return cls(lake, source, attach(source, lake), live=live, threads=threads)
        except BaseException:
            source.close()
            raise

    @property
    def url(self) -> str:
        """What `Store.open` takes to open it again, a password included."""
        return self.lake.url

    def close(self) -> None:
        """Let go of the server and the files."""
        super().close()
        self._source.close()

    def _refresh(self) -> bool:
        with told(self.lake):
            news = self._news()
        if news is not None:
            self._latest = None
            try:
                self._take(*news)
            except duckdb.Error as error:
                self._generation = -1
                raise StoreError(explained(self.lake, error)) from error
        with told(self.lake):
            self._look_who_lives()
        return news is not None

    def _news(self) -> News | None:
        """What the catalog holds beyond the snapshot we have, all from one transaction."""
        con = self._source
        con.execute("BEGIN TRANSACTION")
        try:
            snapshot = con.execute("FROM lake.current_snapshot()").fetchone()[0]  # type: ignore[index]
            if snapshot == self._generation:
                return None
            changed = self._changed(snapshot)
            anew = changed is None
            grown = set(there(con)) if changed is None else changed
            names = [table for table in tables() if table not in WIDE and table in grown]
            rows: dict[str, pa.Table] = {}
            for name in names:
                made = (
                    f"lake.{name}" if anew
                    else f"ducklake_table_insertions('lake', 'main', '{name}', {self._generation + 1}, {snapshot})"
                )  # fmt: skip
                found = con.execute(f"FROM {made}").to_arrow_table()
                if len(found):
                    rows[name] = found
            listed = con.execute(f"SELECT data_file FROM ducklake_list_files('lake', '{WIDE[0]}')").fetchall()
            return snapshot, anew, rows, [path for (path,) in listed]
        finally:
            with contextlib.suppress(duckdb.Error):
                con.execute("ROLLBACK")

    def _changed(self, snapshot: int) -> set[str] | None:
        """The tables that grew since our snapshot; None where all must be read again (at first, or after deletions)."""
        if self._generation < 0:
            return None
        found: set[int] = set()
        for (text,) in self._source.execute(
            f"SELECT changes_made FROM __ducklake_metadata_lake.{self.lake.schema}.ducklake_snapshot_changes"
            " WHERE snapshot_id > ? AND snapshot_id <= ?",
            [self._generation, snapshot],
        ).fetchall():
            for what, number in re.findall(r"(\w+):(\d+)", text or ""):
                if what in ("inserted_into_table", "inlined_insert"):
                    found.add(int(number))
                elif what not in ("inline_flush", "merge_adjacent", "created_table"):
                    return None
        if not found <= self._ids.keys():
            names = f"__ducklake_metadata_lake.{self.lake.schema}.ducklake_table"
            self._ids = dict(self._source.execute(f"SELECT table_id, table_name FROM {names}").fetchall())
        return {self._ids[i] for i in found if i in self._ids}

    def _take(self, snapshot: int, anew: bool, rows: dict[str, pa.Table], completions: list[str]) -> None:
        con = self._con
        con.execute("BEGIN TRANSACTION")
        try:
            if anew:
                con.execute("".join(f"DELETE FROM tail.{name};" for name in tables()))
            for name, found in rows.items():
                con.register("taken_in", found)
                con.execute(f"INSERT INTO tail.{name} BY NAME SELECT * FROM taken_in")
                con.unregister("taken_in")
            newest = con.execute("SELECT max(schema_version) FROM tail.commits").fetchone()[0] or 0  # type: ignore[index]
            if newest > SCHEMA_VERSION:
                raise StoreError(
                    f"the store {self.lake} was written with schema version {newest}, this program knows up to "
                    f"{SCHEMA_VERSION}; nothing was touched. Upgrade: pip install -U rollout-workbench"
                )
            sources = {name: f"SELECT * FROM tail.{name}" for name in tables()}
            if completions:
                paths = ", ".join(quoted(path) for path in completions)
                columns = ", ".join(f'"{f.name}"' for f in tables()[WIDE[0]])
                empty = f"SELECT * FROM tail.{WIDE[0]}"  # gives a column that an earlier version lacks
                sources[WIDE[0]] = (
                    f"SELECT {columns} FROM (SELECT * FROM read_parquet([{paths}], union_by_name = true)"
                    f" UNION ALL BY NAME {empty})"
                )
            self._show(sources, anew)
            con.execute("COMMIT")
        except BaseException:
            con.execute("ROLLBACK")
            raise
        self._generation = snapshot

    def _living(self) -> set[str]:
        """The runs of which the server sees a writer."""
        if not self._open:
            return set()
        there_ = held(self._source)
        return {run for run, rank in self._open if key_of(self.lake, f"{run}/r{rank}") in there_}
