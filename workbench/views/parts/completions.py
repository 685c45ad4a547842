"""The completions of one group, drawn by a small component of our own.

Text goes to the browser as values and into text nodes, never as HTML, so that no completion can become markup.
Long texts are cut; "show all" asks the server for one text, and the page then stays on that group.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import param
from panel.custom import JSComponent

from workbench.views.data.records import Completion, Group
from workbench.views.parts.text import ALL, CUT, shown

STYLE = """
:host { --ink: var(--panel-on-surface-color, #222); color: var(--ink); font-size: 13px; }
.row { display: grid; grid-template-columns: 20px minmax(0, 1fr) minmax(150px, 290px) 150px; gap: 4px 12px;
  padding: 6px 0; align-items: start; }
.row + .row { border-top: 1px solid color-mix(in srgb, var(--ink) 10%, transparent); }
.row.top { padding: 0; } .row.top small:nth-of-type(4) { padding-left: 54px; }
.mark { font-weight: 700; text-align: center; }
.yes { color: #13a082; } .no { color: #d4512a; } .none { color: #8b949e; }
.body { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 12.5px;
  white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; }
.text { min-width: 0; max-height: 420px; overflow: auto; display: flex; flex-wrap: wrap; gap: 1px 14px; align-items: baseline; }
small { display: block; font-size: 11.5px; color: color-mix(in srgb, var(--ink) 62%, transparent); }
b { font-weight: 650; font-variant-numeric: tabular-nums; }
.adv { display: grid; grid-template-columns: 46px 1fr; gap: 8px; align-items: center; }
.adv b { text-align: right; }
.track { position: relative; height: 10px; border-radius: 3px;
  background: linear-gradient(color-mix(in srgb, var(--ink) 40%, transparent) 0 0) center / 1px 100% no-repeat,
    color-mix(in srgb, var(--ink) 7%, transparent); }
.track i { position: absolute; top: 0; bottom: 0; border-radius: 2px; }
.pos { background: #13a082; } .neg { background: #d4512a; }
button { font: inherit; font-size: 12px; color: #2f81d6; background: none; cursor: pointer;
  border: 1px solid #2f81d6; border-radius: 5px; padding: 0 7px; }
.empty { padding: 22px; text-align: center; color: color-mix(in srgb, var(--ink) 70%, transparent); }
@media (max-width: 700px) { .row.top { display: none; } .row { grid-template-columns: 20px minmax(0, 1fr); } .row > :nth-child(n+3) { grid-column: 2; } }
"""


class Completions(JSComponent):
    """Rows of a group: correct, text, reward with its parts, advantage."""

    rows = param.List(default=[], doc="One dict per completion, as `row` makes it.")
    empty = param.String(default="No group yet.", doc="What is said while there is none.")

    _esm = (Path(__file__).parent / "completions.js").read_text(encoding="utf-8")
    _stylesheets: ClassVar[list[str]] = [STYLE]

    def __init__(self, fetch: Callable[[str], tuple[str, int]], **params) -> None:
        super().__init__(**params)
        self._fetch = fetch

    def _handle_msg(self, message: dict) -> None:
        id_ = message.get("id") if isinstance(message, dict) else None
        if id_ in {r["id"] for r in self.rows}:
            text, characters = self._fetch(id_)
            tail = f"\n… {characters - ALL:,} characters more are in the store" if characters > ALL else ""
            self._send_msg({"id": id_, "text": shown(text, ALL) + tail})

    def show(self, group: Group) -> None:
        """Draw this group."""
        rows = [row(c) for c in group.rows]
        if rows != self.rows:
            self.rows = rows
            # beside the property: where a step arrives while the page is being opened, Panel 1.9.4 stops
            # synchronising a component's properties with that browser; messages still get through
            self._send_msg({"rows": rows})


def row(c: Completion) -> dict:
    """A completion as plain values for the browser: null for NaN, text cut and made visible."""
    became = dict.fromkeys(shown(x, 40) for x in (c.finish, c.fate, c.reason.replace("_", " ")) if x)  # each once
    note = " · ".join([f"{c.length:,} tokens", *became, *([f"read as {shown(c.answer, 40)}"] if c.answer else [])])
    return {
        "id": c.id,
        "text": shown(c.text, CUT) or "(empty)",
        "more": f"show all {c.characters:,} characters" if c.characters > CUT else "",
        "reward": _value(c.reward),
        "correct": _value(c.correct),
        "advantage": _value(c.advantage),
        "parts": [[shown(k, 24), float(v)] for k, v in c.parts.items() if v == v][:6],
        "note": note,
    }


def _value(x: float) -> float | None:
    return None if x != x else float(x)
