"""Compaction: fold small commits into one read-only base file and one part of completions; harmless to kill at any point.

Only the atomic rename of CURRENT publishes a generation. Until then its files are invisible, after it readers move to
it at their next refresh; the base of the generation before stays for those still reading it, and commits are deleted
one generation after they were folded. Any process may compact; a lock keeps it to one at a time.

A large base is a copy of the one before with the new rows appended: copying a file is cheap, inserting all rows again
would make recording dearer the longer a run is. It is made anew while it is small, since appending leaves free blocks
behind, and where its tables lack columns.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.store.folder import files
from workbench.store.folder.contents import batches, contents, fit
from workbench.store.schema import SCHEMA_SQL, WIDE, tables
from workbench.store.statements import columns_of, quoted

STORAGE_VERSION = "v1.5.0"
"""File format of the base: what DuckDB 1.5 reads, whichever version writes it. At 5 M rollouts the share of zero
advantages takes 100 ms from it and 160 ms from the format of 1.2, whose strings are slower to filter."""

BATCH = 256
"""Commits that are inserted at a time, their asks and rollouts in the order of prompts: the history of one prompt is
then read from a few places and not from everywhere."""

COPIED = 64 * 1024 * 1024
"""Bytes from which on a base is copied and appended to."""

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Of completions in memory: a page is read by the row group."""

MEMORY = "1GiB"
"""Of a compaction, which shares the machine with a trainer; beyond it DuckDB spills into the store's folder."""


def compact(folder: Path, threads: int = 1) -> int:
    """Fold all commits that are there; returns how many, 0 for none or where another process is at it."""
    files.check_version(folder)
    held = files.lock(folder / "compact.lock")
    if held is None:
        return 0
    with held:
        return fold(folder, threads)


def fold(folder: Path, threads: int) -> int:
    """Compact, for those who hold the lock."""
    before = files.read_current(folder)
    todo, mark = files.commits_since(folder, before.mark)
    _retire(folder, before)
    if not todo:
        return 0
    generation = before.generation + 1
    base, part = Path(f"base/gen-{generation:06d}.duckdb"), Path(f"payload/part-{generation:06d}.parquet")
    for sub in (base.parent, part.parent):
        (folder / sub).mkdir(exist_ok=True)
    parts = before.parts
    _sweep(folder / base.parent)
    spill = {"memory_limit": MEMORY, "temp_directory": str(folder / base.with_suffix(".tmp.spill"))}
    with duckdb.connect(config={"threads": threads, **spill}) as con:
        con.execute("SET enable_progress_bar = false")
        _write_base(con, folder, before, todo, folder / base)
    _sweep(folder / base.parent)
    if _write_part(todo, folder / part):
        parts = (*parts, str(part))
    files.write_current(folder, files.Current(generation, str(base), parts, mark))
    return len(todo)


def _write_base(
    con: duckdb.DuckDBPyConnection, folder: Path, before: files.Current, todo: list[Path], path: Path
) -> None:
    scratch = path.with_suffix(".tmp")
    old = folder / before.base if before.base else None
    if old is not None and old.stat().st_size >= COPIED and _is_current(con, old):
        shutil.copyfile(old, scratch)
        con.execute(f"ATTACH {quoted(scratch)} AS made; BEGIN TRANSACTION")
    else:
        start_base(con, scratch, old)
    for found in batches(todo, BATCH):
        for name in ("asks", "rollouts"):
            if name in found.rows:
                found.rows[name] = found.rows[name].sort_by("prompt_id")
        for name in tables():
            if name not in WIDE:
                found.insert(con, name, f"made.main.{name}")
    con.execute("COMMIT; CHECKPOINT made; DETACH made")
    publish(scratch, path)


def start_base(con: duckdb.DuckDBPyConnection, scratch: Path, old: Path | None, where: str = "true") -> None:
    """Begin a transaction on a new base, attached as `made`, with those rows of an old one, of any version."""
    con.execute(f"ATTACH {quoted(scratch)} AS made (STORAGE_VERSION '{STORAGE_VERSION}')")
    con.execute(f"USE made; {SCHEMA_SQL} USE memory")
    if old is not None:
        con.execute(f"ATTACH {quoted(old)} AS old (READ_ONLY)")
    con.execute("BEGIN TRANSACTION")
    if old is not None:
        for name in columns_of(con, "old").keys() & tables().keys() - {*WIDE}:
            con.execute(f"INSERT INTO made.{name} BY NAME SELECT * FROM old.{name} WHERE {where}")


def _is_current(con: duckdb.DuckDBPyConnection, base: Path) -> bool:
    """Whether a base has the file format and all tables and columns of this version."""
    con.execute(f"ATTACH {quoted(base)} AS old (READ_ONLY)")
    old = columns_of(con, "old")
    written = con.execute(
        "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = 'old'"
    ).fetchone()
    con.execute("DETACH old")
    whole = all(name in old and old[name].keys() >= {*schema.names} for name, schema in tables().items())
    return whole and str(written[0]).startswith(STORAGE_VERSION)  # type: ignore[index]


def _write_part(todo: list[Path], path: Path) -> bool:
    """Write the completions of commits, in their order, by row groups; False where there are none."""
    groups = _row_groups(todo)
    first = next(groups, None)
    if first is None:
        return False
    scratch = path.with_suffix(".tmp")
    with scratch.open("wb") as file, files.parquet_writer(file, first.schema) as out:
        for table in chain([first], groups):
            out.write_table(table, row_group_size=len(table))
    publish(scratch, path)
    return True


def _row_groups(todo: list[Path]) -> Iterator[pa.Table]:
    """Completions, joined until there is enough for a row group."""
    waiting: list[pa.Table] = []
    size = 0
    for commit in todo:
        found = contents([commit])
        for table in WIDE:
            held = [found.rows[table]] if table in found.rows else []
            held += [fit(pq.read_table(path), tables()[table]) for path in found.files.get(table, ())]
            waiting += held
            size += sum(part.nbytes for part in held)
        if size >= ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _sweep(folder: Path) -> None:
    """Delete what compactions that were killed left behind."""
    for leftover in folder.glob("*.tmp*"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()


def publish(scratch: Path, path: Path) -> None:
    """Give a finished file its name."""
    files.fsync(scratch)
    scratch.replace(path)
    files.fsync(path.parent)


def _retire(folder: Path, current: files.Current) -> None:
    """Delete bases older than the generation before the current one, and commits that both of these cover."""
    keep = {f"gen-{g:06d}.duckdb" for g in (current.generation, current.generation - 1)}
    for path in (folder / "base").glob("gen-*.duckdb"):
        if path.name not in keep:
            path.unlink()
    for name, last in current.mark.items():
        home = folder / "commits" / name
        for path in home.iterdir() if home.is_dir() else ():
            if path.name.isdigit() and int(path.name) <= last:
                shutil.rmtree(path)
