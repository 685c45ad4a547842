"""Rows of a file, a folder of shards, a data set of the hub, a Dataset or a list, with texts as they are written.

What a format writes as text stays text: no cell of a CSV or TSV file becomes a number, a date or a truth value.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path

import numpy as np

_TEXT = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
FILES = (*_TEXT, *(f"{end}.gz" for end in _TEXT), ".parquet")
"""How the names of tables end."""

_SPLITS = ("train", "test", "validation", "valid", "dev", "eval")


def is_file(name: str) -> bool:
    """Whether a name ends as that of a table does."""
    return name.endswith(FILES)


def read(source: object, *, split: str = "train", subset: str | None = None) -> tuple[list[Mapping], list[str], str]:
    """(rows, column names, label) of a file, a folder, a hub id, a Dataset or a list of rows.

    A folder is one saved with save_to_disk, or shards: its tables in the order of their names, of those with names of
    splits (train-00000-of-00002.parquet, test.jsonl) the ones of `split`."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        return list(source), _names(source), "rows"
    if not isinstance(source, str | Path):
        table, label = source, str(getattr(source, "builder_name", None) or "dataset")
    elif (path := Path(source)).is_file():
        rows = _rows(path)
        return rows, _names(rows), re.sub(r"\.[^.]+(\.gz)?$", "", path.name)
    elif path.is_dir() and not any((path / f).exists() for f in ("state.json", "dataset_dict.json")):
        rows = [row for shard in _shards(path, split) for row in _rows(shard)]
        return rows, _names(rows), path.name
    else:
        import datasets

        label = str(source).rstrip("/").split("/")[-1]
        table = (
            datasets.load_from_disk(str(path))
            if path.is_dir()
            else datasets.load_dataset(str(source), subset, split=split)
        )
    if isinstance(table, Mapping):  # a DatasetDict
        if split not in table:
            raise ValueError(f"{label} has no split {split!r}; there are {', '.join(table)}")
        table = table[split]
    return list(table), list(table.column_names), label  # type: ignore[attr-defined]


def _names(rows: Sequence[Mapping]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _shards(folder: Path, split: str) -> list[Path]:
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.startswith((".", "_"))]
    tables = [p for p in files if is_file(p.name) and not p.name.endswith((".json", ".json.gz"))]
    tables = tables or [p for p in files if is_file(p.name)]  # of a Parquet folder the JSON files describe it
    if not tables:
        raise ValueError(f"the folder {folder.name} has no table: no {', '.join(FILES)} file")

    def of(path: Path) -> set[str]:
        return set(re.split(r"[-_./]", str(path.relative_to(folder)).lower())) & set(_SPLITS)

    named = sorted({s for p in tables for s in of(p)})
    if not named:
        return tables
    if not (chosen := [p for p in tables if split in of(p)]):
        raise ValueError(f"{folder.name} has no split {split!r}; there are {', '.join(named)}")
    return chosen


def _rows(path: Path) -> list[Mapping]:
    if not is_file(path.name):
        raise ValueError(f"{path.name} is no {', '.join(FILES)} file")
    if path.suffix == ".parquet":
        return _parquet(path)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 text: {error}") from None
    except (OSError, EOFError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
    end = path.name.removesuffix(".gz").rsplit(".", 1)[1]
    return (
        _separated(path.name, content, "\t" if end == "tsv" else ",") if end in ("csv", "tsv") else _json(path, content)
    )


def _json(path: Path, content: str) -> list[Mapping]:
    if path.name.removesuffix(".gz").endswith(".json") and content.lstrip().startswith("["):
        try:
            rows = json.loads(content)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path.name}, line {error.lineno}: invalid JSON ({error.msg})") from None
        numbered: Iterable = enumerate(rows, 1)
    else:
        numbered = ((n, line) for n, line in enumerate(content.split("\n"), 1) if line.strip())
    found = []
    for n, line in numbered:
        try:
            row = json.loads(line) if isinstance(line, str) else line
        except json.JSONDecodeError as error:
            raise ValueError(f"{path.name}, line {n}: invalid JSON ({error.msg})") from None
        if not isinstance(row, Mapping):
            raise ValueError(f"{path.name}, line {n}: an object with columns was expected, not {type(row).__name__}")
        found.append(row)
    return found


def _separated(name: str, content: str, separator: str) -> list[Mapping]:
    """Cells as they are written; an empty one is null."""
    before = csv.field_size_limit(1 << 30)
    try:
        lines = csv.reader(StringIO(content, newline=""), delimiter=separator, strict=True)
        header = next(lines, [])
        if twice := sorted({c for c in header if header.count(c) > 1}):
            raise ValueError(f"{name} has the column {twice[0]!r} more than once")
        rows = []
        for cells in lines:
            if cells and len(cells) != len(header):
                raise ValueError(
                    f"{name}, line {lines.line_num}: {len(cells)} cells where the header has {len(header)}"
                )
            if cells:
                rows.append({c: v or None for c, v in zip(header, cells, strict=True)})
        return rows
    except csv.Error as error:
        raise ValueError(f"{name}, line {lines.line_num}: {error}") from None
    finally:
        csv.field_size_limit(before)


def _parquet(path: Path) -> list[Mapping]:
    import pyarrow as pa
    from pyarrow.parquet import read_table

    table = read_table(path)
    rows = table.to_pylist()
    for field in table.schema:
        if field.type in (pa.float16(), pa.float32()):  # 0.1 of single precision is 0.1, not 0.10000000149
            for row in rows:
                if row[field.name] is not None:
                    row[field.name] = float(str(np.float32(row[field.name])))
    return rows


def at(row: Mapping, name: str) -> object:
    """A column of a row; a dotted name goes into mappings and lists: reward_model.ground_truth, messages.0.content."""
    if name in row or "." not in name:
        return row.get(name)
    value: object = row
    for part in name.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def dotted(rows: Sequence[Mapping], names: Sequence[str]) -> list[str]:
    """The columns, those that hold mappings with the names inside them."""
    found = []
    for name in names:
        first = next((r[name] for r in rows if r.get(name) is not None), None)
        found += [f"{name}.{part}" for part in first] if isinstance(first, Mapping) else [name]
    return found
