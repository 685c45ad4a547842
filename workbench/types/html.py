"""Notebook cells (HTML) of records of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def cut(text: object, limit: int = 120) -> str:
    """A text on one line, control characters drawn, cut for a cell."""
    line = "".join(
        c if c.isprintable() else "␣" if c.isspace() else "\N{SYMBOL FOR SUBSTITUTE}" for c in str(text)[:limit]
    )
    return line + ("…" if len(str(text)) > limit else "")


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for a notebook cell; everything in it is escaped."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(v))}</td>" for v in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><tr>{top}</tr>{body}</table>"


def rest(n: int) -> str:
    """How many rows a table leaves out."""
    return f"<p>and {n:,} more</p>" if n > 0 else ""
