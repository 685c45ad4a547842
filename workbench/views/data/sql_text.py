"""SQL of the question behind a view, to be copied: every number on a page can be asked again by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from workbench.store.questions import LATEST, REQUIRED, load


class Query(NamedTuple):
    """What a view asked of the store. question: a named question, or a statement of SQL."""

    view: str
    question: str
    params: Mapping[str, object] = {}

    @property
    def call(self) -> str:
        """As it is written in a notebook: `store.ask("reward_by_step", run="...")`."""
        if self.question not in load():
            return f"store.sql({self.sql!r})"
        given = "".join(f", {name}={value!r}" for name, value in self.params.items())
        return f'store.ask("{self.question}"{given})'

    @property
    def sql(self) -> str:
        """The statement with its parameters filled in, as `store.sql` and the SQL page take it."""
        question = load().get(self.question)
        if question is None:
            return filled(self.question, self.params)
        defaults = {p.name: p.default for p in question.parameters.values() if p.default not in (LATEST, REQUIRED)}
        return filled(question.sql, {**defaults, **self.params})


def filled(sql: str, params: Mapping[str, object]) -> str:
    """SQL whose $names are replaced by literals; comments that declare them are left out, the first line stays."""
    lines = [line for i, line in enumerate(sql.splitlines()) if not i or not line.startswith("-- $")]
    known = "|".join(map(re.escape, params))
    if not known:
        return "\n".join(lines)
    return re.sub(rf"\$({known})\b", lambda m: literal(params[m[1]]), "\n".join(lines))


def literal(value: object) -> str:
    """A value as DuckDB reads it: 'it''s', 3, true, NULL, ['a', 'b']."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value) if value == value else "'nan'::DOUBLE"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return "'" + str(value).replace("'", "''") + "'"
