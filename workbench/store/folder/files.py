"""Files of a store folder: commit directories, the pointer to the compacted base, and file locks.

    STORE                          schema version of the folder
    CURRENT                        generation, base file, payload parts, and how far they cover each writer
    commits/<run>/r<rank>/LOCK     held by the writer while it lives
    commits/<run>/r<rank>/<seq>/   one commit: tables.bundle, and completions.parquet where they are large
    base/gen-<g>.duckdb            narrow tables up to a generation, never written again
    payload/part-<g>.parquet       completions of the commits folded in that generation

A commit is written as <seq>.tmp, every file fsynced, then renamed: the rename is the commit over all tables.
Meant for a local disk: rename visibility and flock are weaker on network file systems.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.store.errors import Damaged, StoreError
from workbench.store.folder import bundle
from workbench.store.schema import SCHEMA_VERSION, WIDE, refuse_newer

SMALL = 128 * 1024
"""Bytes up to which completions go with the other tables: a Parquet file costs more than it saves. Readers hold these
in memory until they are compacted."""

MARKER = json.dumps({"schema_version": SCHEMA_VERSION})
"""Content of the STORE file."""

KEYS = ["run", "rank", "seq", "step", "row"]
"""Columns by which completions are looked up; statistics and dictionaries of others cost four times what writing does."""


@dataclass(frozen=True)
class Current:
    """What the newest compaction published; mark maps "<run>/r<rank>" to the last commit it covers."""

    generation: int = 0
    base: str = ""
    parts: tuple[str, ...] = ()
    mark: Mapping[str, int] = field(default_factory=dict)


def fsync(path: Path) -> None:
    """Make what is in a file durable, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def bytes_in(folder: Path) -> int:
    """Bytes of all files below a folder; 0 where there is none."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else 0


def write_durably(path: Path, text: str) -> None:
    """Replace a small file atomically; writers that do so at once do not meet."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    fsync(path.parent)


def parquet_writer(file: BinaryIO, schema: pa.Schema, compression: str = "zstd") -> pq.ParquetWriter:
    """For completions: small, and found by their keys."""
    keys: Any = [k for k in KEYS if k in schema.names]  # the stubs know only True and False
    return pq.ParquetWriter(file, schema, compression=compression, use_dictionary=keys, write_statistics=keys)


def read_current(folder: Path) -> Current:
    """The pointer file; before the first compaction an empty one. Raises Damaged where it cannot be read."""
    path = folder / "CURRENT"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Current(int(found["generation"]), str(found["base"]), tuple(found["parts"]), dict(found["mark"]))
    except FileNotFoundError:
        return Current()
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(
            f"CURRENT of the store {folder} is damaged, so nobody knows which compacted files hold; nothing was touched. "
            f"Restore it from a copy; `workbench store check {folder}` says what else is wrong"
        ) from error


def write_current(folder: Path, current: Current) -> None:
    """Publish a generation: the commit point of a compaction."""
    write_durably(folder / "CURRENT", json.dumps(asdict(current)))


def check_version(folder: Path) -> int | None:
    """Schema version of a store, None before there is one; refuse one that a newer workbench has written."""
    try:
        text = (folder / "STORE").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        version = int(json.loads(text)["schema_version"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{folder / 'STORE'} is damaged ({text[:40]!r}); write {MARKER!r} into it") from error
    refuse_newer(folder, version)
    return version


def create(folder: Path) -> None:
    """Make the folders of a store where they are missing; one of an earlier version is from now on of this one.

    Its files stay as they are: an older program refuses the folder, this one reads both."""
    version = check_version(folder)
    (folder / "commits").mkdir(parents=True, exist_ok=True)
    if version != SCHEMA_VERSION:
        write_durably(folder / "STORE", MARKER)


def writers(folder: Path) -> Iterator[tuple[str, Path]]:
    """("<run>/r<rank>", its folder) of every writer there ever was, in order of name."""
    for run in sorted((folder / "commits").glob("*/")):
        for rank in sorted(run.glob("r*/")):
            yield f"{run.name}/{rank.name}", rank


def home(folder: Path, run: str, rank: int) -> Path:
    """The folder of a writer."""
    return folder / "commits" / run / f"r{rank}"


def commits_since(folder: Path, mark: Mapping[str, int]) -> tuple[list[Path], dict[str, int]]:
    """All commits after those that mark names by writer, and the mark that covers them too."""
    found: list[Path] = []
    last = dict(mark)
    for name, home in writers(folder):
        for seq, path in commits_after(home, last.get(name, -1)):
            found.append(path)
            last[name] = seq
    return found, last


def commits_after(writer: Path, seq: int) -> Iterator[tuple[int, Path]]:
    """(seq, directory) of the unbroken row of commits that follow seq."""
    while (found := writer / f"{seq + 1:09d}").is_dir():
        seq += 1
        yield seq, found


def commit(writer: Path, seq: int, tables: Mapping[str, pa.Table]) -> int:
    """Write the tables that have rows as one commit; done twice it is done once.

    Returns the bytes that readers will hold until it is compacted. An error leaves no trace but the error."""
    final = writer / f"{seq:09d}"
    if final.is_dir():
        return 0
    scratch = final.with_suffix(".tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir()
        rows = {name: table for name, table in tables.items() if table.num_rows}
        large = [name for name in WIDE if name in rows and rows[name].nbytes > SMALL]
        made = [scratch / f"{name}.parquet" for name in large]
        for path in made:
            table = rows.pop(path.stem)
            with path.open("wb") as file, parquet_writer(file, table.schema, "snappy") as out:  # the next compaction
                out.write_table(table)  # packs it tighter
        held = bundle.write(scratch / bundle.NAME, rows)
        for path in (*made, scratch / bundle.NAME, scratch):  # after all are written: the first pays for the others
            fsync(path)
        scratch.rename(final)
        fsync(writer)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return held


def lock(path: Path) -> TextIO | None:
    """An open file holding the lock, or None where somebody else holds it. Closing the file lets go."""
    file = path.open("r+" if path.exists() else "w+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def is_alive(writer: Path) -> bool:
    """Whether a process still holds the writer's lock, which the system takes from it when it dies."""
    path = writer / "LOCK"
    if not path.exists():
        return False
    with path.open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
