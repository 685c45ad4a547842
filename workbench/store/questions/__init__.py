"""Named questions: one .sql file each, whose first line is the question and whose comments name the parameters.

    -- How did reward move, step by step?
    -- $run = latest: run id
    -- $last = 50: how many steps
    SELECT ...

A default is JSON, or `latest` for the run started last. A parameter without a default, or without a line of its own,
must be given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Literal, NamedTuple, overload

import pyarrow as pa

from workbench.store.errors import QuestionError
from workbench.store.frames import Frame, check_format, framed
from workbench.store.records import Reader

HERE = Path(__file__).parent
REQUIRED = object()
LATEST = object()


class Parameter(NamedTuple):
    """A parameter of a question; default is REQUIRED, LATEST (the newest run) or a value."""

    name: str
    default: object
    text: str

    def __str__(self) -> str:
        if self.default is REQUIRED:
            return self.name
        return f"{self.name}={'latest' if self.default is LATEST else repr(self.default)}"


@dataclass(frozen=True)
class Question:
    """A question in SQL, as people may read and copy it."""

    name: str
    text: str
    parameters: Mapping[str, Parameter]
    sql: str

    def __repr__(self) -> str:
        given = "".join(f", {p}" for p in self.parameters.values())
        return f'ask("{self.name}"{given})  # {self.text}'

    def _repr_html_(self) -> str:
        return f"<b>{escape(self.text)}</b><pre>{escape(self.sql)}</pre>"


def parse(name: str, sql: str) -> Question:
    """A question from the text of its file."""
    first, *rest = sql.splitlines()
    if not first.startswith("-- "):
        raise QuestionError(f"{name}.sql must begin with its question as a comment, not with {first!r}")
    parameters = {}
    for line in rest:
        if found := re.match(r"-- \$(\w+)(?: = ([^:]+))?: (.+)$", line):
            key, default, text = found.groups()
            value = REQUIRED if default is None else LATEST if default == "latest" else json.loads(default)
            parameters[key] = Parameter(key, value, text)
    body = "\n".join(line for line in rest if not line.startswith("--"))
    used = dict.fromkeys(re.findall(r"\$([a-zA-Z_]\w*)", body))
    idle = [key for key in parameters if key not in used]
    if idle:
        raise QuestionError(f"{name}.sql declares {', '.join(idle)} and does not use it")
    parameters |= {key: Parameter(key, REQUIRED, "") for key in used if key not in parameters}
    return Question(name, first[3:], parameters, sql)


@cache
def load() -> Mapping[str, Question]:
    """All questions by name."""
    return {p.stem: parse(p.stem, p.read_text(encoding="utf-8")) for p in sorted(HERE.glob("*.sql"))}


class Questions(Mapping):
    """The questions by name; called, a table of them."""

    def __getitem__(self, name: str) -> Question:
        if name not in load():
            raise QuestionError(f"there is no question {name!r}; there are {', '.join(load())}")
        return load()[name]

    def __iter__(self):
        return iter(load())

    def __len__(self) -> int:
        return len(load())

    def __call__(self) -> pa.Table:
        """name, question, parameters."""
        rows = load().values()
        return pa.table(
            {
                "name": [q.name for q in rows],
                "question": [q.text for q in rows],
                "parameters": [", ".join(map(str, q.parameters.values())) for q in rows],
            }
        )

    def __repr__(self) -> str:
        return "\n".join(map(repr, load().values()))

    def _repr_html_(self) -> str:
        return html_table(self(), "questions")


class Ask:
    """`store.ask("reward_by_step", run=...)`, or with tab completion `store.ask.reward_by_step(run=...)`."""

    def __init__(self, store: Reader) -> None:
        self._store = store
        self.questions = Questions()

    @overload
    def __call__(self, question: str, *, format: Literal["arrow"] = "arrow", **params: object) -> pa.Table: ...

    @overload
    def __call__(self, question: str, *, format: str, **params: object) -> Frame: ...

    def __call__(self, question: str, *, format: str = "arrow", **params: object) -> Frame:
        """The answer as an Arrow table, or in the format "pandas" or "polars"; raises QuestionError for unknown
        questions and parameters."""
        check_format(format)
        found = self.questions[question]
        unknown = sorted(set(params) - set(found.parameters))
        missing = [p.name for p in found.parameters.values() if p.default is REQUIRED and p.name not in params]
        if unknown or missing:
            wrong = f"has no parameter {', '.join(unknown)}" if unknown else f"needs {', '.join(missing)}"
            takes = ", ".join(map(str, found.parameters.values())) or "no parameters"
            raise QuestionError(f"{question} {wrong}; it takes {takes}")
        given = {p.name: params.get(p.name, p.default) for p in found.parameters.values()}
        for name, value in given.items():
            if value is LATEST or (value is None and found.parameters[name].default is LATEST):
                given[name] = self._store.latest() or ""
        return framed(self._store.sql(found.sql, given), format)

    def __getattr__(self, name: str):
        if name.startswith("_") or name not in load():
            raise AttributeError(f"there is no question {name!r}; there are {', '.join(load())}")

        def ask(*, format: str = "arrow", **params: object) -> Frame:
            return self(name, format=format, **params)

        ask.__name__, ask.__doc__ = name, load()[name].text + "\n\n" + load()[name].sql
        return ask

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *load()]

    def _ipython_key_completions_(self) -> list[str]:
        return list(load())

    def __repr__(self) -> str:
        return repr(self.questions)


def html_table(table: pa.Table, caption: str, rows: int = 50) -> str:
    """A small HTML table; everything in it is escaped."""
    head = "".join(f"<th>{escape(n)}</th>" for n in table.column_names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape('' if v is None else str(v))}</td>" for v in row.values()) + "</tr>"
        for row in table.slice(0, rows).to_pylist()
    )
    more = f"<p>{len(table) - rows} more rows</p>" if len(table) > rows else ""
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table>{more}"
