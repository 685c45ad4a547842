"""File format of a commit: one Arrow stream for each table, and a footer with their places and checksums.

    MAGIC  stream  stream ...  footer as JSON  its length (8 bytes, little-endian)  its CRC-32 (4 bytes)  MAGIC

One Parquet file a table was tried first: eleven files of a small step took 8 ms to write, this takes 0.4 ms, because a
Parquet writer costs half a millisecond whatever it is given. Streams are not compressed: they live until the next
compaction. Arrow trusts the offsets it reads, hence the checksums: damage is an error, never a wrong row or a crash.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from workbench.store.errors import Damaged

NAME = "tables.bundle"
"""Of the file in a commit directory; commits of schema versions 1 and 2 have one Parquet file a table instead."""

MAGIC = b"RWTABLES"
TAIL = struct.Struct("<QI8s")


def write(path: Path, tables: Mapping[str, pa.Table]) -> int:
    """Write the tables as one file, not yet durable; returns its bytes."""
    footer: dict[str, tuple[int, int, int]] = {}
    with path.open("wb") as file:
        place = file.write(MAGIC)
        for name, table in tables.items():
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, table.schema) as stream:
                stream.write_table(table)
            made = out.getvalue()
            footer[name] = (place, made.size, zlib.crc32(made))
            place += file.write(made)
        text = json.dumps(footer).encode()
        return place + file.write(text) + file.write(TAIL.pack(len(text), zlib.crc32(text), MAGIC))


def read(path: Path) -> dict[str, pa.Table]:
    """The tables of a bundle; Damaged where it is damaged, FileNotFoundError where it is gone."""
    held = path.read_bytes()
    try:
        return {name: _table(held, *where) for name, where in _footer(held).items()}
    except (ValueError, struct.error, pa.ArrowException) as error:
        raise Damaged(f"{path}: {str(error).splitlines()[0]}", path) from error


def _footer(held: bytes) -> dict[str, tuple[int, int, int]]:
    end = len(held) - TAIL.size
    length, total, magic = TAIL.unpack_from(held, max(end, 0))
    text = held[max(end - length, 0) : end]
    if magic != MAGIC or not held.startswith(MAGIC) or zlib.crc32(text) != total:
        raise ValueError("its footer is not whole")
    return json.loads(text)


def _table(held: bytes, place: int, length: int, total: int) -> pa.Table:
    part = memoryview(held)[place : place + length]
    if zlib.crc32(part) != total:
        raise ValueError(f"the {length} bytes at {place} do not have the checksum {total:08x}")
    with pa.ipc.open_stream(part) as stream:
        return stream.read_all()
