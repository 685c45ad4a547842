"""One visual language: what a colour means, and the style sheet of cards, figures and badges.

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

PAGE = """
:host {
  display: grid !important; grid-template-columns: repeat(12, minmax(0, 1fr)); gap: 12px;
  grid-auto-rows: max-content; height: max-content !important; align-items: stretch; align-content: start; padding: 12px; box-sizing: border-box;
  width: 100%; max-width: 1760px; margin: 0 auto !important;
}
@media (max-width: 600px) { :host { gap: 8px; padding: 8px; } }
"""

CARD = """
:host {
  grid-column: span SPAN; min-width: 0; height: auto !important; align-self: stretch !important; box-sizing: border-box; padding: 10px 14px 10px;
  background: var(--panel-surface-color, #fff); border-radius: 10px;
  border: 1px solid color-mix(in srgb, var(--panel-on-surface-color, #222) 14%, transparent);
}
@media (max-width: 1000px) { :host { grid-column: 1 / -1; } }
"""

NAVIGATION = """
:host { position: sticky; top: 0; z-index: 5; width: 100%; max-width: 1760px; margin: 0 auto !important; padding: 0 12px;
  box-sizing: border-box; align-items: center; background: var(--panel-surface-color, #fff);
  border-bottom: 1px solid color-mix(in srgb, var(--panel-on-surface-color, #222) 14%, transparent); }
"""
"""The line of page names under the header."""

WHEEL = """
:host { width: 100%; max-width: 1760px; margin: 0 auto !important; padding: 0 14px 6px; box-sizing: border-box; }
"""
"""The steering bar."""

SIDE = """
:host { grid-column: span SPAN; min-width: 0; height: auto !important; gap: 12px; }
@media (max-width: 1000px) { :host { grid-column: 1 / -1; } }
"""
"""Cards above each other in one place of the page, SPAN twelfths wide."""

HTML = asset("html.css")
"""Style of every HTML pane; each pane has its own shadow root, so each gets it."""
