"""Charts as SVG text: lines with bands, stacked bars, dots with intervals; axes, legend and all in one element.

The same text is a vector figure for a paper and, in a page, an interactive plot: `data-panels` carries the numbers, and
the page's script adds readings under the pointer, zoom and a legend that hides. No script, no plotting library here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from workbench.views.data.text import html

INK, QUIET, GRID, PAPER = "var(--ink,#1f2328)", "var(--quiet,#656d76)", "var(--grid,#e4e7eb)", "var(--paper,#ffffff)"
FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
CHARACTER = 6.3
"""Width of a character of the 12 px font, about; legends and labels are laid out by it."""

WIDTH = 880.0


class Series(NamedTuple):
    """(K,) points. style: line, dots, both, or bars from low to high, whose amount is y. low, high of a line: its band."""

    name: str
    color: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    style: str = "line"
    dash: str = ""
    width: float = 2.0


@dataclass(frozen=True)
class Panel:
    """One pair of axes. y: its range, None is that of the data; percent: shares; bar: width of a bar in x."""

    series: Sequence[Series]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    y: tuple[float, float] | None = None
    percent: bool = False
    bar: float = 1.0


class Box(NamedTuple):
    """Where a panel's data stand, in pixels and in numbers; y runs upwards in numbers."""

    left: float
    right: float
    top: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at_x(self, x: np.ndarray | float) -> np.ndarray:
        """Pixels of x."""
        return self.left + (np.asarray(x, float) - self.x[0]) / (self.x[1] - self.x[0]) * (self.right - self.left)

    def at_y(self, y: np.ndarray | float) -> np.ndarray:
        """Pixels of y."""
        return self.bottom - (np.asarray(y, float) - self.y[0]) / (self.y[1] - self.y[0]) * (self.bottom - self.top)


def ticks(low: float, high: float, n: int = 5) -> np.ndarray:
    """About n round numbers (1, 2, 5 times a power of ten) from low to high."""
    span = max(high - low, 1e-12)
    rough = span / max(n, 1)
    power = 10.0 ** np.floor(np.log10(rough))
    size = power * next(m for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    return np.arange(np.ceil(low / size - 1e-9), np.floor(high / size + 1e-9) + 1) * size + 0.0  # no -0


def figure(panels: Sequence[Panel], label: str, *, columns: int = 1, height: float = 250, width: float = WIDTH) -> str:
    """Panels in rows of `columns`, with one legend of the series that have a name; label: what a reader hears of it."""
    named: dict[str, Series] = {}
    for p in panels:
        for s in p.series:
            if s.name and (len(panels) == 1 or len(p.series) > 1):
                named.setdefault(s.name, s)
    keys, head = _legend(list(named.values()), width)
    rows = -(-len(panels) // columns)
    cell = width / columns
    parts, data = [keys], []
    for i, p in enumerate(panels):
        left, top = (i % columns) * cell, head + (i // columns) * height
        box = _box(p, left, top, cell, height)
        parts.append(_panel(p, box, i, list(named), small=columns > 1))
        data.append(_numbers(p, box))
    return wrap("".join(parts), width, head + rows * height, label, data)


def wrap(body: str, width: float, height: float, label: str, data: object = None) -> str:
    """An SVG element that scales with the page; data: what the page's script reads."""
    panels = f' data-panels="{html(json.dumps(data, separators=(",", ":")), 10**9)}"' if data else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{html(label)}" style="{FONT};font-size:12px"{panels}>{body}</svg>'
    )


def alone(svg: str) -> str:
    """The figure as a file of its own: colours written out, the script's numbers left out, white paper behind."""
    svg = re.sub(r' data-panels="[^"]*"', "", svg)
    svg = re.sub(r"var\(--[a-z]+,(#[0-9a-f]+)\)", r"\1", svg)
    head, _, rest = svg.partition(">")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}><rect width="100%" height="100%" fill="#ffffff"/>{rest}\n'


def text(x: float, y: float, words: str, *, color: str = QUIET, anchor: str = "start", more: str = "") -> str:
    """A line of text; words are escaped."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}"{more}>{html(words, 400)}</text>'


def number(x: float) -> str:
    """A number for an axis: 0.25, 1,000, 12k, 3.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(x) >= size:
            return f"{x / (1e3 if unit == 'k' else size):g}{unit}"
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.6g}".replace("-", "−")


def _legend(series: Sequence[Series], width: float) -> tuple[str, float]:
    """The keys in as many lines as they need, and their height."""
    if not series:
        return "", 6.0
    x, y, out = 56.0, 13.0, []
    for i, s in enumerate(series):
        need = 26 + CHARACTER * len(s.name) + 14
        if x + need > width and x > 56:
            x, y = 56.0, y + 20
        if s.style == "bars":
            mark = f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="12" height="10" rx="2" fill="{s.color}"/>'
        elif s.style == "dots":
            mark = f'<circle cx="{x + 7:.1f}" cy="{y - 4:.1f}" r="3.5" fill="{s.color}"/>'
        else:
            dash = f' stroke-dasharray="{s.dash}"' if s.dash else ""
            mark = f'<path d="M{x:.1f} {y - 4:.1f}h16" stroke="{s.color}" stroke-width="{min(s.width, 3):g}"{dash} fill="none"/>'
        out.append(f'<g class="key" data-series="{i}">{mark}{text(x + 21, y, s.name, color=INK)}</g>')
        x += need
    return "".join(out), y + 12


