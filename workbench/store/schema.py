"""Table schema and its version: schema.sql is the only declaration, everything else is read from it.

Migrations go forward only and touch no file: commits, payload parts and the base keep the version that wrote them, and
are read by column name, so that a table or column they lack is empty or null. The next compaction writes the base anew,
in this version. A new version may therefore add tables and columns; it never renames or reuses one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import duckdb
import pyarrow as pa

from workbench.store.errors import StoreError

HERE = Path(__file__).parent
SCHEMA_SQL = (HERE / "schema.sql").read_text(encoding="utf-8")
VIEWS_SQL = (HERE / "views.sql").read_text(encoding="utf-8")
HIDDEN_SQL = (HERE / "hidden.sql").read_text(encoding="utf-8")

SCHEMA_VERSION = int(re.search(r"^-- schema_version (\d+)$", SCHEMA_SQL, re.M)[1])  # type: ignore[index]
"""Version of the tables; a store written by a newer one is refused."""

TABLES_SQL = "\n".join(line for line in SCHEMA_SQL.splitlines() if not line.startswith("COMMENT ON"))
"""The tables without their comments, which cost more than the tables."""

WIDE = ("completions",)
"""Tables kept as Parquet parts and read by the page; all others go into the base file."""


def refuse_newer(where: object, version: int) -> None:
    """Raise StoreError where a schema version is above this program's."""
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"the store {where} was written with schema version {version}, this program knows up to {SCHEMA_VERSION}; "
            "nothing was touched. Upgrade: pip install -U rollout-workbench"
        )


@cache
def tables() -> Mapping[str, pa.Schema]:
    """Table name -> Arrow schema, in the order of schema.sql. JSON columns are strings on disk."""
    found = {}
    with duckdb.connect() as con:
        con.execute(TABLES_SQL)
        for name in re.findall(r"^CREATE TABLE (\w+)", SCHEMA_SQL, re.M):
            schema = con.table(name).limit(0).to_arrow_table().schema
            plain = [pa.field(f.name, f.type.storage_type if isinstance(f.type, pa.BaseExtensionType) else f.type)
                     for f in schema]  # fmt: skip
            found[name] = pa.schema(plain)
    return MappingProxyType(found)


@cache
def comments() -> Mapping[str, Mapping[str, str]]:
    """Table name -> {column: comment}; the table's own comment is under ""."""
    pattern = r"^COMMENT ON (?:TABLE (\w+)|COLUMN (\w+)\.(\w+)) IS '((?:[^']|'')*)';$"
    found: dict[str, dict[str, str]] = {}
    for table, of, column, text in re.findall(pattern, SCHEMA_SQL, re.M):
        found.setdefault(table or of, {})[column] = text.replace("''", "'")
    return MappingProxyType(found)
