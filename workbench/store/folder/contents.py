"""Read commits of any schema version: rows of bundles, and Parquet files of large or older tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from workbench.store.folder import bundle
from workbench.store.folder.files import CHECKSUMS
from workbench.store.schema import tables

BATCH = 64
"""Commits that a reader takes in at a time."""


class Contents(NamedTuple):
    """Of some commits, in their order: table -> rows that were in bundles, and table -> Parquet files. sums: of the files
    that have a checksum, (bytes, CRC-32)."""

    rows: dict[str, pa.Table]
    files: dict[str, list[str]]
    sums: dict[str, tuple[int, int]]

    def insert(self, con: duckdb.DuckDBPyConnection, table: str, into: str) -> None:
        """Append what is there of a table; into has the columns of this version."""
        if table in self.rows:
            con.from_arrow(self.rows[table]).insert_into(into)
        if table in self.files:
            found = "SELECT * FROM read_parquet(?, union_by_name = true, hive_partitioning = false)"
            con.execute(f"INSERT INTO {into} BY NAME {found}", [self.files[table]])


def batches(commits: list[Path], size: int = BATCH) -> Iterator[Contents]:
    """The contents of commits, so many at a time; FileNotFoundError where one was compacted away meanwhile."""
    for first in range(0, len(commits), size):
        yield contents(commits[first : first + size])


def contents(commits: Iterable[Path]) -> Contents:
    """The contents of commits."""
    rows: dict[str, list[pa.Table]] = {}
    found: dict[str, list[str]] = {}
    sums: dict[str, tuple[int, int]] = {}
    for commit in commits:
        for path in sorted(commit.iterdir()):
            if path.name == bundle.NAME:
                for table, held in bundle.read(path).items():
                    rows.setdefault(table, []).append(held)
                    if table == CHECKSUMS:
                        sums |= {str(commit / r["file"]): (r["bytes"], r["crc32"]) for r in held.to_pylist()}
            elif path.suffix == ".parquet":
                found.setdefault(path.stem, []).append(str(path))
    known = tables()
    return Contents(
        {t: _joined(held, known[t]) for t, held in rows.items() if t in known},
        {t: paths for t, paths in found.items() if t in known},
        sums,
    )


def _joined(held: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """One table in one chunk: DuckDB takes in a chunk at a time."""
    return pa.concat_tables([t if t.schema == schema else fit(t, schema) for t in held]).combine_chunks()


def fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns of a schema; those that an earlier version lacks are null."""
    n = len(table)
    return pa.table([table[f.name].cast(f.type) if f.name in table.column_names else pa.nulls(n, f.type) for f in schema],
                    schema=schema)  # fmt: skip
