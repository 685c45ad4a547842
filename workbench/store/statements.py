"""SQL statements in DuckDB that several parts need: string literals, transactions, inserts of Arrow tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import pyarrow as pa


def quoted(text: str | Path) -> str:
    """A string or path as a SQL literal."""
    return "'" + str(text).replace("'", "''") + "'"


@contextmanager
def plain_path(folder: Path) -> Iterator[Path]:
    """The folder, under a path that DuckDB takes as it is: ?, * and [ in one are a pattern to it, or options."""
    if not set(str(folder)) & set("?*["):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="workbench-") as scratch:
        link = Path(scratch) / "store"
        link.symlink_to(folder.resolve())
        yield link


@contextmanager
def transaction(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """A transaction that is committed at the end of the block, and rolled back after an error."""
    con.execute("BEGIN TRANSACTION")
    try:
        yield
        con.execute("COMMIT")
    except BaseException:
        with suppress(duckdb.Error):  # the connection may be what failed
            con.execute("ROLLBACK")
        raise


def insert(con: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    """Append rows to a table, by the names of their columns."""
    con.register("inserted", rows)
    try:
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM inserted")
    finally:
        with suppress(duckdb.Error):
            con.unregister("inserted")


def columns_of(con: duckdb.DuckDBPyConnection, database: str) -> dict[str, dict[str, str]]:
    """Table -> {column: type} of an attached database; one of an earlier version lacks some."""
    found: dict[str, dict[str, str]] = {}
    for table, column, type_ in con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = ? AND schema_name = 'main'"
        " ORDER BY table_oid, column_index",
        [database],
    ).fetchall():
        found.setdefault(table, {})[column] = type_
    return found
