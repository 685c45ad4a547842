"""DuckLake connection: the same tables, with the catalog in PostgreSQL and the rows in Parquet files (a shared store).

A store's URL is `ducklake:postgres:<conninfo>?data=<folder>`. conninfo is what libpq takes: `host=db dbname=runs user=me`
or `postgresql://me@db/runs`; a password is better kept in PGPASSWORD or ~/.pgpass. data is a folder that every machine
sees under the same path; the writer that makes the store names it, and the catalog remembers it. Another option of the
URL, `schema`, is the PostgreSQL schema of the catalog (default public), for several stores in one database.

A commit is one DuckLake transaction over all tables. `store` holds the versions of the schema that wrote here.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import duckdb

from workbench.store.errors import StoreError
from workbench.store.schema import SCHEMA_VERSION, TABLES_SQL, WIDE, refuse_newer
from workbench.store.statements import columns_of, quoted, transaction
from workbench.store.urls import redacted, secrets_of

PREFIX = "ducklake:postgres:"
EXAMPLE = f"{PREFIX}host=127.0.0.1 dbname=runs user=me?data=/shared/runs"
EXTENSIONS = {"postgres": "postgres_scanner", "ducklake": "ducklake"}
"""Name of an extension -> name that its file must have to be loaded."""

PATIENCE = "SET ducklake_max_retry_count = 40; SET ducklake_retry_wait_ms = 15; SET ducklake_retry_backoff = 1.15"
"""Appends never conflict, but snapshots are numbered in a row: DuckLake tries again by itself, for half a minute."""


@dataclass(frozen=True)
class Lake:
    """A shared catalog by its URL; printed without its password."""

    conninfo: str = field(repr=False)
    data: str = ""
    schema: str = "public"

    @classmethod
    def parse(cls, url: str | Path) -> Lake:
        """The catalog a store's URL names; StoreError says what a URL looks like."""
        text = str(url)
        if not text.startswith(PREFIX):
            raise StoreError(f"{redacted(text)}: a shared store is {EXAMPLE!r}; other catalogs lose commits")
        options: dict[str, str] = {}

        def take(found: re.Match[str]) -> str:
            options[found[2]] = unquote(found[3])
            return found[1]

        rest = re.sub(r"([?&])(data|schema)=([^&]*)", take, text.removeprefix(PREFIX))
        conninfo = re.sub(r"\?&+", "?", rest).rstrip("?& ")
        if not conninfo:
            raise StoreError(f"{redacted(text)}: the address of the server is missing; a shared store is {EXAMPLE!r}")
        data, schema = options.get("data", ""), options.get("schema", "public")
        if "://" in data:
            raise StoreError(f"data={data}: a folder that all machines see; object stores are not supported")
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", schema):
            raise StoreError(f"schema={schema}: lower-case letters, digits and '_', please")
        return cls(conninfo, str(Path(data).resolve()) if data else "", schema)

    @property
    def url(self) -> str:
        """The URL that `parse` reads, password and all."""
        given = {"data": self.data, "schema": "" if self.schema == "public" else self.schema}
        options = "&".join(f"{k}={v}" for k, v in given.items() if v)
        mark = "&" if "?" in self.conninfo else "?"
        return f"{PREFIX}{self.conninfo}{mark if options else ''}{options}"

    def __str__(self) -> str:
        return redacted(self.url)


def connect(lake: Lake, *, writes: bool = False, threads: int = 2) -> duckdb.DuckDBPyConnection:
    """A DuckDB of our own with both extensions and the server attached as `gate`; `attach` adds the catalog."""
    con = duckdb.connect(config={"threads": threads, "autoload_known_extensions": False})
    try:
        con.execute("SET enable_progress_bar = false; SET python_enable_replacements = false")
        _load_extensions(con)
        mode = "ISOLATION_LEVEL 'READ COMMITTED'" if writes else "READ_ONLY"  # an idle lock keeps no old rows alive
        with reported(lake):
            con.execute(f"ATTACH {quoted(lake.conninfo)} AS gate (TYPE postgres, {mode})")
    except BaseException:
        con.close()
        raise
    return con


