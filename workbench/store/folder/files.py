"""Files of a store folder: commit directories, the pointer to the compacted base, and file locks.

    STORE                          schema version of the folder
    CURRENT                        generation, base file, payload parts, their checksums, and how far they cover each writer
    CURRENT.<g>                    what CURRENT said in that generation, of the two newest: recovery needs no more
    commits/<run>/r<rank>/LOCK     held by the writer while it lives
    commits/<run>/r<rank>/<seq>/   one commit: tables.bundle, and completions.parquet where they are large
    base/gen-<g>.duckdb            narrow tables up to a generation, never written again
    payload/part-<g>.parquet       completions of the commits folded in that generation

A commit is written as <seq>.tmp, every file fsynced, then renamed: the rename is the commit over all tables.
Every file has a checksum: a bundle those of its tables and of the Parquet file beside it, CURRENT its own and those of
the files it names. Ids that come out of files (runs, ranks, names of files) are checked before they become paths.
Meant for a local disk: rename visibility and flock are weaker on network file systems.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.store.background import STILL
from workbench.store.errors import Damaged, repaired_by
from workbench.store.folder import bundle
from workbench.store.rows.attempts import RUN_ID
from workbench.store.schema import SCHEMA_VERSION, WIDE, refuse_newer

SMALL = 128 * 1024
"""Bytes up to which completions go with the other tables: a Parquet file costs more than it saves. Readers hold these
in memory until they are compacted."""

CHECKSUMS = "checksums"
"""Table of a bundle with the bytes and CRC-32 of each file beside it; no table of the schema, so that readers pass it by."""

SUMS = "checksums.json"
"""File of a checkpoint with the bytes and CRC-32 of each other file in it."""

RUN = re.compile(RUN_ID)
WRITER = re.compile(rf"{RUN_ID}/r\d{{1,5}}")
BASE = re.compile(r"base/gen-\d{6,}\.duckdb")
PART = re.compile(r"payload/part-\d{6,}(-\d+)?\.parquet")
"""What names of writers and of compacted files look like: others are refused, as they might lead out of the folder."""

KEYS = ["run", "rank", "seq", "step", "row"]
"""Columns by which completions are looked up; statistics and dictionaries of others cost four times what writing does."""


@dataclass(frozen=True)
class Current:
    """What the newest compaction published; mark maps "<run>/r<rank>" to the last commit it covers.

    sums: file -> (bytes, CRC-32); none for files written before there were checksums."""

    generation: int = 0
    base: str = ""
    parts: tuple[str, ...] = ()
    mark: Mapping[str, int] = field(default_factory=dict)
    sums: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def files(self) -> tuple[str, ...]:
        """The files it names, the base first."""
        return (*([self.base] if self.base else []), *self.parts)


def sealed(found: Mapping[str, object]) -> str:
    """A small file: JSON with the checksum of the rest."""
    text = json.dumps(found)
    return json.dumps({**found, "crc32": zlib.crc32(text.encode())})


def unsealed(text: str, *keys: str, plain: tuple[str, ...] = ()) -> dict[str, Any]:
    """What `sealed` wrote, with these keys; plain: those of a file from before there were checksums. ValueError for others."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    if plain and set(found) == set(plain):
        return found
    total = found.pop("crc32", None)
    if set(found) != set(keys) or zlib.crc32(json.dumps(found).encode()) != total:
        raise ValueError("it does not have its checksum")
    return found


def checksum(path: Path) -> tuple[int, int]:
    """(bytes, CRC-32) of a file: 3 GB/s."""
    size = total = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            size, total = size + len(block), zlib.crc32(block, total)
    return size, total


def write_sums(folder: Path) -> None:
    """Note the checksum of every file in a folder, not durably."""
    sums = {str(p.relative_to(folder)): checksum(p) for p in sorted(folder.rglob("*")) if p.is_file()}
    (folder / SUMS).write_text(sealed({"files": sums}), encoding="utf-8")


def differing(folder: Path) -> list[tuple[str, str]]:
    """(file, what is wrong) of a folder whose checksums were noted; none where they were not."""
    try:
        sums = unsealed((folder / SUMS).read_bytes().decode(), "files")["files"]
    except FileNotFoundError:
        return []
    except ValueError as error:
        return [(SUMS, str(error))]
    wrong: list[tuple[str, str]] = []
    for name, total in sums.items():
        there = (folder / name).is_file()
        if not there or [*checksum(folder / name)] != total:
            wrong.append((name, "it does not have its checksum" if there else "it is missing"))
    return wrong


