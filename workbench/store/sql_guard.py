"""Guard for user SQL: one statement that only reads, and calls no function with side effects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

import duckdb
import pyarrow as pa

from workbench.store.errors import ReadOnlyError

_ACTS = (
    r"(?:enable|disable|add|remove|register|import|copy)_\w+|set_(?!bit\b)\w+|setval|nextval|write_log|"
    r"truncate_duckdb_logs|(?:force_)?checkpoint|query|query_table|json_execute_serialized_sql|"
    r"pandas_scan|python_map_function|arrow_scan\w*|python_arrow_scan"
)
"""Functions that change settings or write, that assemble a statement from text, or that take a bare address."""

_ANY = re.compile(_ACTS, re.IGNORECASE)
_ONE = re.compile(_ACTS, re.IGNORECASE | re.ASCII)
_GAP = r"(?:\s|--[^\n]*(?:\n|$)|/\*(?:(?!/\*|\*/).)*\*/)*"  # a comment in a comment is none of these
_EXPLAIN = re.compile(rf"{_GAP}explain\b{_GAP}(?P<analyze>analy[zs]e\b)?", re.IGNORECASE | re.DOTALL)
_OPTIONS = re.compile(rf"{_GAP}(?P<options>\([\w\s,]*\))", re.DOTALL)


Params = Mapping[str, object] | Sequence[object] | None


def answered(con: duckdb.DuckDBPyConnection, statement: duckdb.Statement, params: Params) -> pa.Table:
    """The rows of a statement, by the way that makes no Python object of each value.

    With parameters that is `execute` before DuckDB 2 (`sql` takes ten times as long), and `sql` since."""
    if duckdb.__version__ < "2":
        return con.execute(statement, params).to_arrow_table()
    return con.sql(statement, params=params).to_arrow_table()


def one_reading(con: duckdb.DuckDBPyConnection, query: str) -> duckdb.Statement:
    """The single statement of a query; raises ReadOnlyError where it does more than read."""
    statements = con.extract_statements(query)
    if len(statements) != 1:
        raise ReadOnlyError(f"store.sql takes one statement, not {len(statements)}")
    kind = _kind(statements[0])
    if kind == "EXPLAIN":
        return _explained(con, query)
    if kind != "SELECT":
        raise ReadOnlyError(f"store.sql only reads (SELECT ...); {kind} is refused. Recording is Writer's work")
    _no_acts(con, statements[0].query or query)
    return statements[0]


def _explained(con: duckdb.DuckDBPyConnection, query: str) -> duckdb.Statement:
    """EXPLAIN of one SELECT, put together anew: ANALYZE runs what it explains, whatever that is."""
    found = _EXPLAIN.match(query)
    if found is None:
        raise ReadOnlyError("write EXPLAIN first, before a SELECT, without comments inside of comments")
    before, rest = "EXPLAIN ANALYZE" if found["analyze"] else "EXPLAIN", query[found.end() :]
    inner = _parsed(con, rest)
    options = _OPTIONS.match(rest)
    if inner is None and options is not None:
        before, rest = f"{before} {options['options']}", rest[options.end() :]
        inner = _parsed(con, rest)
    if inner is None or len(inner) != 1 or _kind(inner[0]) != "SELECT":
        kind = "something else" if inner is None or len(inner) != 1 else _kind(inner[0])
        raise ReadOnlyError(f"store.sql explains only SELECT ...; EXPLAIN before {kind} is refused")
    text = inner[0].query or rest
    _no_acts(con, text)
    made = con.extract_statements(f"{before} {text}")
    if len(made) != 1 or _kind(made[0]) != "EXPLAIN":
        raise ReadOnlyError("store.sql explains only one SELECT statement")
    return made[0]


def _parsed(con: duckdb.DuckDBPyConnection, text: str) -> list[duckdb.Statement] | None:
    try:
        return con.extract_statements(text)
    except duckdb.Error:
        return None


def _kind(statement: duckdb.Statement) -> str:
    return str(statement.type).rpartition(".")[2]


def _no_acts(con: duckdb.DuckDBPyConnection, text: str) -> None:
    """Refuse a SELECT that calls one of the functions; only what holds such a name is looked at closely."""
    if not _ANY.search(text):
        return
    row = con.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
    tree = json.loads(row[0]) if row else {"error": True}
    if tree.get("error"):
        raise ReadOnlyError(f"store.sql cannot tell what this statement calls: {tree.get('error_message', '')}")
    for name in _called(tree):
        if _ONE.fullmatch(name):
            raise ReadOnlyError(f"store.sql only reads; the function {name} is refused: it acts, or hides what is read")


def _called(tree: object) -> Iterator[str]:
    """The names of all functions in a serialized statement."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            name = node.get("function_name")
            if isinstance(name, str):
                yield name
            todo += node.values()
        elif isinstance(node, list):
            todo += node
