"""A group of rollouts as a still picture: x = tokens, one row per rollout, colour = what its rewards came to."""

from __future__ import annotations

import math

from workbench.report.svg import CHARACTER, GRID, INK, PAPER, QUIET, WIDTH, number, text, ticks, wrap
from workbench.views.data.text import one_line
from workbench.views.data.tree import Branch, Tree

ROW = 22.0
MOST = 64
"""Rows that are drawn; a larger group says how many were left out."""

YES, NO, MIDDLE, GREY = "#13a082", "#d4512a", "#a4abb3", "#8b949e"


def picture(tree: Tree, low: float, high: float) -> str:
    """The tree with the reward, the advantage and the start of the text of every rollout; low, high: range of rewards."""
    shown = [b for b in tree.branches if b.y < MOST]
    rows = min(tree.n_leaves, MOST)
    left, right, top = 26.0, 350.0, 44.0
    most = max(tree.tokens, 1)

    def at(tokens: float) -> float:
        return left + (right - left) * tokens / most

    out = []
    for x in ticks(0, most, n=5):
        a = at(float(x))
        out.append(f'<path d="M{a:.1f} {top - 8:.1f}V{top + ROW * rows - 8:.1f}" stroke="{GRID}" fill="none"/>')
        out.append(text(a, top - 14, number(float(x)), anchor="middle"))
    out.append(text(left - 18, 14, "tokens", color=QUIET))
    for words, x in (("reward", 408), ("advantage", 478)):
        out.append(text(x, 14, words, anchor="end"))
    out.append(text(494, 14, "what it says" if tree.spelled else "its answer"))
    for b in shown:
        if b.parent >= 0:
            out.append(_edge(b, tree.branches[b.parent], at, top, low, high))
    for b in shown:
        out.append(_node(b, at, top, low, high))
    for b in shown:
        if b.parent >= 0 and not any(c.parent >= 0 and tree.branches[c.parent] is b for c in tree.branches):
            out.append(_leaf(b, right, top + ROW * b.y))
    left_out = tree.n_leaves - rows
    if left_out > 0:
        out.append(text(left, top + ROW * rows + 8, f"and {left_out} more rollouts"))
    height = top + ROW * rows + (18 if left_out > 0 else 0)
    return wrap("".join(out), WIDTH, height, f"tree of {tree.n_leaves} rollouts with {tree.forks} forks")


def _color(value: float | None, low: float, high: float) -> str:
    """Between NO and YES by the place of a value in the range of rewards; grey where there is none."""
    if value is None or not math.isfinite(value):
        return GREY
    t = min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0)
    a, b, s = (NO, MIDDLE, 2 * t) if t < 0.5 else (MIDDLE, YES, 2 * t - 1)
    mix = [round(int(a[i : i + 2], 16) * (1 - s) + int(b[i : i + 2], 16) * s) for i in (1, 3, 5)]
    return "#{:02x}{:02x}{:02x}".format(*mix)


def _edge(b: Branch, above: Branch, at, top: float, low: float, high: float) -> str:
    x0, y0 = at(above.start + (above.n if above.kind != "prompt" else 0)), top + ROW * above.y
    x1, y1 = at(b.start + b.n), top + ROW * b.y
    bend = min(0.5 * (x1 - x0), 26.0)
    cut = ' stroke-dasharray="4 3" opacity="0.7"' if b.status != "live" else ""
    wide = min(1.6 + 0.6 * math.log2(max(b.leaves, 1)), 5)
    return (
        f'<path d="M{x0:.1f} {y0:.1f}C{x0 + bend:.1f} {y0:.1f} {x0 + bend * 0.4:.1f} {y1:.1f} {x0 + bend:.1f} {y1:.1f}L{x1:.1f} {y1:.1f}" '
        f'stroke="{_color(b.value, low, high)}" stroke-width="{wide:.1f}" fill="none"{cut}/>'
    )


def _node(b: Branch, at, top: float, low: float, high: float) -> str:
    x, y = at(b.start + (b.n if b.kind != "prompt" else 0)), top + ROW * b.y
    if b.parent < 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{PAPER}" stroke="{QUIET}" stroke-width="2"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{_color(b.value, low, high)}"/>'


def _leaf(b: Branch, right: float, y: float) -> str:
    mark, color = {1.0: ("✓", YES), 0.0: ("✗", NO)}.get(b.correct, ("–", GREY))  # type: ignore[arg-type]
    if b.status != "live":
        mark, color = "✂", GREY
    out = text(right + 14, y + 4, mark, color=color, more=' font-weight="700"')
    out += text(408, y + 4, "–" if b.value is None else f"{b.value:.2f}".replace("-", "−"), color=INK, anchor="end")
    advantage = "–" if b.advantage is None else f"{b.advantage:+.2f}".replace("-", "−")
    out += text(478, y + 4, advantage, color=INK, anchor="end")
    room = int((WIDTH - 494) / (CHARACTER + 0.9)) - 1
    words = one_line(b.text, room) or one_line(b.reason or b.fate, room)
    mono = ' style="font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:11.5px"'
    return out + text(494, y + 4, words, color=INK if b.text else QUIET, more=mono)
