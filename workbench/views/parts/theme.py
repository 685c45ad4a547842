"""Theme: what a colour means, and the style sheets of pages, cards and text.

Hues follow Okabe and Ito, which stay apart for the common kinds of colour blindness, at lightnesses that read on
white and on black. Surfaces, text and lines come from the page's own variables, so that light and dark need no
second style sheet.
"""

from __future__ import annotations

from pathlib import Path


def asset(*names: str) -> str:
    """The text of style sheets or scripts that lie beside this file, one after the other."""
    return "".join((Path(__file__).parent / name).read_text(encoding="utf-8") for name in names)


LEARNING = "#2f81d6"
MOVES = "#d98200"
PASS = "#13a082"
ZERO = "#a9669f"
ASKED = "#8b949e"
CHOSEN = "#e5484d"
UNKNOWN = "rgba(128, 134, 142, 0.22)"

BUDGET = {
    "trained, with signal": "#13a082",
    "zero advantage, all solved": "#7fbdea",
    "zero advantage, none solved": "#a9669f",
    "zero advantage, equal rewards": "#8b949e",
    "dropped": "#d98200",
    "pruned": "#b8a02c",
    "discarded": "#c98f6b",
    "carried to a later step": "#5c7cba",
    "failed": "#d4512a",
}
"""Fates of rollouts, in the order in which they are stacked."""

SECONDS = {
    "generate": "#2f81d6",
    "update": "#13a082",
    "score": "#7fbdea",
    "decide": "#d98200",
    "estimate": "#a9669f",
    "evaluate": "#b8a02c",
    "record": "#c98f6b",
    "other": "#8b949e",
}
"""Phases of a step, in the order in which they are stacked."""

GROUND = "color-mix(in srgb, var(--panel-on-surface-color, #222) 5%, var(--panel-surface-color, #fff))"
"""The ground that cards lie on."""

PAGE, CARD, SIDE, NAVIGATION, STEERING_BAR = map(
    asset, ("page.css", "card.css", "side.css", "navigation.css", "steering_bar.css")
)
"""Boxes of a page. SPAN stands for how many twelfths of the page a card, or cards above each other, are wide."""

HTML = asset("html.css")
"""Style of every HTML pane; each pane has its own shadow root, so each gets it."""
