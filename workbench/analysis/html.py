"""Rows as an HTML table for a notebook, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape


def cell(value: object) -> str:
    """A figure with three decimals, anything else as text."""
    return f"{value:.3f}" if isinstance(value, float) else escape(str(value))


def table(rows: Sequence[Mapping[str, object]], caption: str) -> str:
    """One column per key of the first row."""
    head = "".join(f"<th>{escape(k)}</th>" for k in rows[0]) if rows else ""
    body = "".join("<tr>" + "".join(f"<td>{cell(v)}</td>" for v in r.values()) + "</tr>" for r in rows)
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table>"