def _box(p: Panel, left: float, top: float, width: float, height: float) -> Box:
    xs = np.concatenate([np.asarray(s.x, float) for s in p.series] or [np.zeros(1)])
    xs = xs[np.isfinite(xs)]
    low, high = (float(xs.min()), float(xs.max())) if len(xs) else (0.0, 1.0)
    if any(s.style == "bars" for s in p.series):
        low, high = low - p.bar, high
    elif any(s.style in ("dots", "both") for s in p.series):
        low, high = low - 0.015 * (high - low), high + 0.015 * (high - low)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    return Box(
        left + (56 if p.y_label else 46), left + width - 22, top + (24 if p.title else 10), top + height - (38 if p.x_label else 24), (low, high), _y(p)
    )  # fmt: skip


def _y(p: Panel) -> tuple[float, float]:
    if p.y is not None:
        return p.y
    seen = [
        np.asarray(v, float)
        for s in p.series
        for v in (s.y if s.style != "bars" else s.low, s.low, s.high)
        if v is not None
    ]
    values = np.concatenate([v[np.isfinite(v)] for v in seen] or [np.zeros(1)])
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if any(s.style == "bars" for s in p.series):
        low = min(low, 0.0)
    pad = 0.06 * (high - low) or 0.5
    return (low if low == 0 else low - pad), high + pad


def _panel(p: Panel, box: Box, i: int, names: Sequence[str], small: bool) -> str:
    out = []
    for y in ticks(*box.y, n=3 if small else 4):
        at = float(box.at_y(y))
        out.append(f'<path d="M{box.left:.1f} {at:.1f}H{box.right:.1f}" stroke="{GRID}" fill="none"/>')
        words = f"{100 * y:.3g} %" if p.percent else number(float(y))
        out.append(text(box.left - 6, at + 4, words, anchor="end"))
    marks = "".join(
        text(float(box.at_x(x)), box.bottom + 16, number(float(x)), anchor="middle")
        for x in ticks(*box.x, n=3 if small else 8)
    )
    out.append(f'<g class="x-ticks" data-panel="{i}">{marks}</g>')
    middle = (box.left + box.right) / 2
    if p.title:
        out.append(text(box.left, box.top - 9, p.title, color=INK, more=' font-weight="600"'))
    if p.x_label:
        out.append(text(middle, box.bottom + 33, p.x_label, anchor="middle"))
    if p.y_label:
        x, y = box.left - 44, (box.top + box.bottom) / 2
        turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"'
        out.append(text(x, y, p.y_label, anchor="middle", more=turned))
    drawn = "".join(_series(s, box, p.bar, names.index(s.name) if s.name in names else -1) for s in p.series)
    # a nested svg clips what it holds: no clip path, whose id another figure of the page might have as well
    w, h = box.right - box.left, box.bottom - box.top
    out.append(
        f'<svg x="{box.left:.1f}" y="{box.top - 3:.1f}" width="{w:.1f}" height="{h + 6:.1f}" viewBox="{box.left:.1f} {box.top - 3:.1f} {w:.1f} '
        f'{h + 6:.1f}"><g class="zoom" data-panel="{i}">{drawn}</g></svg>'
    )
    out.append(f'<path d="M{box.left:.1f} {box.bottom:.1f}H{box.right:.1f}" stroke="{QUIET}" fill="none"/>')
    return "".join(out)


def _series(s: Series, box: Box, bar: float, key: int) -> str:
    x, y = box.at_x(s.x), box.at_y(s.y)
    out = ""
    if s.style == "bars":
        assert s.low is not None and s.high is not None
        x0, x1 = box.at_x(np.asarray(s.x) - bar), box.at_x(s.x)
        y0, y1 = box.at_y(s.low), box.at_y(s.high)
        on = np.abs(y0 - y1) > 0.01
        d = "".join(
            f"M{a:.1f} {b:.1f}V{c:.1f}H{e:.1f}V{b:.1f}z"
            for a, b, c, e in zip(x0[on], y0[on], y1[on], x1[on] + 0.15, strict=True)
        )
        out = f'<path d="{d}" fill="{s.color}"/>'
        return f'<g data-key="{key}">{out}</g>'
    if s.low is not None and s.high is not None and len(x) > 1:
        d = _line(np.concatenate([x, x[::-1]]), np.concatenate([box.at_y(s.high), box.at_y(s.low)[::-1]]))
        out += f'<path d="{d}z" fill="{s.color}" opacity="0.16"/>'
    elif s.low is not None and s.high is not None:
        out += "".join(f'<path d="M{a:.1f} {b:.1f}V{c:.1f}" stroke="{s.color}" stroke-width="2"/>'
                       for a, b, c in zip(x, box.at_y(s.low), box.at_y(s.high), strict=True))  # fmt: skip
    if s.style in ("line", "both") and len(x) > 1:
        dash = f' stroke-dasharray="{s.dash}"' if s.dash else ""
        dash += ' opacity="0.45"' if s.width < 1 else ""
        out += (f'<path d="{_line(x, y)}" fill="none" stroke="{s.color}" stroke-width="{s.width:g}" stroke-linejoin="round" '
                f'vector-effect="non-scaling-stroke"{dash}/>')  # fmt: skip
    if s.style in ("dots", "both") or len(x) == 1:
        size = 7 if s.style == "both" else 3.2
        # a dot is a line of length 0 with round ends: its size stays when the panel is stretched
        d = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(x, y, strict=True) if np.isfinite(b))
        fade = ' opacity="0.45"' if s.style == "dots" else ""
        out += (f'<path d="{d}" fill="none" stroke="{s.color}" stroke-width="{size:g}" stroke-linecap="round" '
                f'vector-effect="non-scaling-stroke"{fade}/>')  # fmt: skip
    return f'<g data-key="{key}">{out}</g>'


