"""A table of a few rows that can be clicked, walked with the keys and paged, drawn by a small component of our own.

Text goes to the browser as values and into text nodes, never as HTML. Only the page in view is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import param
from panel.custom import JSComponent

from workbench.views.data.text import shown
from workbench.views.parts.theme import asset


class Column(NamedTuple):
    """A column. form: "" plain, "n" a number, "text" long text, "bar" with bars, "line" unbroken."""

    name: str
    form: str = ""
    hint: str = ""


class Row(NamedTuple):
    """A row: what is reported when it is picked ("" = it cannot be), and one `cell` a column."""

    key: str
    cells: Sequence[object]


def cell(
    text: object = "",
    *,
    note: str = "",
    chips: Mapping[str, float | None] | None = None,
    bars: Sequence[tuple[float, str, str]] = (),
) -> dict[str, object]:
    """A cell of more than a word: text, a quiet note, named numbers, bars as (share of the cell, colour, what it is)."""
    made: dict[str, object] = {"text": shown(text, 400)}
    if note:
        made["note"] = shown(note, 200)
    if chips:
        made["chips"] = [[shown(k, 40), number(v)] for k, v in list(chips.items())[:12]]
    if bars:
        made["bars"] = [[float(share), color, shown(what, 80)] for share, color, what in bars]
    return made


def because(scores: Mapping[str, float | None]) -> dict[str, object] | str:
    """Why a prompt was asked, as a cell: the numbers that it was chosen by, or that there are none."""
    known = {name: score for name, score in scores.items() if score is not None and score == score}
    if known:
        return cell(chips=known)
    return cell("without a score", note="as a pinned prompt") if scores else "no scores recorded"


def number(value: float | None) -> str:
    """A number of unknown scale in about four digits; a dash where there is none."""
    if value is None or value != value:
        return "–"
    if value == int(value) and abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


class Table(JSComponent):
    """Rows of a table; `picked(key)` is called on a click or Enter, `turned(first)` when another page is wanted.

    stacks: whether the cells of a row stand under each other, each with its name, where the window is narrow: for more
    columns than fit a phone."""

    state = param.Dict(default={}, doc="Columns, the rows in view, the row chosen, what is said while there is none.")

    _esm = asset("table.js")
    _stylesheets: ClassVar[list[str]] = [asset("table.css")]

    def __init__(
        self,
        columns: Sequence[Column],
        picked: Callable[[str], None] | None = None,
        turned: Callable[[int], None] | None = None,
        *,
        size: int = 10,
        empty: Sequence[str] = ("Nothing yet",),
        stacks: bool = False,
        **params,
    ) -> None:
        self.columns, self.size, self.empty = tuple(columns), size, tuple(empty)
        self.first, self._stacks = 0, stacks
        self._picked, self._turned = picked, turned
        self._keys = self._now = frozenset[str]()
        super().__init__(**({"sizing_mode": "stretch_width", "margin": (6, 0, 0, 0)} | params))
        self.show([], 0)

    def _handle_msg(self, message: object) -> None:
        if not isinstance(message, dict):
            return
        if self._picked and message.get("pick") in self._keys:
            self._picked(message["pick"])
        if self._turned and message.get("turn") in (-1, 1):
            self.first = max(self.first + self.size * message["turn"], 0)
            self._turned(self.first)

    def page_of(self, total: int) -> int:
        """The first row of the page in view, moved back where there are no longer so many rows."""
        self.first = min(self.first, max(total - 1, 0) // self.size * self.size)
        return self.first

    def show(self, rows: Sequence[Row], total: int | None = None, *, chosen: str = "", note: str = "") -> None:
        """Draw the page in view: `rows` are those from `first` on, of `total`."""
        total = len(rows) if total is None else total
        where = f"{self.first + 1:,}–{self.first + len(rows):,} of {total:,}" if total > len(rows) else ""
        state = {
            "columns": [{"name": c.name, "form": c.form, "hint": c.hint} for c in self.columns],
            "rows": [{"key": r.key, "cells": [_plain(c) for c in r.cells]} for r in rows],
            "chosen": chosen,
            "note": " · ".join(x for x in (where, note) if x),
            "before": self.first > 0,
            "after": self.first + len(rows) < total,
            "empty": list(self.empty),
            "picks": self._picked is not None,
            "stacks": self._stacks,
        }
        if state != self.state:
            # a click on a row that was just replaced is still on its way: the rows before count too
            self._keys = self._now | frozenset(r.key for r in rows if r.key)
            self._now = frozenset(r.key for r in rows if r.key)
            self.state = state
            self._send_msg({"state": state})  # see Completions.show: properties alone may be lost to a browser


def _plain(value: object) -> object:
    return value if isinstance(value, dict) or value is None else shown(value, 400)
