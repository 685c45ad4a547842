"""The process in which a reader's statement runs: jobs come in as JSON lines, answers go out as Arrow, texts cut in SQL.

`sql_processes` starts it and ends it. It opens the store as any other reader does, with nothing outside the store in reach
and its settings locked, and then limits itself: addresses beyond those it holds, and processor time for each statement.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa

from workbench.store import Store

IDLE = 600.0
"""Seconds without a statement after which the process ends; the next statement starts another."""

LARGEST = 32 << 20
"""Bytes of an answer at most, its texts already cut."""

_WHOLE = re.compile(r"(?:[\s(]|--[^\n]*(?:\n|$)|/\*.*?\*/)*explain\b", re.IGNORECASE | re.DOTALL)
"""A statement that cannot stand inside another."""


def cut(store: Store, statement: str, params: Mapping[str, object], rows: int, cell: int) -> pa.Table:
    """The first rows of an answer: numbers as they are, all else as (characters, the first `cell` of them).

    The columns are asked for first, with no rows; of a text only its beginning leaves DuckDB."""
    if _WHOLE.match(statement):  # a plan: a few lines, which are cut here
        table = store.sql(statement, params or None).slice(0, rows)
        texts = [[str(v) for v in column.to_pylist()] for column in table.columns]
        cells = [[{"n": len(v), "text": v[:cell]} for v in column] for column in texts]
        return pa.table([pa.array(column) for column in cells], names=table.column_names)
    schema = store.sql(f"FROM (\n{statement}\n) LIMIT 0", params or None).schema
    names = [f"c{i}" for i in range(len(schema))]
    chosen = [
        name if _is_number(kind) else f"CASE WHEN {name} IS NOT NULL THEN "
        f"{{'n': length({name}::VARCHAR), 'text': left({name}::VARCHAR, {cell})}} END AS {name}"
        for name, kind in zip(names, schema.types, strict=True)
    ]  # fmt: skip
    query = f"SELECT {', '.join(chosen)} FROM (\n{statement}\n) AS answer({', '.join(names)}) LIMIT {rows}"
    return store.sql(query, params or None).rename_columns(schema.names)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _packed(table: pa.Table) -> bytes:
    if table.nbytes > LARGEST:
        raise ValueError(f"the answer has {table.num_columns:,} columns and {table.nbytes >> 20} MiB; ask for fewer")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def _limit_memory(beyond: int) -> None:
    """Bound the address space to what is held now and so many bytes; no core is dumped of what breaks at it."""
    with suppress(ImportError, OSError, ValueError):  # no such limits on this system
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + beyond
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_processor(seconds: float) -> None:
    """So much processor time from now on; the kernel ends the process at it, whatever its parent does."""
    with suppress(ImportError, ValueError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = math.ceil(used.ru_utime + used.ru_stime + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _leave_with(parent: int, asked: list[float]) -> None:
    """End with the process that asks, or where it has asked nothing for long."""
    while os.getppid() == parent and time.monotonic() - asked[-1] < IDLE:
        time.sleep(1)
    os._exit(0)


def _reply(out: BinaryIO, head: Mapping[str, Any], body: bytes = b"") -> None:
    out.write(json.dumps({**head, "bytes": len(body)}).encode() + b"\n" + body)
    out.flush()


def main() -> None:
    """Read the order, open its store, then answer jobs until the input ends or memory ran out."""
    order = json.loads(sys.stdin.buffer.readline())
    out = os.fdopen(os.dup(1), "wb")
    asked = [math.inf]
    threading.Thread(target=_leave_with, args=(order["parent"], asked), daemon=True).start()
    try:
        store = Store.open(order["url"], live=False)
    except Exception as error:
        _reply(out, {"error": str(error)})
        return
    _limit_memory(order["memory"])
    _reply(out, {"ready": True})
    asked[-1] = time.monotonic()
    for line in sys.stdin.buffer:
        job = json.loads(line)
        asked[-1] = math.inf
        _limit_processor(job["processor"])
        began = time.perf_counter()
        try:
            store.refresh()
            body = _packed(cut(store, job["statement"], job["params"], job["rows"], job["cell"]))
            _reply(out, {"seconds": time.perf_counter() - began}, body)
        except Exception as error:
            broken = isinstance(error, (MemoryError, duckdb.OutOfMemoryException, duckdb.FatalException))
            broken |= "bad allocation" in str(error) or "bad_alloc" in str(error)
            _reply(out, {"memory": True} if broken else {"error": str(error)[:4000]})
            if broken:  # what is held now is not given back, and would be missing to the next statement
                return
        asked[-1] = time.monotonic()


if __name__ == "__main__":
    main()
