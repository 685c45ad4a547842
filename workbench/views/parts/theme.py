"""One visual language: what a colour means, and the style sheet of cards, figures and badges.

Hues follow Okabe and Ito, which stay apart for the common kinds of colour blindness, at lightnesses that read on
white and on black. Surfaces, text and lines come from the page's own variables, so that light and dark need no
second style sheet.
"""

from __future__ import annotations

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
HTML = """
:host { --ink: var(--panel-on-surface-color, #222); color: var(--ink); font-size: 13px; line-height: 1.45; }
.head { display: flex; flex-wrap: wrap; gap: 2px 14px; align-items: baseline; }
.head h2 { font-size: 14.5px; font-weight: 650; margin: 0; }
.quiet, .head span { color: color-mix(in srgb, var(--ink) 64%, transparent); font-size: 12px; }
.key { display: inline-flex; align-items: center; gap: 5px; white-space: nowrap; }
.key i { width: 11px; height: 11px; border-radius: 3px; display: inline-block; flex: none; }
.key i.line { height: 3px; }
.key i.dots { height: 0; border-top: 3px dotted; background: none !important; border-radius: 0; }
.key b { font-weight: 650; color: var(--panel-on-surface-color, #222); font-variant-numeric: tabular-nums; }
.stats { display: grid; grid-template-columns: repeat(auto-fit, minmax(112px, 1fr)); gap: 8px 18px; }
.stat { min-width: 0; }
.stat .name { font-size: 12px; color: color-mix(in srgb, var(--ink) 64%, transparent); }
.stat .value { font-size: 23px; font-weight: 650; line-height: 1.2; font-variant-numeric: tabular-nums; }
.stat .value small { font-size: 13px; font-weight: 500; }
.stat .note { font-size: 11.5px; color: color-mix(in srgb, var(--ink) 64%, transparent); }
.up { color: #13a082; } .down { color: #d4512a; }
.badge { display: inline-block; border-radius: 99px; padding: 1px 9px; font-size: 12px; font-weight: 600; }
.who { display: flex; flex-wrap: wrap; gap: 6px 8px; align-items: center; margin-top: 9px; padding-top: 9px;
  border-top: 1px solid color-mix(in srgb, var(--ink) 12%, transparent); }
.verb { border: 1px solid color-mix(in srgb, var(--ink) 18%, transparent); border-radius: 6px; padding: 1px 8px;
  font-size: 12px; white-space: nowrap; }
.verb em { font-style: normal; color: color-mix(in srgb, var(--ink) 60%, transparent); }
code, pre, .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 12px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 4px 0; max-height: 9.5em; overflow: auto;
  background: color-mix(in srgb, var(--ink) 6%, transparent); border-radius: 6px; padding: 6px 9px; }
pre.sql { max-height: 22em; }
details { margin: 4px 0; } summary { cursor: pointer; }
h3 { font-size: 13px; font-weight: 650; margin: 10px 0 2px; }
a { color: #2f81d6; }
.words td { padding-right: 14px; }
.bar { display: flex; height: 16px; border-radius: 4px; overflow: hidden; margin: 6px 0 8px; }
.bar i { display: block; height: 100%; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: 3px 6px 3px 0; text-align: left; font-weight: 400; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr + tr td { border-top: 1px solid color-mix(in srgb, var(--ink) 9%, transparent); }
@media (max-width: 600px) { th.n { white-space: normal; } }
.empty { padding: 26px 12px; text-align: center; color: color-mix(in srgb, var(--ink) 70%, transparent); }
.empty b { display: block; font-size: 15px; color: var(--panel-on-surface-color, #222); margin-bottom: 4px; }
.error { border-left: 4px solid #d4512a; padding: 6px 12px; margin: 2px 0; }
.warn { color: #d98200; font-weight: 600; }
"""
"""Style of every HTML pane; each pane has its own shadow root, so each gets it."""
