"""Looks after a shared catalog: its size, whether everything is there, and fewer, larger files.

Compaction writes the rows that the catalog itself holds (inserts of up to ten) into Parquet files, joins adjacent small
files, and deletes files that no snapshot of the last hour needs. One process at a time, beside writers and readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.store.care.check import Finding, Progress, Sizes, silent, sums
from workbench.store.errors import StoreError
from workbench.store.lake.catalog import Lake, attach, connect, there, told
from workbench.store.lake.lock import Lock, attach_to_write
from workbench.store.lake.reader import LakeStore

KEPT = "1 hour"
"""How long files that were joined stay, for those who still read them."""


def compact_lake(url: str | Path | Lake) -> int:
    """Join small files and flush inlined rows; returns how many files were joined, 0 where another process is at it."""
    lake = Lake.parse(url)
    con = connect(lake, writes=True, threads=1)
    try:
        attach_to_write(con, lake)
        lock = Lock(con, lake, "compaction")
        if not lock.take():
            return 0
        try:
            with told(lake):
                con.execute("CALL ducklake_flush_inlined_data('lake')")
                joined = con.execute("CALL ducklake_merge_adjacent_files('lake')").fetchall()
                older = f"older_than => now() - INTERVAL '{KEPT}'"
                con.execute(f"CALL ducklake_cleanup_old_files('lake', {older})")
            return sum(row[2] for row in joined)
        finally:
            lock.close()
    finally:
        con.close()


def sizes(url: str | Path | Lake) -> Sizes:
    """Bytes of the data by table, the snapshot, and the number of files that compaction could join, by table."""
    lake = Lake.parse(url)
    con = connect(lake)
    try:
        attach(con, lake)
        with told(lake):
            rows = con.execute(
                "SELECT table_name, file_count, file_size_bytes FROM ducklake_table_info('lake') ORDER BY table_name"
            ).fetchall()
            snapshot = con.execute("FROM lake.current_snapshot()").fetchone()[0]  # type: ignore[index]
    finally:
        con.close()
    return Sizes({t: size for t, _, size in rows if size}, snapshot, {t: n for t, n, _ in rows if n > 1})


def check(url: str | Path | Lake, progress: Progress = silent) -> list[Finding]:
    """All that is wrong with a shared store: files that are missing or damaged, then sums that do not add up."""
    lake = Lake.parse(url)
    con = connect(lake)
    try:
        data = attach(con, lake)
        with told(lake):
            found = list(_files(con, Path(data), progress))
    finally:
        con.close()
    if not any(f.kind == "error" for f in found):
        try:
            with LakeStore.at(lake) as store:
                found += _twice(store)
                found += sums(store)
        except (StoreError, duckdb.Error) as error:
            found.append(Finding("error", str(lake), str(error)))
    return found


def _files(con: duckdb.DuckDBPyConnection, data: Path, progress: Progress) -> Iterator[Finding]:
    listed = [
        Path(path)
        for table in there(con)
        for (path,) in con.execute(f"SELECT data_file FROM ducklake_list_files('lake', '{table}')").fetchall()
    ]
    for i, path in enumerate(listed):
        progress(i, len(listed), "files")
        where = str(path.relative_to(data)) if path.is_relative_to(data) else str(path)
        if not path.exists():
            yield Finding("error", where, "the catalog names this file, and it is missing; restore it from a copy")
            continue
        try:
            file = pq.ParquetFile(path)
            for group in range(file.num_row_groups):
                file.read_row_group(group)
        except (pa.ArrowException, OSError) as error:
            yield Finding("error", where, f"damaged: {str(error).splitlines()[0]}; restore it from a copy")
    progress(len(listed), len(listed), "files")


def _twice(store: LakeStore) -> Iterator[Finding]:
    for row in store.sql(
        f"SELECT run, rank, seq, count(*) AS n FROM {store.source('commits')} GROUP BY ALL HAVING n > 1 ORDER BY ALL"
    ).to_pylist():
        yield Finding("error", f"{row['run']} commit {row['seq']}", f"is there {row['n']} times")
    for row in store.sql(
        f"SELECT run, rank, max(seq) + 1 AS should, count(*) AS n FROM {store.source('commits')} GROUP BY ALL"
        " HAVING should <> n ORDER BY ALL"
    ).to_pylist():
        text = f"{row['n']} of {row['should']} commits of rank {row['rank']} are there"
        yield Finding("error", row["run"], text)