def attach(con: duckdb.DuckDBPyConnection, lake: Lake, *, create: bool = False) -> str:
    """Attach the catalog as `lake`; the folder of its data. StoreError where there is none, or a newer one.

    create: make or upgrade it first, for those who hold the lock of the catalog."""
    with reported(lake):
        made = con.execute(
            "SELECT count(*) FROM postgres_query('gate', $$ SELECT 1 AS one FROM pg_tables WHERE tablename ="
            f" 'ducklake_metadata' AND schemaname = '{lake.schema}' $$)"
        ).fetchone()[0]  # type: ignore[index]
        if not made and not create:
            raise _nothing(lake)
        if not made and not lake.data:
            raise StoreError(f"{lake} is new and needs a folder for its data, which all machines see: {EXAMPLE!r}")
        options = ["READ_WRITE" if create else "READ_ONLY", f"METADATA_SCHEMA '{lake.schema}'"]
        if lake.data:
            options.append(f"DATA_PATH {quoted(lake.data)}")
        if create and lake.data:
            Path(lake.data).mkdir(parents=True, exist_ok=True)
        con.execute(f"ATTACH {quoted('ducklake:postgres:' + lake.conninfo)} AS lake ({', '.join(options)})")
        if create:
            con.execute(PATIENCE)
        data = str(con.execute("SELECT data_path FROM ducklake_settings('lake')").fetchone()[0])  # type: ignore[index]
        if not Path(data).is_dir():
            raise StoreError(
                f"the data of {lake} are in {data}, a folder that this machine does not see; mount it there"
            )
        version = _version(con, lake)
        if version == 0 and not create:
            raise _nothing(lake)
        if create and version < SCHEMA_VERSION:
            _upgrade(con)
    return data.rstrip("/")


def _nothing(lake: Lake) -> StoreError:
    return StoreError(f"there is no store at {lake}; a run creates it, for example: workbench demo --store URL")


@contextmanager
def reported(lake: Lake) -> Iterator[None]:
    """DuckDB's errors as StoreError: what happened, without the password, and what to do."""
    try:
        yield
    except duckdb.Error as error:
        raise StoreError(explained(lake, error)) from None  # the error repeats the address, password and all


def explained(lake: Lake, error: BaseException) -> str:
    """One line on an error of the catalog."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    for secret in secrets_of(lake.conninfo):
        text = text.replace(secret, "***")
    text = redacted(text)
    if found := re.search(r'existing data path in the catalog "([^"]*)"', text):
        return f"the data of {lake} are in {found[1]}: leave out data=, or give that folder"
    if found := re.search(r"Unable to connect to Postgres at (?:\"[^\"]*\"|\S+): (.*)", text):
        return f"the catalog {lake} cannot be reached: {found[1]} (is the server up; are host, port, user and database right?)"
    return f"{lake}: {text[:500]}"


def _load_extensions(con: duckdb.DuckDBPyConnection) -> None:
    """From the packages where they fit this DuckDB, else those it has installed, else from its site."""
    for name, file in EXTENSIONS.items():
        library = packaged(name)
        try:
            if library is None:
                try:
                    con.execute(f"LOAD {file}")
                except duckdb.Error:
                    con.execute(f"INSTALL {name}; LOAD {file}")
                continue
            with tempfile.TemporaryDirectory() as scratch:  # DuckDB takes an extension's name from its file's
                link = Path(scratch) / f"{file}.duckdb_extension"
                link.symlink_to(library)
                con.execute(f"LOAD {quoted(str(link))}")
        except duckdb.Error as error:
            raise StoreError(
                f"a shared store needs DuckDB's extension {name!r}, which is not there ({str(error).splitlines()[0]}). Without "
                "a network: pip install 'rollout-workbench[lake]', whose files are for duckdb 1.5.5; this is "
                f"duckdb {duckdb.__version__}"
            ) from error


def packaged(name: str) -> Path | None:
    """The file of a package such as duckdb-extension-ducklake that fits this DuckDB."""
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    if found is None or found.origin is None:
        return None
    file = Path(found.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    return file if file.exists() else None


def _version(con: duckdb.DuckDBPyConnection, lake: Lake) -> int:
    """Version of the tables there, 0 for none; a newer one is refused."""
    known = columns_of(con, "lake")
    if "store" not in known:
        if "commits" in known:
            raise StoreError(
                f"{lake} holds a table `commits` that is not a store's; give the store a schema of its own"
            )
        return 0
    version = con.execute("SELECT max(schema_version) FROM lake.store").fetchone()[0] or 0  # type: ignore[index]
    refuse_newer(str(lake), version)
    return version


def _upgrade(con: duckdb.DuckDBPyConnection) -> None:
    """Add what tables and columns are missing: rows of earlier versions have null there."""
    with duckdb.connect() as memory:
        memory.execute(f"{TABLES_SQL}; CREATE TABLE store (schema_version INTEGER)")
        wanted = columns_of(memory, "memory")
    known = columns_of(con, "lake")
    with transaction(con):
        for table, columns in wanted.items():
            if table not in known:
                declared = ", ".join(f'"{column}" {type_}' for column, type_ in columns.items())
                con.execute(f"CREATE TABLE lake.{table} ({declared})")
            for column, type_ in columns.items():
                if table in known and column not in known[table]:
                    con.execute(f'ALTER TABLE lake.{table} ADD COLUMN "{column}" {type_}')
        con.execute("INSERT INTO lake.store VALUES (?)", [SCHEMA_VERSION])
    for table in WIDE:  # read by the page from Parquet files, never from the catalog's own rows
        con.execute(f"CALL lake.set_option('data_inlining_row_limit', 0, table_name => '{table}')")
