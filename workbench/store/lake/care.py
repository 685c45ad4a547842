"""Look after a shared catalog: its size, whether everything is there, and compaction into fewer, larger files.

Compaction writes the rows that the catalog itself holds (inserts of up to ten) into Parquet files, joins adjacent small
files, and deletes files that no snapshot of the last hour needs. One process at a time, beside writers and readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workbench.store.folder.check import whole
from workbench.store.lake.catalog import Lake, attach, connect, reported
from workbench.store.lake.lock import Lock, attach_to_write
from workbench.store.records import Finding, Progress, Sizes
from workbench.store.statements import columns_of

KEPT = "1 hour"
"""How long files that were joined stay, for those who still read them."""


def data_folder(url: str | Path) -> Path:
    """The folder of the data: as the URL says, or the catalog."""
    lake = Lake.parse(url)
    if lake.data:
        return Path(lake.data)
    with connect(lake) as con:
        return Path(attach(con, lake))


def compact(url: str | Path) -> int:
    """Join small files and flush inlined rows; returns how many files were joined, 0 where another process is at it."""
    lake = Lake.parse(url)
    with connect(lake, writes=True, threads=1) as con:
        attach_to_write(con, lake)
        lock = Lock(con, lake, "compaction")
        if not lock.take():
            return 0
        try:
            with reported(lake):
                con.execute("CALL ducklake_flush_inlined_data('lake')")
                joined = con.execute("CALL ducklake_merge_adjacent_files('lake')").fetchall()
                older = f"older_than => now() - INTERVAL '{KEPT}'"
                con.execute(f"CALL ducklake_cleanup_old_files('lake', {older})")
            return sum(row[2] for row in joined)
        finally:
            lock.close()


def sizes(url: str | Path) -> Sizes:
    """Bytes of the data by table, the snapshot, and the number of files that compaction could join, by table."""
    lake = Lake.parse(url)
    with connect(lake) as con:
        attach(con, lake)
        with reported(lake):
            rows = con.execute(
                "SELECT table_name, file_count, file_size_bytes FROM ducklake_table_info('lake') ORDER BY table_name"
            ).fetchall()
            snapshot = con.execute("FROM lake.current_snapshot()").fetchone()[0]  # type: ignore[index]
    return Sizes({t: size for t, _, size in rows if size}, snapshot, {t: n for t, n, _ in rows if n > 1}, "files")


def check_files(url: str | Path, progress: Progress) -> Iterator[Finding]:
    """Files of the data that are missing or damaged; where there are none, commits that are missing or there twice."""
    lake = Lake.parse(url)
    with connect(lake) as con:
        data = attach(con, lake)
        with reported(lake):
            listed = [
                Path(path)
                for table in columns_of(con, "lake")
                for (path,) in con.execute(f"SELECT data_file FROM ducklake_list_files('lake', '{table}')").fetchall()
            ]
            broken = False
            for i, path in enumerate(listed):
                progress(i, len(listed), "files")
                for finding in whole(
                    path, str(path.relative_to(data) if path.is_relative_to(data) else path), "the catalog"
                ):
                    broken = True
                    yield finding
            progress(len(listed), len(listed), "files")
            if broken:
                return
            commits = "SELECT run, rank, {} AS n FROM lake.commits GROUP BY ALL HAVING {} ORDER BY ALL"
            for run, _, seq, n in con.execute(commits.format("seq, count(*)", "n > 1")).fetchall():
                yield Finding("error", f"{run} commit {seq}", f"is there {n} times")
            for run, rank, last, n in con.execute(commits.format("max(seq), count(*)", "max(seq) + 1 <> n")).fetchall():
                yield Finding("error", run, f"{n} of {last + 1} commits of rank {rank} are there")
