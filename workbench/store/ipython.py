"""`%load_ext workbench.store`, then SQL in a notebook: a cell that begins with %%sql queries a store.

    %%sql
    SELECT step, avg(reward) AS reward FROM rollouts WHERE run = $run GROUP BY step ORDER BY step

$names are variables of the notebook, bound as values. The line takes the store, a variable or a folder (default: the
variable `store`), `-o NAME` to keep the answer, and `-f arrow | pandas | polars`. It reads, as `store.sql` does.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import duckdb

from workbench.store.errors import QuestionError
from workbench.store.frames import FORMATS, Frame, framed
from workbench.store.reader import Store

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class _Line(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise QuestionError(f"{message}; write %%sql [STORE] [-o NAME] [-f {'|'.join(FORMATS)}]")


LINE = _Line(prog="%%sql", add_help=False)
LINE.add_argument("store", nargs="?", default="store")
LINE.add_argument("-o", dest="name")
LINE.add_argument("-f", dest="format", default="pandas", choices=FORMATS)


def register(shell: InteractiveShell) -> None:
    """Add %%sql, and %sql for a query on one line, to a shell."""
    from IPython.core.magic import no_var_expand

    def sql(line: str, cell: str | None = None) -> Frame | None:
        given = LINE.parse_args(shlex.split(line) if cell is not None else [])
        answer = query(shell.user_ns, given.store, line if cell is None else cell, given.format)
        if given.name is None:
            return answer
        shell.user_ns[given.name] = answer
        return None

    sql.__doc__ = __doc__
    expand: Any = no_var_expand  # a $name is a bound value, never text in the query; the stubs take it for a method
    shell.register_magic_function(expand(sql), "line_cell", "sql")


def query(names: Mapping[str, object], store: str, text: str, format: str = "pandas") -> Frame:
    """The answer of a store, named by a variable among names or by its folder, with $names bound from there.

    Raises QuestionError for a $name that is no variable, StoreError where there is no store."""
    bound = sorted({n for s in duckdb.extract_statements(text) for n in s.named_parameters})
    missing = [n for n in bound if n not in names]
    if missing:
        raise QuestionError(f"the query names ${missing[0]}; give a variable {missing[0]} a value first")
    params = {n: names[n] for n in bound} or None
    if isinstance(there := names.get(store), Store):
        return framed(there.sql(text, params), format)
    with Store.open(store) as opened:
        return framed(opened.sql(text, params), format)
