"""Protocols of the store: a reader of recorded runs, and the two storage backends (a folder, a shared catalog).

`Store` and `Writer` are the same for every backend; `workbench.store.open` picks one by the URL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import duckdb
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
    """What a refresh took in. sources: table -> SQL of all its rows; anew: whether all was read again."""

    sources: dict[str, str]
    anew: bool


class ReaderBackend(Protocol):
    """Reads commits into the tables `tail.*` of a DuckDB in memory."""

    url: str
    """What `Store.open` takes to open it again, a password included."""
    where: str
    """The same as it may be shown: without a password."""
    data: Path
    """The only folder that queries may read."""

    def news(self, con: duckdb.DuckDBPyConnection) -> AbstractContextManager[News | None]:
        """Take in what was committed since; None for nothing. Its transaction is committed when the block ends."""
        ...

    def forget(self) -> None:
        """Read everything again at the next refresh."""

    def living(self, attempts: Collection[tuple[str, int]]) -> set[str]:
        """The runs among (run, rank) of which a writer lives."""
        ...

    def close(self) -> None:
        """Let go of what is open."""


class WriterBackend(Protocol):
    """Holds the lock of one rank of a run and writes its commits."""

    url: str
    where: str
    run: str
    remedy: str
    """What to do when a commit fails."""

    def progress(self) -> tuple[int, int]:
        """The last commit of this writer, and the last that was compacted; -1 for none."""
        ...

    def commit(self, seq: int, tables: Mapping[str, pa.Table]) -> int:
        """Write a commit, once however often it is tried; the bytes that readers hold until it is compacted."""
        ...

    def compact(self) -> int:
        """Compact the store; the last commit of this writer that is compacted then."""
        ...

    def close(self) -> None:
        """Release the lock."""


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
