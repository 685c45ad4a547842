"""Rules of a diagnosis: one question to the store and a threshold each, with the way out.

A rule reads the rows of its SQL and answers with what it found, with `NO_DATA` where the record has nothing of what it asks
for, or with None: nothing is wrong. It raises `TooShort` where there is too little of the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

WARMUP = 5
"""Steps before which no trend is read."""

NO_DATA, TOO_SHORT = "no data", "too short to judge"

Read = tuple[str, Mapping[str, object]] | str | None
"""What a rule says: (the finding in one sentence, its figures), NO_DATA, or None for nothing."""


class TooShort(Exception):
    """There is too little of a run for a rule to say anything."""


class Rule(NamedTuple):
    """sql: with $run; way_out: what to try; read: from its rows to what it says; hides: rules that only say of this one's
    cause what it did, and are not asked where it found something. empty: what no rows mean."""

    sql: str
    way_out: str
    read: Callable[[pa.Table], Read]
    hides: tuple[str, ...] = ()
    empty: str | None = NO_DATA


RULES: dict[str, Rule] = {}
"""By name, in the order in which they are asked: causes first."""

STATEMENTS = {
    name: sql.strip()
    for names, sql in re.findall(
        r"^-- rule: (.+)\n((?:(?!-- rule:).*\n)+)",
        (Path(__file__).parent / "diagnose.sql").read_text(encoding="utf-8"),
        re.M,
    )
    for name in names.split(", ")
}
"""Rule -> the SQL it reads, with $run."""


def rule(
    way_out: str, sql: str = "", hides: tuple[str, ...] = (), empty: str | None = NO_DATA
) -> Callable[[Callable[[pa.Table], Read]], Callable[[pa.Table], Read]]:
    """Register a rule under its function's name; its SQL is that of STATEMENTS where none is given."""

    def register(read: Callable[[pa.Table], Read]) -> Callable[[pa.Table], Read]:
        RULES[read.__name__] = Rule((sql or STATEMENTS[read.__name__]).strip(), way_out, read, hides, empty)
        return read

    return register


def columns(table: pa.Table, *names: str) -> list[np.ndarray]:
    """Columns of numbers, float64, null as NaN."""
    return [np.array(table[n].to_pylist(), dtype=float) for n in names]
