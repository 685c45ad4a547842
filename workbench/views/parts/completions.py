"""The completions of one group, drawn by a small component of our own.

Text goes to the browser as values and into text nodes, never as HTML, so that no completion can become markup.
Long texts are cut; "show all" asks the server for one text, and the page then stays on that group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import param
from panel.custom import JSComponent

from workbench.views.data.records import Group
from workbench.views.data.text import ALL, CUT, known, shown
from workbench.views.parts.theme import asset


class Completions(JSComponent):
    """Rows of a group: correct, text, reward with its parts, advantage."""

    rows = param.List(default=[], doc="One dict per completion, as `row` makes it.")
    empty = param.String(default="No group yet.", doc="What is said while there is none.")

    _esm = asset("completions.js")
    _stylesheets: ClassVar[list[str]] = [asset("completions.css")]

    def __init__(self, fetch: Callable[[str], tuple[str, int]], **params) -> None:
        super().__init__(**params)
        self._fetch = fetch

    def _handle_msg(self, message: dict) -> None:
        id_ = message.get("id") if isinstance(message, dict) else None
        if id_ is not None and id_ in {r["id"] for r in self.rows}:
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


def row(c: Mapping[str, Any]) -> dict:
    """A rollout of `Group.rows` as plain values for the browser: text cut and made visible, null for what is not known."""
    reason = (c["reason"] or "").replace("_", " ")
    became = dict.fromkeys(shown(x, 40) for x in (c["finish"], c["fate"], reason) if x)  # each once
    answer = [f"read as {shown(c['answer'], 40)}"] if c["answer"] else []
    characters = c["characters"] or 0
    return {
        "id": c["rollout_id"],
        "text": shown(c["text"], CUT) or "(empty)",
        "more": f"show all {characters:,} characters" if characters > CUT else "",
        "parts": [[shown(k, 24), float(v)] for k, v in c["parts"].items() if v is not None and v == v][:6],
        "note": " · ".join([f"{c['length'] or 0:,} tokens", *became, *answer]),
        **{name: known(c[name]) for name in ("reward", "correct", "advantage")},
    }
