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
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, groupby
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.store.errors import Damaged, repaired_by
from workbench.store.folder import files
from workbench.store.folder.contents import batches, contents, fit
from workbench.store.folder.damage import Quarantined, of_file, of_pointer, quarantine, told
from workbench.store.schema import SCHEMA_SQL, WIDE, refuse_newer, tables
from workbench.store.statements import columns_of, plain_path, quoted

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
        n, damaged = fold(folder, threads)
    if damaged:
        raise Quarantine(damaged, folder)
    return n


class Quarantine(Damaged):
    """Commits that a compaction could not read and left where they are, by writer; the other writers' were folded."""

    def __init__(self, found: Mapping[str, Quarantined], folder: Path) -> None:
        super().__init__("; ".join(told(name, one, folder) for name, one in found.items()))
        self.found = found


def fold(folder: Path, threads: int) -> tuple[int, dict[str, Quarantined]]:
    """Compact, for those who hold the lock: how many commits, and the first damaged one of each writer that has one, which
    stays where it is with those after it."""
    before, damaged = files.read_current(folder), {}
    if not before.generation:
        files.write_current(folder, before, {})  # from now on a base without CURRENT has lost it
    _retire(folder, before)
    while True:
        todo, mark = files.commits_since(folder, before.mark, {name: one.seq for name, one in damaged.items()})
        if not todo:
            return 0, damaged
        try:
            return _fold(folder, threads, before, todo, mark), damaged
        except Damaged as error:
            if error.path is None or error.path.parent not in todo:
                raise
            damaged |= quarantine([error.path.parent])
        except duckdb.Error:
            found = quarantine(todo)
            if not found:
                raise
            damaged |= found


def _fold(folder: Path, threads: int, before: files.Current, todo: list[Path], mark: dict[str, int]) -> int:
    """Write a generation that has these commits too, and publish it."""
    generation = before.generation + 1
    base = Path(f"base/gen-{generation:06d}.duckdb")
    for sub in (base.parent, folder / "payload"):
        (folder / sub).mkdir(exist_ok=True)
    _sweep(folder / base.parent)
    with plain_path(folder) as plain:
        spill = {"memory_limit": MEMORY, "temp_directory": str(plain / base.with_suffix(".tmp.spill"))}
        with duckdb.connect(config={"threads": threads, **spill}) as con:
            con.execute("SET enable_progress_bar = false")
            _write_base(con, plain, before, todo, plain / base)
    _sweep(folder / base.parent)
    parts = before.parts
    runs = [list(mine) for _, mine in groupby(todo, lambda commit: commit.parent.parent.name)]
    for i, mine in enumerate(runs):  # a file a run: what is damaged is of one
        part = f"payload/part-{generation:06d}{f'-{i}' if len(runs) > 1 else ''}.parquet"
        if _write_part(mine, folder / part):
            parts = (*parts, part)
    files.write_current(folder, files.Current(generation, str(base), parts, mark), before.sums)
    return len(todo)


def _write_base(
    con: duckdb.DuckDBPyConnection, folder: Path, before: files.Current, todo: list[Path], path: Path
) -> None:
    old = folder / before.base if before.base else None
    with base_scratch(path) as scratch:
        try:
            if old is not None and old.stat().st_size >= COPIED and _is_current(con, old):
                shutil.copyfile(old, scratch)
                if before.base in before.sums and files.checksum(scratch) != before.sums[before.base]:
                    raise duckdb.IOException("it does not have its checksum")
                con.execute(f"ATTACH {quoted(scratch)} AS made; BEGIN TRANSACTION")
            else:
                start_base(con, scratch, old)
        except (duckdb.Error, OSError) as error:
            raise base_damaged(folder, before.base, error) from error
        for found in batches(todo, BATCH):
            for name in ("asks", "rollouts"):
                if name in found.rows:
                    found.rows[name] = found.rows[name].sort_by("prompt_id")
            for name in tables():
                if name not in WIDE:
                    found.insert(con, name, f"made.main.{name}")
        newest = con.execute("SELECT max(schema_version) FROM made.commits").fetchone()
        refuse_newer(folder, newest[0] or 0)  # type: ignore[index]
        con.execute("COMMIT; CHECKPOINT made; DETACH made")
        publish(scratch, path)


@contextmanager
def base_scratch(path: Path) -> Iterator[Path]:
    """Where a base is written before it gets its name: DuckDB takes what follows a ? in a path for options of the file."""
    if "?" not in str(path.resolve()):
        yield path.with_suffix(".tmp")
        return
    with tempfile.TemporaryDirectory(prefix="workbench-") as aside:
        yield Path(aside) / path.name


def base_damaged(folder: Path, base: str, error: Exception) -> Exception:
    """The error of a base, with the way out; another error as it is, such as of a full disk."""
    if not base or not (why := of_file(folder / base, files.read_current(folder).sums.get(base))):
        return error
    folder = folder.resolve()
    return Damaged(f"{base} of the store {folder} is damaged ({why}); {repaired_by(folder)}", folder / base)


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
            for path in map(Path, found.files.get(table, ())):
                if why := of_file(path, found.sums.get(str(path))):
                    raise Damaged(f"{path}: {why}", path)
                held.append(fit(pq.ParquetFile(path).read(), tables()[table]))
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
    if scratch.parent != path.parent:
        scratch = Path(shutil.copyfile(scratch, path.with_suffix(".tmp")))
    files.fsync(scratch)
    scratch.replace(path)
    files.fsync(path.parent)


def _retire(folder: Path, current: files.Current) -> None:
    """Delete bases older than the generation before the current one, and commits that both of these cover.

    A generation above the current one was not read, and stays."""
    keep, newer = {current.base, f"base/gen-{current.generation - 1:06d}.duckdb"}, current.generation
    for generation, path in files.generations(folder).items():
        if generation < current.generation - 1:
            path.unlink()
        elif not of_pointer(path):
            keep.add(files.parse_current(path.read_bytes()).base)
    for path in (folder / "base").glob("gen-*.duckdb"):
        if f"base/{path.name}" not in keep and int(path.stem.removeprefix("gen-")) <= newer:
            path.unlink()
    for name, home in files.writers(folder):
        for path in home.iterdir():
            if path.name.isdigit() and int(path.name) <= current.mark.get(name, -1):
                shutil.rmtree(path)
