"""Storage backend that reads a folder: the compacted base is attached read-only, the commits after it are taken in."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from workbench.store.errors import Damaged, StoreError
from workbench.store.folder import files
from workbench.store.folder.contents import batches
from workbench.store.records import News
from workbench.store.schema import SCHEMA_VERSION, WIDE, tables
from workbench.store.statements import columns_of, quoted, transaction


class FolderReader:
    """Reads the files of a folder; data is the only folder that queries may read."""

    def __init__(self, folder: str | Path) -> None:
        self.data = Path(folder).resolve()
        if not self.data.is_dir():
            raise StoreError(
                f"there is no store at {self.data}; a run creates it, for example: workbench demo --store {folder}"
            )
        files.check_version(self.data)
        self.url = self.where = str(self.data)
        self._generation = -1
        self._last: dict[str, int] = {}  # writer -> its last commit that was taken in
        self._wide: list[str] = []  # Parquet files of commits that are not compacted

    @contextmanager
    def news(self, con: duckdb.DuckDBPyConnection) -> Iterator[News | None]:
        """Take in a new generation, and commits."""
        current = files.read_current(self.data)
        anew = current.generation != self._generation
        new, last = files.commits_since(self.data, current.mark if anew else self._last)
        if not anew and not new:
            yield None
            return
        base = f"base_{current.generation}" if current.base else ""
        attached = {n for (n,) in con.execute("SELECT database_name FROM duckdb_databases()").fetchall()}
        if anew:
            files.check_version(self.data)
            if base and base not in attached:
                con.execute(f"ATTACH {quoted(self.data / current.base)} AS {base} (READ_ONLY)")
        try:
            with transaction(con):
                self._take_in(con, new, anew)
                yield News(self._sources(con, current, base), anew)
        except BaseException as error:
            self.forget()
            if isinstance(error, (duckdb.InvalidInputException, Damaged)):
                raise StoreError(
                    f"a commit in {self.data} is damaged: {str(error).splitlines()[0]}. Restore that file from a copy; "
                    "all commits before it are whole"
                ) from error
            raise
        self._generation, self._last = current.generation, last
        for old in attached:
            if old.startswith("base_") and old != base:
                with suppress(duckdb.Error):  # a query still reads it; the next generation tries again
                    con.execute(f"DETACH {old}")

    def forget(self) -> None:
        """Read CURRENT and all commits again at the next refresh."""
        self._generation = -1

    def living(self, attempts: Collection[tuple[str, int]]) -> set[str]:
        """Runs of which the lock of a rank is held."""
        return {run for run, rank in attempts if files.is_alive(files.home(self.data, run, rank))}

    def close(self) -> None:
        """Nothing is open."""

    def _take_in(self, con: duckdb.DuckDBPyConnection, new: list[Path], anew: bool) -> None:
        if anew:
            self._wide = []
            con.execute("".join(f"DELETE FROM tail.{name};" for name in tables()))
        for found in batches(new):
            for name in dict.fromkeys([*found.rows, *found.files]):
                if name in WIDE:  # large ones stay in their files, which are read by the page
                    self._wide += found.files.pop(name, [])
                found.insert(con, name, f"memory.tail.{name}")

    def _sources(self, con: duckdb.DuckDBPyConnection, current: files.Current, base: str) -> dict[str, str]:
        sources = {n: f"SELECT * FROM tail.{n}" for n in tables()}
        if base:
            for name in columns_of(con, base).keys() & tables().keys() - {*WIDE}:
                sources[name] = f"SELECT * FROM {base}.{name} UNION ALL BY NAME {sources[name]}"
        paths = [str(self.data / p) for p in current.parts] + self._wide
        if paths:
            oldest = con.execute(f"SELECT min(schema_version) FROM ({sources['commits']})").fetchone()[0]  # type: ignore[index]
            differ = ", union_by_name = true" if oldest < SCHEMA_VERSION else ""  # then all footers are read first
            listed = f"read_parquet([{', '.join(map(quoted, paths))}]{differ})"
            for name in WIDE:
                sources[name] = f"SELECT * FROM {listed} UNION ALL BY NAME {sources[name]}"
        return sources
