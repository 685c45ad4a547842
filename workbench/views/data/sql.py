"""Ad hoc SQL of the SQL page: any reading statement, its answer cut to what a page can hold. No widgets.

A statement runs in a process of its own, whose time and memory are limited; see `sql_processes`. The store lets only
reading statements pass; see `Store.sql`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from workbench.store.questions import LATEST, REQUIRED, load
from workbench.views.data.text import shown

if TYPE_CHECKING:
    from workbench.views.data.run import Source

ROWS = 1000
"""Rows of an answer that are shown; a statement of its own asks for others."""

EXACT = 2**53
"""Up to which a float, and a number in a browser, holds every whole number."""

CELL = 300
"""Characters of a cell."""

_BEFORE = re.compile(r"^(?:[\s(]|--[^\n]*(?:\n|$)|/\*.*?\*/)+", re.DOTALL)
"""Blanks, comments and parentheses before the first word of a statement."""


class Answer(NamedTuple):
    """columns: name -> (n,) values to be shown; numbers as float64 or int64, whole ones that neither holds exactly as
    Python's with None, all else as cut text. more: whether rows were left out. numeric: names of the columns that can be
    plotted."""

    columns: Mapping[str, np.ndarray]
    n: int
    more: bool
    seconds: float

    @property
    def numeric(self) -> list[str]:
        """Columns of numbers."""
        return [name for name, column in self.columns.items() if column.dtype != object or _whole(column)]


def names_in(text: str) -> list[str]:
    """The $parameters of a statement, in order; those in comments and in quotes do not count."""
    plain = re.sub(r"--[^\n]*|'(?:[^']|'')*'", "", text)
    return list(dict.fromkeys(re.findall(r"\$([a-zA-Z_]\w*)", plain)))


def defaults(text: str, run: str) -> dict[str, object]:
    """What the parameters of a saved question are before the reader changes them; None where there is no default."""
    found: dict[str, object] = {}
    question = next((q for q in load().values() if q.sql.strip() == text.strip()), None)
    for name in names_in(text):
        given = question.parameters[name].default if question and name in question.parameters else REQUIRED
        found[name] = run if given is LATEST or name == "run" else None if given is REQUIRED else given
    return found


def ask(
    source: Source, text: str, params: Mapping[str, object] | None = None, cancelled: threading.Event | None = None
) -> Answer:
    """The answer to a statement, on what is recorded by now. cancelled: once set, the statement is given up.

    Raises StoreError with what DuckDB says of the statement or at the limit of memory, TimeoutError at that of time,
    Cancelled, ValueError for no statement."""
    statement = text.strip().rstrip(";").strip()
    if not _BEFORE.sub("", statement):
        raise ValueError("Write a statement first, for example: SELECT * FROM runs")
    given = {name: (params or {}).get(name) for name in names_in(text)}
    job = {"statement": statement, "params": given, "rows": ROWS + 1, "cell": CELL}
    table, seconds = source.workers.ask(job, cancelled)
    kept = table.slice(0, ROWS)
    return Answer(_columns(kept), len(kept), len(table) > ROWS, seconds)


def _columns(table: pa.Table) -> dict[str, np.ndarray]:
    """Columns as they are shown; of two with one name the second is numbered."""
    found: dict[str, np.ndarray] = {}
    for i, name in enumerate(table.column_names):
        key = shown(name, 80) or "column"
        while key in found:
            key += "'"
        column, kind = table.column(i), table.schema.field(i).type
        if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
            whole = [None if v is None else int(v) for v in column.to_pylist()]
            known, missing = [v for v in whole if v is not None], column.null_count > 0
            fits = all(abs(v) <= EXACT if missing else -(2**63) <= v < 2**63 for v in known)
            found[key] = np.array(whole, dtype=object if not fits else np.float64 if missing else np.int64)
        elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            found[key] = np.array([np.nan if v is None else float(v) for v in column.to_pylist()])
        else:
            found[key] = np.array([_cell(v) for v in column.to_pylist()], dtype=object)
    return found


def _whole(column: np.ndarray) -> bool:
    return len(column) > 0 and all(v is None or isinstance(v, int) for v in column)


def _cell(value: Mapping | None) -> str:
    """A text as `sql_worker.cut` hands it over."""
    if value is None:
        return ""
    return shown(value["text"], CELL) + (f"… ({value['n']:,} characters)" if value["n"] > CELL else "")
