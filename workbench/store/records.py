"""What readers, checks and storage backends of the store hand to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import pyarrow as pa

from workbench.store.sql_guard import Params


class Reader(Protocol):
    """Answers SQL about recorded runs; `Store` is one."""

    def sql(self, query: str, params: Params = None) -> pa.Table:
        """The result of one statement that only reads."""
        ...

    def latest(self) -> str | None:
        """The run that was started last."""
        ...

    def source(self, table: str) -> str:
        """SQL of a declared table with all its rows, those too that the view of its name hides."""
        ...


class News(NamedTuple):
    """What a backend took in at a refresh. sources: table -> SQL of all its rows; anew: whether all was read again."""

    sources: dict[str, str]
    anew: bool


Progress = Callable[[int, int, str], None]
"""Called with how many of how many are done, and what they are."""


def silent(done: int, total: int, what: str) -> None:
    """No progress."""


class Finding(NamedTuple):
    """kind: error (something is lost or wrong) or note (harmless); where: a file, run or step; text: what to know."""

    kind: str
    where: str
    text: str


class Sizes(NamedTuple):
    """Bytes by part of a store, its generation, and what waits for compaction: commits by writer, or files by table."""

    bytes: dict[str, int]
    generation: int
    waiting: dict[str, int]
    unit: str = "commits"
