"""Document of a report, before it is a page: prose, figures and tables, each with the questions it was read from.

Writers (`html`, `markdown`) turn the same document into a page, a PDF, or a folder for a paper. All text in it is plain:
it may hold prompts and completions, and a writer escapes it for its own format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from workbench.views.data.sql_text import Query
from workbench.views.data.text import duration


def query(question: str, **params: object) -> Query:
    """A named question with its parameters, as the source of a block."""
    return Query("report", question, params)


class Prose(NamedTuple):
    """A sentence or paragraph; note: smaller, an assumption or a remark."""

    text: str
    sources: Sequence[Query] = ()
    note: bool = False


class Code(NamedTuple):
    """Text as it was written, line breaks kept."""

    text: str


class Figure(NamedTuple):
    """A drawing as SVG text; name is its file's, unique in the report."""

    name: str
    svg: str
    caption: str
    sources: Sequence[Query] = ()


class Column(NamedTuple):
    """key of the rows, heading, and how a value is written: text, code, n (count), f3 (three decimals), signed, %, s."""

    key: str
    label: str
    form: str = "text"

    @property
    def numeric(self) -> bool:
        """Whether its values stand to the right."""
        return self.form not in ("text", "code")

    def write(self, value: object) -> str:
        """A value in words of this column; a dash where it is not known."""
        if value is None or value != value:
            return "–"
        if self.form in ("text", "code"):
            return str(value)
        assert isinstance(value, int | float), value
        if self.form == "n":
            return f"{value:,.0f}"
        if self.form == "s":
            return duration(float(value))
        text = {"%": f"{100 * value:.1f} %", "f3": f"{value:.3f}", "signed": f"{value:+.3f}"}[self.form]
        return text.replace("-", "−")


def columns(**headings: str) -> tuple[Column, ...]:
    """Columns by key, each as "label:form": `columns(step=":n", prompt_id="prompt:code")`. Without a label it is the key's
    words."""
    parts = {key: heading.partition(":") for key, heading in headings.items()}
    return tuple(Column(key, label or key.replace("_", " "), form or "text") for key, (label, _, form) in parts.items())


@dataclass(frozen=True)
class Table:
    """Rows by key; name is its file's. most: rows shown on a page, a CSV file has all."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, object]]
    caption: str
    sources: Sequence[Query] = ()
    most: int = 40


class Card(NamedTuple):
    """A method: title, where it comes from, what it does here, and every deviation from its paper."""

    name: str
    title: str
    link: str
    facts: Sequence[tuple[str, str]]
    deviations: Sequence[str]


Block: TypeAlias = Prose | Code | Figure | Table | Card


@dataclass(frozen=True)
class Section:
    """A heading with blocks; level 1 begins a chapter, 2 stands in it."""

    title: str
    blocks: Sequence[Block]
    level: int = 1
    name: str = ""

    @property
    def anchor(self) -> str:
        """Its address in the page."""
        return self.name or re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    subtitle: str
    date: str
    sections: Sequence[Section] = field(default_factory=list)

    def questions(self) -> dict[str, list[Query]]:
        """Every question that a block was read from, with the ways in which it was asked, in order."""
        found: dict[str, list[Query]] = {}
        for section in self.sections:
            for block in section.blocks:
                for source in getattr(block, "sources", ()):
                    known = found.setdefault(source.question, [])
                    if source.params not in [k.params for k in known]:
                        known.append(source)
        return found

    def figures(self) -> list[Figure]:
        """All figures, in order."""
        return [b for s in self.sections for b in s.blocks if isinstance(b, Figure)]

    def tables(self) -> list[Table]:
        """All tables, in order."""
        return [b for s in self.sections for b in s.blocks if isinstance(b, Table)]
