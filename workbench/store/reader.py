"""Read recorded runs with SQL, in any process, while others write them: whole commits only, at most one step behind.

A private in-memory DuckDB takes in what was committed; its views carry the names of the declared tables. All file access
outside the store's folder is off for good before the first query, and a query must be one statement that only reads, in a
read-only transaction. Each thread has its own cursor.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from workbench.store.errors import ReadOnlyError, StoreError
from workbench.store.open import open_store
from workbench.store.questions import Ask, Questions, html_table
from workbench.store.rows import rebuild
from workbench.store.sample import sample_folder
from workbench.store.schema import HIDDEN_SQL, TABLES_SQL, VIEWS_SQL, WIDE, comments, refuse_newer
from workbench.store.sql_guard import Params, answered, one_reading
from workbench.store.statements import quoted
from workbench.types import Pool, Step

if TYPE_CHECKING:
    from workbench.store.folder.reader import FolderReader
    from workbench.store.lake.reader import LakeReader

UNREADABLE = (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException, duckdb.InternalException,
              duckdb.FatalException)  # fmt: skip
"""What DuckDB raises of a file that is damaged, and some of them also of a query that is wrong."""

MEMORY = "512MiB"
"""Of DuckDB in a reader: cached blocks of the base, what is not compacted, and queries, which spill beyond it."""


class Store:
    """Recorded runs, open for reading. Open it with `Store.open`; every query sees what is recorded by then.

    >>> with Store.sample() as store:
    ...     sorted(store.runs()["name"].to_pylist())
    ['mopps-then-vade', 'pruned', 'tree', 'uniform']
    """

    url: str
    """What `Store.open` takes to open it again, a password included."""
    where: str
    """The folder or URL as it may be shown: without a password."""
    live: bool
    """Whether a query takes in what was recorded since; otherwise only `refresh()` does."""
    ask: Ask
    """Named questions: `store.ask("reward_by_step", run=...)`."""
    questions: Questions
    """The named questions: print it, or call it for a table."""

    def __init__(self, backend: FolderReader | LakeReader, *, live: bool = True, threads: int = 2) -> None:
        self._backend = backend
        self.url, self.where, self.live = backend.url, backend.where, live
        self._lock = threading.RLock()
        self._local = threading.local()
        self._spill = Path(tempfile.gettempdir()) / f"workbench-{os.getpid()}-{secrets.token_hex(4)}"
        self._con = duckdb.connect(config={"threads": threads, "memory_limit": MEMORY, "max_temp_directory_size": "8GiB",
                                           "temp_directory": str(self._spill), "autoinstall_known_extensions": False,
                                           "autoload_known_extensions": False})  # fmt: skip
        self._con.execute("SET enable_progress_bar = false; SET python_enable_replacements = false")
        self._con.execute(
            f"SET allowed_directories = [{', '.join(quoted(f'{folder}/') for folder in backend.folders)}]"
        )
        self._con.execute("SET enable_external_access = false; SET lock_configuration = true")
        self._con.execute(f"CREATE SCHEMA tail; USE tail; {TABLES_SQL} USE main;")
        self._con.execute("CREATE TABLE alive (run VARCHAR)")
        self._con.execute("CREATE TABLE superseded (run VARCHAR, rank SMALLINT, seq INTEGER)")
        words = [(t, c, text) for t, columns in comments().items() for c, text in columns.items()]
        described = pa.table(dict(zip(("table_name", "column_name", "comment"), zip(*words, strict=True), strict=True)))
        self._con.from_arrow(described).create("columns")
        self._sources: dict[str, str] = {}
        self._open: list[tuple[str, int]] = []  # (run, rank) of attempts that have not ended
        self._alive: tuple[str, ...] = ()
        self._hidden = False
        self._latest: str | None = None
        self.ask = Ask(self)
        self.questions = self.ask.questions
        self.refresh()

    @classmethod
    def open(cls, url: str | Path, *, live: bool = True, threads: int = 2) -> Store:
        """A reader of the store in a folder, or of a shared catalog: "ducklake:postgres:...".

        live=False: only `refresh()` moves what queries see."""
        backend = open_store(url, threads)
        try:
            return cls(backend, live=live, threads=threads)
        except BaseException:
            backend.close()
            raise

    @classmethod
    def sample(cls) -> Store:
        """The sample store that comes with the tree: four small runs of the tiny model. Raises StoreError in a wheel."""
        return cls.open(sample_folder(), live=False)

    @property
    def damaged(self) -> Mapping[str, str]:
        """What cannot be read, by writer (<run>/r<rank>) or file: a sentence each, with the way out. The rest is whole."""
        return self._backend.damaged

    def damage_of(self, run: str) -> str:
        """What cannot be read of a run; "" where all of it can."""
        return "; ".join(text for name, text in self.damaged.items() if name.rpartition("/r")[0] == run)

    def refresh(self) -> bool:
        """Take in what was committed since; True where something new came. A few milliseconds.

        A damaged commit closes its own run from there on, see `damaged`; StoreError where a file is damaged that all runs
        are in."""
        with self._lock:
            for attempt in range(20):
                try:
                    return self._refresh()
                except (duckdb.IOException, FileNotFoundError):  # a file was retired under us: read CURRENT again
                    if attempt == 3:
                        self._backend.examine()
                    self._backend.forget()
                    time.sleep(0.01 * attempt)
                except UNREADABLE:
                    if not self._backend.examine():
                        raise
            return self._refresh()

    def sql(self, query: str, params: Params = None) -> pa.Table:
        """The result of one reading statement; parameters are written $name or ?.

        Raises ReadOnlyError for anything that writes, changes settings or looks outside the store."""
        if self.live:
            self.refresh()
        try:
            return self._query(query, params)
        except duckdb.IOException:
            self._backend.forget()
            self.refresh()
        except UNREADABLE:  # of the query, or of a file
            if not self._examined():
                raise
        try:
            return self._query(query, params)
        except UNREADABLE:
            if not self._examined():
                raise
            return self._query(query, params)

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

    def known(self, runs: Collection[str] | None = None) -> list[str]:
        """The given runs (default: all, newest first); StoreError names the first that is not here."""
        here = self.runs()["run"].to_pylist()
        if wrong := [run for run in runs or () if run not in here]:
            if text := self.damage_of(wrong[0]):
                raise StoreError(text)
            raise StoreError(f"no run {wrong[0]!r} in {self.where}; there are {', '.join(here) or 'none'}")
        return here if runs is None else list(runs)

    def steps(
        self, run: str | None = None, pool: Pool | None = None, *, since: int = 0, needs: Collection[str] = ()
    ) -> Iterator[Step]:
        """The recorded steps after `since`, exactly as methods saw them. pool: default the one recorded.

        A token column that was not kept for every rollout of a step is None there; where it is named in needs, as in
        `pipeline.needs`, StoreError says so instead."""
        return rebuild.steps(self, self.known([run or str(self.latest())])[0], pool, since, frozenset(needs))

    def pool(self, run: str | None = None) -> tuple[Pool, Pool]:
        """The training pool and the evaluation pool of a run, as recorded."""
        return rebuild.pools(self, self.known([run or str(self.latest())])[0])

    def source(self, table: str) -> str:
        """SQL of a declared table with all its rows, those too that the view of its name hides."""
        return f"({self._sources[table]})"

    def close(self) -> None:
        """Let go of the files and the server."""
        self._con.close()
        self._backend.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.where}: {len(self.runs())} runs)"

    def _repr_html_(self) -> str:
        return html_table(self.runs(), f"store {self.where}")

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

    def _examined(self) -> bool:
        """Whether some files turned out to be damaged, and are left out from now on; StoreError where nothing is left."""
        with self._lock:
            found = self._backend.examine()
            return self.refresh() if found else False

    def _refresh(self) -> bool:
        with self._backend.news(self._con) as news:
            if news is not None:
                self._latest = None
                newest = self._con.execute("SELECT coalesce(max(schema_version), 0) FROM tail.commits").fetchone()
                refuse_newer(self.where, newest[0])  # type: ignore[index]
                self._show(news.sources, news.anew)
        alive = tuple(sorted(self._backend.living(self._open)))
        if alive != self._alive:
            self._con.execute("BEGIN TRANSACTION; DELETE FROM alive")
            self._con.execute("INSERT INTO alive SELECT unnest(?::VARCHAR[])", [list(alive)])
            self._con.execute("COMMIT")
            self._alive = alive
        return news is not None

    def _show(self, sources: dict[str, str], anew: bool) -> None:
        """Define the views that queries see; those of narrow tables change only with the generation or a resume."""
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


def _plain(table: pa.Table) -> pa.Table:
    """Whole sums as int64: DuckDB adds integers in 128 bits, which pandas and plots know as Decimal objects.

    A column that holds one beyond 64 bits stays as it is."""
    for i, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            with contextlib.suppress(pa.ArrowInvalid):
                table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
    return table
