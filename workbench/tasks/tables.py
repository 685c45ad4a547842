"""Data sets with a prompt and an answer column: JSON lines, a Hugging Face data set, Parquet, CSV, rows in memory.

Every cell is checked when the table is read, with the row in the error, so that nothing fails in the middle of a
run. The evaluation set is held out by content hash: it depends on neither the order of the rows nor the seed, and
copies of one prompt stay on one side.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.tasks.mixes import content_id
from workbench.tasks.verifiers import numbers
from workbench.types import Pool

FILES = (".jsonl", ".ndjson", ".json", ".parquet", ".csv")


class Cell(NamedTuple):
    """One checked row of a table."""

    text: str
    answer: str
    prefix: str
    stratum: str
    messages: str
    id: str
    row: int

    @property
    def key(self) -> str:
        """What the model is asked: rows that agree in it are one prompt."""
        return chr(0).join((self.messages or self.text, self.prefix))


@dataclass(frozen=True)
class Columns:
    """Names of the columns; prompt and answer must be there, the others may be."""

    prompt: str = "prompt"
    answer: str = "answer"
    prefix: str = "prefix"
    stratum: str = "stratum"
    id: str = "id"


def json_lines(path: Path) -> list[Mapping]:
    """The objects of a file of JSON lines (or of one JSON array); an error names the line."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 text: {error}") from None
    if path.suffix == ".json" and content.lstrip().startswith("["):
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


def read(source: object, *, split: str = "train", subset: str | None = None) -> tuple[list[Mapping], list[str], str]:
    """(rows, column names, label) of a file, a folder saved with save_to_disk, a hub id, a Dataset or a list of rows."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        return list(source), list(dict.fromkeys(name for row in source for name in row)), "rows"
    if not isinstance(source, str | Path):
        table, label = source, str(getattr(source, "builder_name", None) or "dataset")
    elif Path(source).is_file():
        path = Path(source)
        if path.suffix not in FILES:
            raise ValueError(f"{path.name} is no {', '.join(FILES)} file")
        rows = _arrow(path) if path.suffix in (".parquet", ".csv") else json_lines(path)
        return rows, list(dict.fromkeys(name for row in rows for name in row)), path.stem
    else:
        import datasets

        folder, label = Path(source), str(source).rstrip("/").split("/")[-1]
        table = (
            datasets.load_from_disk(str(folder))
            if folder.is_dir()
            else datasets.load_dataset(str(source), subset, split=split)
        )
    if isinstance(table, Mapping):  # a DatasetDict
        if split not in table:
            raise ValueError(f"{label} has no split {split!r}; there are {', '.join(table)}")
        table = table[split]
    return list(table), list(table.column_names), label  # type: ignore[attr-defined]


def _arrow(path: Path) -> list[Mapping]:
    if path.suffix == ".parquet":
        from pyarrow.parquet import read_table
    else:
        from pyarrow.csv import read_csv as read_table
    return read_table(path).to_pylist()


def _prompt(value: object, where: str) -> tuple[str, str]:
    """(text, messages as JSON or "") of a prompt: a text, or a list of {"role", "content"}."""
    if isinstance(value, str) and value.strip():
        return value, ""
    if isinstance(value, list) and value and all(isinstance(m, Mapping) for m in value):
        turns = [{"role": m.get("role"), "content": m.get("content")} for m in value]
        if all(isinstance(t["role"], str) and isinstance(t["content"], str) for t in turns):
            return "\n".join(t["content"] for t in turns), json.dumps(turns, ensure_ascii=False)
    shown = "empty" if value in (None, "") or value == [] else f"{str(value)[:60]!r}"
    raise ValueError(f"{where}: the prompt is {shown}; a text or a list of messages with role and content is wanted")


def _text(value: object, where: str, what: str) -> str:
    if value is None or (isinstance(value, float) and value != value):
        raise ValueError(f"{where}: the {what} is null; fill it or leave the row out")
    if isinstance(value, bool) or not isinstance(value, str | Real):
        raise ValueError(f"{where}: the {what} is {type(value).__name__}; a text or a number is wanted")
    return str(value)


def cells(rows: Sequence[Mapping], names: Sequence[str], label: str, columns: Columns, kind: str) -> list[Cell]:
    """The checked rows; raises for a missing column, a null or a wrong type, naming row and column."""
    if not rows:
        raise ValueError(f"{label} has no rows")
    default = Columns()
    for role in ("prompt", "answer", "prefix", "stratum", "id"):
        name = getattr(columns, role)
        if name not in names and (role in ("prompt", "answer") or name != getattr(default, role)):
            raise ValueError(f"{label} has no column {name!r} for the {role}; its columns are {', '.join(names)}")
    found = []
    for i, row in enumerate(rows):
        where = f"{label}, row {i + 1}"
        text, messages = _prompt(row.get(columns.prompt), where)
        answer = _text(row.get(columns.answer), where, "answer")
        if kind in ("number", "list") and not numbers(answer):
            raise ValueError(f"{where}: the answer {answer[:60]!r} holds no number, and the verifier compares numbers")
        prefix, stratum, id_ = (
            "" if row.get(name) is None else str(row[name]) for name in (columns.prefix, columns.stratum, columns.id)
        )
        cell = Cell(text, answer, prefix, stratum or "all", messages, id_, i)
        try:
            "".join(cell[:-1]).encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where}: a text holds half a surrogate pair, which is no character") from None
        found.append(cell)
    return found


def without_copies(found: list[Cell]) -> list[Cell]:
    """The first of all rows that agree in prompt, prefix and answer."""
    return list({(c.key, c.answer): c for c in reversed(found)}.values())[::-1]


def _rank(cell: Cell) -> str:
    return sha256(cell.key.encode()).hexdigest()


def hold_out(found: list[Cell], n: int) -> tuple[list[Cell], list[Cell]]:
    """(pool, evaluation): the n prompts of smallest content hash are held out, with all their copies."""
    keys = sorted({_rank(c) for c in found})
    if len(keys) < 2:
        raise ValueError(f"{len(keys)} prompt cannot give both a pool and an evaluation set")
    held = set(keys[: min(max(n, 1), len(keys) - 1)])
    return [c for c in found if _rank(c) not in held], [c for c in found if _rank(c) in held]


def apart_from(found: list[Cell], held_out: list[Cell]) -> list[Cell]:
    """The rows whose prompt is not in the evaluation set."""
    keys = {c.key for c in held_out}
    train = [c for c in found if c.key not in keys]
    if not train:
        raise ValueError(f"all {len(found)} prompts are in the evaluation set as well; none is left to train on")
    return train


def pool_of(found: list[Cell], kind: str) -> Pool:
    """The rows as a pool; ids are those of the table, or the content hash and the row."""

    def column(of: Callable[[Cell], str]) -> np.ndarray:
        values = np.empty(len(found), dtype=object)
        values[:] = [of(c) for c in found]
        return values

    return Pool(
        ids=column(lambda c: c.id or content_id(c.messages or c.text, c.prefix, c.answer, c.row)),
        text=column(lambda c: c.text),
        answer=column(lambda c: c.answer),
        prefix=column(lambda c: c.prefix),
        stratum=column(lambda c: c.stratum),
        extra={
            "level": column(lambda c: ""),
            "kind": column(lambda c: kind),
            "messages": column(lambda c: c.messages),
        },
    )
