"""Storage backend that reads a folder: the compacted base is attached read-only, the commits after it are taken in.

A damaged commit closes its writer's record from there on and nothing else; a damaged part of completions takes the texts
that it held; a damaged base is an error, since all runs are in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import duckdb

from workbench.store.errors import Damaged, StoreError
from workbench.store.folder import files
from workbench.store.folder.compaction import base_damaged
from workbench.store.folder.contents import batches
from workbench.store.folder.damage import Quarantined, gaps, of_file, quarantine, stamp, told
from workbench.store.records import News
from workbench.store.schema import SCHEMA_VERSION, WIDE, tables
from workbench.store.statements import columns_of, plain_path, quoted, transaction


class FolderReader:
    """Reads the files of a folder; folders are the only ones that queries may read."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).resolve()
        if not self._folder.is_dir():
            raise StoreError(
                f"there is no store at {self._folder}; a run creates it, for example: workbench demo --store {folder}"
            )
        files.check_version(self._folder)
        self.url = self.where = str(self._folder)
        self._open = ExitStack()
        self.data = self._open.enter_context(plain_path(self._folder))
        wal = str(self._folder).replace("?", ".wal?", 1)  # where DuckDB looks for the log of a base, behind the link
        self.folders = [self.data, *([Path(wal)] if "?" in wal else [])]
        self._generation = self._examined = -1
        self._last: dict[str, int] = {}  # writer -> its last commit that was taken in
        self._wide: list[str] = []  # Parquet files of commits that are not compacted
        self._bad: dict[str, Quarantined] = {}  # writer -> its first commit that is damaged
        self._lost: dict[str, str] = {}  # part of completions -> what is wrong with it

    @property
    def damaged(self) -> dict[str, str]:
        """What cannot be read, by writer (<run>/r<rank>) or part of completions: a sentence each, with the way out."""
        parts = {part: f"{part}: {why}; the texts in it are not shown" for part, why in self._lost.items()}
        return {name: told(name, one, self._folder) for name, one in sorted(self._bad.items())} | parts

    @contextmanager
    def news(self, con: duckdb.DuckDBPyConnection) -> Iterator[News | None]:
        """Take in a new generation, and commits."""
        current = files.read_current(self._folder)
        for name, one in [*self._bad.items()]:  # put back since?
            if stamp(self.data / "commits" / name / f"{one.seq:09d}") != one.stamp:
                del self._bad[name]
                self.forget()
        anew = current.generation != self._generation
        new, last = self._commits(current.mark if anew else self._last)
        if not anew and not new:
            yield None
            return
        base = f"base_{Path(current.base).stem.rpartition('-')[2]}" if current.base else ""
        attached = {n for (n,) in con.execute("SELECT database_name FROM duckdb_databases()").fetchall()}
        if anew:
            files.check_version(self._folder)
            if base and base not in attached:
                self._attach(con, current.base, base)
        shown, wide = False, self._wide
        try:
            while not shown:
                try:
                    with transaction(con):
                        self._wide = [] if anew else [*wide]
                        self._take_in(con, new, anew)
                        if anew:
                            self._bad |= {n: one for n, one in gaps(self.data, last).items() if n not in self._bad}
                        sources = self._sources(con, current, base)
                        shown = True
                        yield News(sources, anew)
                except (Damaged, duckdb.InvalidInputException) as error:
                    if shown:
                        raise
                    path = error.path if isinstance(error, Damaged) else None
                    found = quarantine([path.parent] if path else new)  # Parquet files are of earlier schema versions
                    if not found:
                        raise
                    self._bad |= found
                    new, last = self._commits(current.mark if anew else self._last)
        except BaseException:
            self.forget()
            raise
        self._generation, self._last = current.generation, last
        for old in attached:
            if old.startswith("base_") and old != base:
                with suppress(duckdb.Error):  # a query still reads it; the next generation tries again
                    con.execute(f"DETACH {old}")

    def forget(self) -> None:
        """Read CURRENT and all commits again at the next refresh."""
        self._generation = -1

    def examine(self) -> bool:
        """After an error of a query: hold the files it may have read against their checksums, once a generation. Whether some
        of completions are damaged, which are left out from now on; Damaged where the base is."""
        current = files.read_current(self._folder)
        if self._examined == current.generation:
            return False
        if current.base and (why := of_file(self.data / current.base, current.sums.get(current.base))):
            raise base_damaged(self._folder, current.base, StoreError(why))
        lost = {p: why for p in current.parts if (why := of_file(self.data / p, current.sums.get(p)))}
        bad = quarantine(Path(p).parent for p in self._wide if Path(p).exists())
        found = lost != self._lost or bool(bad)
        self._lost, self._bad, self._examined = lost, self._bad | bad, current.generation
        self.forget()
        return found

    def living(self, attempts: Collection[tuple[str, int]]) -> set[str]:
        """Runs of which the writer of a rank gives signs of life."""
        return {run for run, rank in attempts if files.is_running(files.home(self.data, run, rank))}

    def close(self) -> None:
        """Let go of the folder."""
        self._open.close()

    def _commits(self, mark: Mapping[str, int]) -> tuple[list[Path], dict[str, int]]:
        return files.commits_since(self.data, mark, {name: one.seq for name, one in self._bad.items()})

    def _attach(self, con: duckdb.DuckDBPyConnection, file: str, name: str) -> None:
        try:
            con.execute(f"ATTACH {quoted(self.data / file)} AS {name} (READ_ONLY)")
        except duckdb.Error as error:
            if not (self.data / file).exists() and files.read_current(self._folder).base != file:
                raise  # retired under us
            raise base_damaged(self._folder, file, error) from error

    def _take_in(self, con: duckdb.DuckDBPyConnection, new: list[Path], anew: bool) -> None:
        if anew:
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
        paths = [str(self.data / p) for p in current.parts if p not in self._lost] + self._wide
        if paths:
            oldest = con.execute(f"SELECT min(schema_version) FROM ({sources['commits']})").fetchone()[0]  # type: ignore[index]
            differ = ", union_by_name = true" if oldest < SCHEMA_VERSION else ""  # then all footers are read first
            listed = f"read_parquet([{', '.join(map(quoted, paths))}], hive_partitioning = false{differ})"
            for name in WIDE:
                sources[name] = f"SELECT * FROM {listed} UNION ALL BY NAME {sources[name]}"
        return sources
