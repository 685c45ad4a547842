"""Damage of single files: commits, compacted files and pointer files held against their checksums.

What a file from before there were checksums holds is read whole instead: that finds what is torn, and not a flipped bit in
a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.store.errors import Damaged, repaired_by
from workbench.store.folder import bundle, files


class Quarantined(NamedTuple):
    """A writer's first commit that cannot be read: neither it nor a later one is shown. text: what is wrong with it;
    stamp: of its files, which change where it is put back."""

    seq: int
    text: str
    stamp: tuple[tuple[str, int, int], ...]


def of_commit(commit: Path) -> str:
    """What is wrong with the files of a commit; "" for nothing. FileNotFoundError where it was compacted away meanwhile."""
    there = {path.name: path for path in commit.iterdir()}
    sums: dict[str, tuple[int, int]] = {}
    if bundle.NAME in there:
        try:
            found = bundle.read(there[bundle.NAME])
        except Damaged as error:
            return str(error).partition(f"{commit}/")[2]
        if files.CHECKSUMS in found:
            sums = {r["file"]: (r["bytes"], r["crc32"]) for r in found[files.CHECKSUMS].to_pylist()}
        if "commits" not in found:
            return f"{bundle.NAME}: the table commits is missing"
    elif "commits.parquet" not in there:
        return f"the file {bundle.NAME} or commits.parquet is missing"
    for name in sorted({*there, *sums} - {bundle.NAME}):
        if why := of_file(commit / name, sums.get(name)):
            return f"{name}: {why}"
    return ""


def of_file(path: Path, total: tuple[int, int] | None) -> str:
    """What is wrong with a base, a Parquet file or another one whose (bytes, CRC-32) are known; "" for nothing."""
    try:
        if total is not None:
            found = files.checksum(path)
            return (
                ""
                if found == total
                else f"it has {found[0]} bytes of checksum {found[1]:08x}, not {total[0]} of {total[1]:08x}"
            )
        if path.suffix == ".duckdb":
            read_base(path)
        elif path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    file.read_row_group(group)
        return ""
    except FileNotFoundError:
        return "it is missing"
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        return str(error).splitlines()[0]


def read_base(path: Path) -> dict[str, int]:
    """Read every table of a base; writer -> its last commit in it."""
    with duckdb.connect(str(path), read_only=True, config={"threads": 1}) as con:
        for (table,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            con.execute(f"SELECT bit_xor(hash(t)) FROM {table} t").fetchall()
        rows = con.execute("SELECT run, rank, max(seq) FROM commits GROUP BY ALL").fetchall()
    return {f"{run}/r{rank}": last for run, rank, last in rows}


def of_pointer(path: Path) -> str:
    """What is wrong with CURRENT, or with what is kept of it in a generation."""
    try:
        files.parse_current(path.read_bytes())
    except (ValueError, KeyError, TypeError) as error:
        return str(error).splitlines()[0]
    return ""


def stamp(commit: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of each file of a commit."""
    found = [(path.name, path.stat()) for path in sorted(commit.iterdir())] if commit.is_dir() else []
    return tuple((name, s.st_mtime_ns, s.st_size) for name, s in found)


def quarantine(commits: Iterable[Path]) -> dict[str, Quarantined]:
    """The first damaged one of each writer's commits, given in their order."""
    found: dict[str, Quarantined] = {}
    for commit in commits:
        if (name := files.writer_of(commit)) not in found and (why := of_commit(commit)):
            found[name] = Quarantined(int(commit.name), f"commit {commit.name} is damaged: {why}", stamp(commit))
    return found


def gaps(folder: Path, last: Mapping[str, int]) -> dict[str, Quarantined]:
    """The writers that have commits after one that is missing; last: the last commit of each that was found in a row."""
    found: dict[str, Quarantined] = {}
    for name, home in files.writers(folder):
        after = last.get(name, -1)
        later = [int(path.name) for path in home.iterdir() if path.name.isdigit() and int(path.name) > after + 1]
        if later and not (home / f"{after + 1:09d}").is_dir():
            found[name] = Quarantined(
                after + 1, f"commit {after + 1:09d} is missing, and {max(later):09d} is there", ()
            )
    return found


def told(name: str, found: Quarantined, folder: Path) -> str:
    """A sentence on a writer whose commits are damaged."""
    run, _, rank = name.partition("/r")
    who = run if rank == "0" else f"rank {rank} of {run}"
    return f"{who}: {found.text}, so nothing from there on is shown; restore that file from a copy, or {repaired_by(folder)}"