MARKER = sealed({"schema_version": SCHEMA_VERSION})
"""Content of the STORE file."""


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
    """The pointer file; before the first compaction an empty one. Raises Damaged where it cannot be read, and where it is
    missing beside files that only it can have named."""
    for last in (False, True):
        try:
            return parse_current((folder / "CURRENT").read_bytes())
        except FileNotFoundError:
            if not compacted(folder):
                return Current()
            why = "missing"  # or written since we looked
        except (ValueError, KeyError, TypeError):
            why = "damaged"
        if last:
            break
    raise Damaged(
        f"CURRENT of the store {folder} is {why}, so nobody knows which compacted files hold; nothing was touched. "
        f"Restore it from a copy, or {repaired_by(folder)}",
        folder / "CURRENT",
    )


def parse_current(held: bytes) -> Current:
    """What a pointer file says; ValueError, KeyError or TypeError where it is none, or names what is not of a store."""
    plain = ("generation", "base", "parts", "mark")
    found = unsealed(held.decode(), *plain, "sums", plain=plain)
    current = Current(
        int(found["generation"]),
        str(found["base"]),
        tuple(map(str, found["parts"])),
        {str(name): int(seq) for name, seq in found["mark"].items()},
        {str(name): (int(size), int(total)) for name, (size, total) in found.get("sums", {}).items()},
    )
    if not (current.base == "" or BASE.fullmatch(current.base)) or not all(map(PART.fullmatch, current.parts)):
        raise ValueError(f"{current.files} are no files of a store")
    if not all(map(WRITER.fullmatch, current.mark)):
        raise ValueError(f"{sorted(current.mark)} are no writers of a store")
    return current


def compacted(folder: Path) -> list[Path]:
    """The compacted files that are there, and what says which of them hold."""
    found = (folder.glob(pattern) for pattern in ("base/gen-*.duckdb", "payload/part-*.parquet", "CURRENT.[0-9]*"))
    return sorted(path for paths in found for path in paths if path.suffix != ".tmp")


def generation_file(folder: Path, generation: int) -> Path:
    """The file that keeps what CURRENT says in a generation."""
    return folder / f"CURRENT.{generation:06d}"


def generations(folder: Path) -> dict[int, Path]:
    """The files that keep what CURRENT said, by generation, the newest first."""
    found = {int(path.suffix[1:]): path for path in folder.glob("CURRENT.[0-9]*") if path.suffix[1:].isdigit()}
    return dict(sorted(found.items(), reverse=True))


def write_current(folder: Path, current: Current, known: Mapping[str, tuple[int, int]]) -> None:
    """Publish a generation: the commit point of a compaction. known: checksums of files that were there before."""
    sums = {name: known[name] if name in known else checksum(folder / name) for name in current.files}
    text = sealed(asdict(replace(current, sums=sums)))
    if current.generation:
        write_durably(generation_file(folder, current.generation), text)
    write_durably(folder / "CURRENT", text)


def check_version(folder: Path) -> int | None:
    """Schema version of a store; None before there is one, and where STORE is damaged: then the commits say it.

    Refuses a store that a newer workbench has written."""
    try:
        version = int(
            unsealed((folder / "STORE").read_bytes().decode(), "schema_version", plain=("schema_version",))[
                "schema_version"
            ]
        )
    except (FileNotFoundError, ValueError, TypeError):
        return None
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
    """("<run>/r<rank>", its folder) of every writer there ever was, in order of name; links and other names are none."""
    for run in sorted((folder / "commits").glob("*/")):
        for rank in sorted(run.glob("r*/")) if not run.is_symlink() else ():
            if WRITER.fullmatch(name := f"{run.name}/{rank.name}") and not rank.is_symlink():
                yield name, rank


def home(folder: Path, run: str, rank: int) -> Path:
    """The folder of a writer."""
    return folder / "commits" / run / f"r{rank}"


def writer_of(commit: Path) -> str:
    """The name of the writer whose commit a directory is."""
    return f"{commit.parent.parent.name}/{commit.parent.name}"


def commits_since(
    folder: Path, mark: Mapping[str, int], before: Mapping[str, int] | None = None
) -> tuple[list[Path], dict[str, int]]:
    """All commits after those that mark names by writer, and the mark that covers them too; of some writers only those
    before a commit."""
    found: list[Path] = []
    last = dict(mark)
    for name, home in writers(folder):
        for seq, path in commits_after(home, last.get(name, -1)):
            if before and seq >= before.get(name, seq + 1):
                break
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
        if made:
            size, total = zip(*map(checksum, made), strict=True)
            rows[CHECKSUMS] = pa.table({"file": [path.name for path in made], "bytes": size, "crc32": total})
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


def is_running(writer: Path) -> bool:
    """Whether the process that holds the writer's lock gave a sign of life lately.

    A process that was stopped, or a child that outlived its trainer and inherited the lock, holds it and gives none."""
    if not is_alive(writer):
        return False
    with suppress(OSError):
        return abs(time.time() - (writer / "LOCK").stat().st_mtime) < STILL
    return False
