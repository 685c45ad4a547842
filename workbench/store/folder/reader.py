"""Reads a store, in any process, while others write it: whole commits only, at most one step behind.

A private in-memory DuckDB attaches the compacted base read-only and ingests the commits after it. Its views carry the
names of the declared tables. All file access outside the store's folder is off for good before the first query, and a
query must be one statement that only reads, in a read-only transaction. Each thread has its own cursor.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from workbench.store.errors import Damaged, ReadOnlyError, StoreError
from workbench.store.folder import files
from workbench.store.folder.compaction import quoted, tables_of
from workbench.store.folder.contents import Contents, batches
from workbench.store.questions import Ask, Questions
from workbench.store.schema import HIDDEN_SQL, SCHEMA_VERSION, TABLES_SQL, VIEWS_SQL, WIDE, comments, tables
from workbench.store.sql_guard import Params, answered, one_reading
from workbench.types import Pool, Step

MEMORY = "512MiB"
"""Of DuckDB in a reader: cached blocks of the base, what is not compacted, and queries, which spill beyond it."""


class Store:
    """The runs of a store folder. Open it with `Store.open`; every query sees what is recorded by then."""

    def __init__(self, folder: Path, *, live: bool = True, threads: int = 2, memory: str = MEMORY) -> None:
        self.folder = folder
        self.live = live
        self._lock = threading.RLock()
        self._local = threading.local()
        self._spill = Path(tempfile.gettempdir()) / f"workbench-{os.getpid()}-{secrets.token_hex(4)}"
        self._con = duckdb.connect(config={"threads": threads, "memory_limit": memory, "max_temp_directory_size": "8GiB",
                                           "temp_directory": str(self._spill), "autoinstall_known_extensions": False,
                                           "autoload_known_extensions": False})  # fmt: skip
        self._con.execute("SET enable_progress_bar = false; SET python_enable_replacements = false")
        self._con.execute(f"SET allowed_directories = [{quoted(str(folder) + '/')}]")
        self._con.execute("SET enable_external_access = false; SET lock_configuration = true")
        self._con.execute(f"CREATE SCHEMA tail; USE tail; {TABLES_SQL} USE main;")
        self._con.execute("CREATE TABLE alive (run VARCHAR)")
        self._con.execute("CREATE TABLE superseded (run VARCHAR, rank SMALLINT, seq INTEGER)")
        words = [(t, c, text) for t, columns in comments().items() for c, text in columns.items()]
        described = pa.table(dict(zip(("table_name", "column_name", "comment"), zip(*words, strict=True), strict=True)))
        self._con.register("described", described)
        self._con.execute("CREATE TABLE columns AS SELECT * FROM described")
        self._con.unregister("described")
        self._generation = -1
        self._last: dict[str, int] = {}
        self._wide: list[str] = []
        self._sources: dict[str, str] = {}
        self._open: list[tuple[str, int]] = []  # (run, rank) of attempts that have not ended
        self._alive: tuple[str, ...] = ()
        self._hidden = False
        self._latest: str | None = None
        self.ask = Ask(self)
        self.refresh()

    @classmethod
    def open(cls, where: str | Path, *, live: bool = True, threads: int = 2) -> Store:
        """A reader of the store in a folder, or of a shared catalog: "ducklake:postgres:...".

        live=False: only `refresh()` moves what queries see."""
        if str(where).startswith("ducklake:"):
            from workbench.store.lake.reader import LakeStore

            return LakeStore.at(where, live=live, threads=threads)
        folder = Path(where).resolve()
        if not folder.is_dir():
            raise StoreError(
                f"there is no store at {folder}; a run creates it, for example: workbench demo --store {where}"
            )
        files.check_version(folder)
        return cls(folder, live=live, threads=threads)

    @classmethod
    def sample(cls) -> Store:
        """The sample store that comes with the tree: four small runs of the tiny model. Raises StoreError in a wheel."""
        from workbench.store.sample import sample_folder

        return cls.open(sample_folder(), live=False)

    def refresh(self) -> bool:
        """Take in what was committed since; True where something new came. A few milliseconds."""
        with self._lock:
            for attempt in range(20):
                try:
                    return self._refresh()
                except (duckdb.IOException, FileNotFoundError):  # a file was retired under us: read CURRENT again
                    self._generation = -1
                    time.sleep(0.01 * attempt)
            return self._refresh()

    def sql(self, query: str, params: Params = None) -> pa.Table:
        """The result of one reading statement; parameters are written $name or ?.

        Raises ReadOnlyError for anything that writes, changes settings or looks outside the store."""
        if self.live:
            self.refresh()
        try:
            return self._query(query, params)
        except duckdb.IOException:
            self._generation = -1
            self.refresh()
            return self._query(query, params)

    @property
    def url(self) -> str:
        """What `Store.open` takes to open it again."""
        return str(self.folder)

    @property
    def questions(self) -> Questions:
        """The named questions: print it, or call it for a table."""
        return self.ask.questions

    def runs(self) -> pa.Table:
        """One row per run, newest first: run, status, last_step, started, ..."""
        return self.ask("runs")

    def latest(self) -> str | None:
        """The run that was started last; None in an empty store."""
        with self._lock:
            if self.live:
                self.refresh()
            if self._latest is None:
                found = self._query("SELECT run FROM attempts GROUP BY run ORDER BY max(started) DESC LIMIT 1", None)
                self._latest = found["run"][0].as_py() if len(found) else None
            return self._latest

    def steps(
        self, run: str | None = None, pool: Pool | None = None, *, since: int = 0, needs: Collection[str] = ()
    ) -> Iterator[Step]:
        """The recorded steps after `since`, exactly as methods saw them. pool: default the one recorded.

        A token column that was not kept for every rollout of a step is None there; where it is named in needs, as in
        `pipeline.needs`, StoreError says so instead."""
        from workbench.store.rows.rebuild import steps

        return steps(self, self._run(run), pool, since, frozenset(needs))

    def pool(self, run: str | None = None) -> tuple[Pool, Pool]:
        """The training pool and the evaluation pool of a run, as recorded."""
        from workbench.store.rows.rebuild import pools

        return pools(self, self._run(run))

    def source(self, table: str) -> str:
        """SQL of a declared table with all its rows, those too that the view of its name hides."""
        return f"({self._sources[table]})"

    def close(self) -> None:
        """Let go of the files."""
        self._con.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def __repr__(self) -> str:
        runs = self.runs()
        return f"Store({self.folder}: {len(runs)} runs)"

    def _repr_html_(self) -> str:
        from workbench.store.questions import html_table

        return html_table(self.runs(), f"store {self.folder}")

    def _run(self, run: str | None) -> str:
        chosen = run or self.latest()
        known = self.sql("SELECT DISTINCT run FROM runs ORDER BY run")["run"].to_pylist()
        if chosen not in known:
            raise StoreError(f"no run {chosen!r} in {self.folder}; there are {', '.join(known) or 'none'}")
        return str(chosen)

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        if not hasattr(self._local, "cursor"):
            with self._lock:
                self._local.cursor = self._con.cursor()
        return self._local.cursor

    def _query(self, query: str, params: Params) -> pa.Table:
        cursor = self._cursor()
        try:
            statement = one_reading(cursor, query)
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            try:
                return _plain(answered(cursor, statement, params))
            finally:
                cursor.execute("ROLLBACK")
        except duckdb.PermissionException as error:
            raise ReadOnlyError(
                f"a query sees the tables of this store, not files, networks or settings: {error}"
            ) from error

    def _refresh(self) -> bool:
        current = files.read_current(self.folder)
        anew = current.generation != self._generation
        last = dict(current.mark) if anew else dict(self._last)
        new: list[Path] = []
        for name, home in files.writers(self.folder):
            for seq, path in files.commits_after(home, last.get(name, -1)):
                new.append(path)
                last[name] = seq
        if anew or new:
            self._ingest(current, anew, new)
            self._latest = None
            self._generation, self._last = current.generation, last
        self._look_who_lives()
        return bool(anew or new)

    def _ingest(self, current: files.Current, anew: bool, new: list[Path]) -> None:
        con, base = self._con, f"base_{current.generation}"
        had = {n for (n,) in con.execute("SELECT database_name FROM duckdb_databases()").fetchall()}
        if anew:
            files.check_version(self.folder)
            if current.base and base not in had:
                con.execute(f"ATTACH {quoted(self.folder / current.base)} AS {base} (READ_ONLY)")
        con.execute("BEGIN TRANSACTION")
        try:
            if anew:
                self._wide = []
                con.execute("".join(f"DELETE FROM tail.{name};" for name in tables()))
            for found in batches(new):
                self._take_in(found)
            newest = con.execute("SELECT max(schema_version) FROM tail.commits").fetchone()
            files.refuse_newer(self.folder, (newest and newest[0]) or 0)
            self._define(current, base if current.base else "", anew)
            con.execute("COMMIT")
        except BaseException as error:
            con.execute("ROLLBACK")
            self._generation = -1
            if isinstance(error, (duckdb.InvalidInputException, Damaged)):
                raise StoreError(
                    f"a commit in {self.folder} is damaged: {str(error).splitlines()[0]}. Restore that file from a copy; all commits before it "
                    "are whole"
                ) from error
            raise
        for old in had:
            if old.startswith("base_") and old != base:
                try:
                    con.execute(f"DETACH {old}")
                except duckdb.Error:
                    continue  # still read by a query; the next generation tries again

    def _take_in(self, found: Contents) -> None:
        for name in dict.fromkeys([*found.rows, *found.files]):
            if name in WIDE:  # files of large ones are read by the page
                self._wide += found.files.pop(name, [])
            found.insert(self._con, name, f"memory.tail.{name}")

    def _define(self, current: files.Current, base: str, anew: bool) -> None:
        """The views over base and tail; those of narrow tables change only with the generation or a resume."""
        con = self._con
        sources = {n: f"SELECT * FROM tail.{n}" for n in tables()}
        if base:
            there = tables_of(con, base).difference(WIDE)
            sources |= {n: f"SELECT * FROM {base}.{n} UNION ALL BY NAME {sources[n]}" for n in tables() if n in there}
        paths = [str(self.folder / p) for p in current.parts] + self._wide
        oldest = con.execute(f"SELECT min(schema_version) FROM ({sources['commits']})").fetchone()[0]  # type: ignore[index]
        for name in WIDE:
            if paths:
                differ = ", union_by_name = true" if oldest < SCHEMA_VERSION else ""  # then all footers are read first
                listed = f"read_parquet([{', '.join(quoted(p) for p in paths)}]{differ})"
                sources[name] = f"SELECT * FROM {listed} UNION ALL BY NAME SELECT * FROM tail.{name}"
        self._show(sources, anew)

    def _show(self, sources: dict[str, str], anew: bool) -> None:
        """The views that queries see, over the SQL of every table's rows."""
        con = self._con
        self._sources = sources
        con.execute("DELETE FROM superseded")
        con.execute(
            f"INSERT INTO superseded {HIDDEN_SQL.format(commits=sources['commits'], attempts=sources['attempts'])}"
        )
        hidden = bool(con.execute("SELECT count(*) FROM superseded").fetchone()[0])  # type: ignore[index]
        hidden = hidden or (self._hidden and not anew)  # it comes and goes where ranks write side by side
        changed = anew or hidden != self._hidden
        self._hidden = hidden
        for name, source in sources.items():
            if changed or name in WIDE:
                if hidden:
                    source = f"SELECT * FROM ({source}) ANTI JOIN superseded USING (run, rank, seq)"
                con.execute(f"CREATE OR REPLACE VIEW main.{name} AS {source}")
        if changed:
            con.execute(VIEWS_SQL)
        self._open = con.execute(
            "SELECT DISTINCT a.run, a.rank FROM attempts a ANTI JOIN statuses s USING (run, rank, attempt)"
        ).fetchall()

    def _living(self) -> set[str]:
        """The runs of which a writer lives."""
        return {run for run, rank in self._open if files.is_alive(files.home(self.folder, run, rank))}

    def _look_who_lives(self) -> None:
        alive = tuple(sorted(self._living()))
        if alive != self._alive:
            self._con.execute("BEGIN TRANSACTION; DELETE FROM alive")
            self._con.execute("INSERT INTO alive SELECT unnest(?::VARCHAR[])", [list(alive)])
            self._con.execute("COMMIT")
            self._alive = alive


def _plain(table: pa.Table) -> pa.Table:
    """Whole sums as int64: DuckDB adds integers in 128 bits, which pandas and plots know as Decimal objects.

    A column that holds one beyond 64 bits stays as it is."""
    for i, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            with contextlib.suppress(pa.ArrowInvalid):
                table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
    return table
