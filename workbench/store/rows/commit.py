"""A commit in memory: what a writer records in one piece, until it is Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pyarrow as pa

from workbench.store.rows import tables
from workbench.store.rows.changes import Beliefs
from workbench.store.rows.tables import now
from workbench.store.schema import SCHEMA_VERSION
from workbench.types import Event, Pool


@dataclass
class Commit:
    """What is written in one piece; which beliefs those are is decided when its turn comes.

    kind: open, step, evaluation, beliefs, note or close; observed: rows of the pool whose beliefs are written in any case;
    events: each with its source."""

    kind: str
    step: int
    tables: list[tables.Tables] = field(default_factory=list)
    time: datetime = field(default_factory=now)
    beliefs: Beliefs = field(default_factory=dict)
    observed: np.ndarray | None = None
    events: list[tuple[Event, str]] = field(default_factory=list)

    def waited(self, seconds: float) -> None:
        """Note that the loop had to wait before this was taken."""
        text = f"the loop waited {seconds:.2f} s because the recorder was behind"
        self.events.append((Event("note", "recorder", text), "store"))

    def arrow(
        self, key: Mapping[str, object], attempt: int, rows: Mapping[str, np.ndarray], pool: Pool
    ) -> dict[str, pa.Table]:
        """Its tables by name, key (run, rank, seq) in every row. rows: of the beliefs of each method, those to be written."""
        head = {"attempt": [attempt], "kind": self.kind, "step": self.step, "time": self.time}
        parts = [
            {"commits": head | {"schema_version": SCHEMA_VERSION}},
            *self.tables,
            tables.event_table(self.events, self.step, self.time),
            tables.belief_table(self.step, self.beliefs, rows, pool),
        ]
        made: dict[str, list[pa.Table]] = {}
        for part in parts:
            for name, columns in part.items():
                made.setdefault(name, []).append(tables.arrow(name, columns, key))
        return {name: pa.concat_tables(several) for name, several in made.items()}