def _line(x: np.ndarray, y: np.ndarray) -> str:
    """A path through the points, broken where one is not known."""
    out, pen = [], "M"
    for a, b in zip(x, y, strict=True):
        if not np.isfinite(b):
            pen = "M"
            continue
        out.append(f"{pen}{a:.1f} {b:.1f}")
        pen = "L"
    return "".join(out)


def _numbers(p: Panel, box: Box) -> dict[str, object]:
    """What the script needs to read a panel: its box, its ranges, and the series that have a name."""

    def short(values: np.ndarray) -> list[float | None]:
        return [float(f"{v:.4g}") if np.isfinite(v) else None for v in np.asarray(values, float).tolist()]

    series = [{"name": s.name, "color": s.color, "x": short(s.x), "y": short(s.y)} for s in p.series if s.name]
    return {
        "box": [round(v, 1) for v in box[:4]], "x": box.x, "y": box.y, "percent": p.percent, "label": p.x_label,
        "bar": p.bar if any(s.style == "bars" for s in p.series) else 0, "series": series,
    }  # fmt: skip


class Ranged(NamedTuple):
    """One row of `intervals`: a value with its bounds, and, for a change, where it began."""

    label: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    start: float = float("nan")
    color: str = "#2f81d6"
    note: str = ""


def intervals(rows: Sequence[Ranged], label: str, *, x_label: str, percent: bool = False, zero: bool = True) -> str:
    """One line per row: a dot with its interval, or an arrow from start to value; labels to the left, notes to the right."""
    left = 20 + CHARACTER * max((len(r.label) for r in rows), default=0)
    left = min(left, 330.0)
    right = WIDTH - 30 - CHARACTER * max((len(r.note) for r in rows), default=0)
    values = np.array([v for r in rows for v in (r.value, r.low, r.high, r.start) if np.isfinite(v)] or [0.0])
    low, high = float(values.min()), float(values.max())
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    pad = 0.05 * (high - low) or 0.5
    box = Box(left, right, 8, 8 + 26.0 * len(rows), (low - pad, high + pad), (0.0, 1.0))
    out = []
    for x in ticks(*box.x, n=6):
        at = float(box.at_x(x))
        out.append(
            f'<path d="M{at:.1f} {box.top:.1f}V{box.bottom:.1f}" stroke="{QUIET if abs(x) < 1e-12 and zero else GRID}" fill="none"/>'
        )
        words = f"{100 * x:.3g} %".replace("-", "−") if percent else number(float(x))
        out.append(text(at, box.bottom + 16, words, anchor="middle"))
    for i, r in enumerate(rows):
        y = box.top + 26 * i + 13
        shown = r.label if len(r.label) * CHARACTER < left else r.label[: int(left / CHARACTER) - 2] + "…"
        out.append(text(left - 10, y + 4, shown, color=INK, anchor="end"))
        at = float(box.at_x(r.value)) if np.isfinite(r.value) else float("nan")
        if np.isfinite(r.low) and np.isfinite(r.high):
            a, b = float(box.at_x(r.low)), float(box.at_x(r.high))
            out.append(
                f'<path d="M{a:.1f} {y:.1f}H{b:.1f}" stroke="{r.color}" stroke-width="2.5" opacity="0.55" fill="none"/>'
            )
        if np.isfinite(r.start):
            a = float(box.at_x(r.start))
            out.append(f'<path d="M{a:.1f} {y:.1f}H{at:.1f}" stroke="{r.color}" stroke-width="2.5" opacity="0.55" fill="none"/>'
                       f'<circle cx="{a:.1f}" cy="{y:.1f}" r="4" fill="{PAPER}" stroke="{r.color}" stroke-width="1.8"/>')  # fmt: skip
        if np.isfinite(at):
            out.append(f'<circle cx="{at:.1f}" cy="{y:.1f}" r="5" fill="{r.color}"/>')
        if r.note:
            out.append(text(right + 14, y + 4, r.note))
    out.append(text((box.left + box.right) / 2, box.bottom + 34, x_label, anchor="middle"))
    return wrap("".join(out), WIDTH, box.bottom + 42, label)
