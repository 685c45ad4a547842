"""The heat map of prompts over steps: built once, then patched column by column.

A refresh sends the columns that are new (a few kB), not the picture. The whole picture goes out when the order or
the run changes, or when the room for columns is used up and doubles; the rows are sorted anew at those moments
only, and never while the reader has zoomed in, so that a row stays where it is while one looks at it. Of a large
pool a picture row is the mean of neighbouring prompts; zooming in paints the part in view again, down to single ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from bokeh.events import Tap
from bokeh.models import (
    BasicTicker,
    ColorBar,
    ColumnDataSource,
    CustomJSHover,
    FixedTicker,
    HoverTool,
    LinearColorMapper,
    NumeralTickFormatter,
    Range1d,
    Span,
)
from bokeh.palettes import Viridis256

from workbench.views.data.binning import PIXELS, BinnedBeliefs, per_row
from workbench.views.data.records import Prompts
from workbench.views.data.text import one_line
from workbench.views.parts import theme
from workbench.views.parts.plots import canvas

LABELS = 400
"""Prompts whose texts go to the browser for hovering; a larger pool is shown by rank only."""

AHEAD = -1.0
"""Value of cells whose step has not come yet; they are not drawn, unlike prompts of which nothing is known."""

VALUE = """
if (value < 0) { return "not there yet" }
if (value === undefined || isNaN(value)) { return "not known yet" }
return (100 * value).toFixed(0) + " %"
"""
PROMPT = """
const text = names.data.text[Math.floor(special_vars.y) - names.tags[0]]
return text === undefined ? "click to see it" : text
"""


class HeatMap:
    """Prompts x steps in a colour-blind safe scale; a click chooses the prompt, box zoom goes both ways."""

    def __init__(self, steps: Range1d, choose: Callable[[int], None], height: int = 430) -> None:
        self.source = ColumnDataSource({"image": [], "x": [], "y": [], "dw": [], "dh": []})
        self.names = ColumnDataSource({"text": []}, tags=[0])
        self.choose = choose
        self.order = np.empty(0, np.int64)
        self._drawn: tuple | None = None
        self._heat: BinnedBeliefs | None = None
        self._prompts = Prompts()
        self._window = (0, 0)
        self._width = self._columns = 0
        self._waiting = False
        p = canvas(height, steps, "prompt", tall=(0, 1))
        mapper = LinearColorMapper(palette=list(Viridis256), low=0, high=1, nan_color=theme.UNKNOWN, low_color="#0000")
        image = p.image("image", "x", "y", "dw", "dh", source=self.source, color_mapper=mapper)
        bar = ColorBar(
            color_mapper=mapper, width=10, padding=4, label_standoff=6, bar_line_color=None,
            formatter=NumeralTickFormatter(format="0 %"), ticker=FixedTicker(ticks=[0, 0.25, 0.5, 0.75, 1]),
        )  # fmt: skip
        p.add_layout(bar, "right")
        self.mark = Span(dimension="width", line_color=theme.CHOSEN, line_width=2, visible=False, level="overlay")
        p.add_layout(self.mark)
        p.add_tools(
            HoverTool(
                renderers=[image],
                tooltips=[("step", "$x{0}"), ("prompt", "$y{custom}"), ("chance of solving", "@image{custom}")],
                formatters={
                    "$y": CustomJSHover(args={"names": self.names}, code=PROMPT),
                    "@image": CustomJSHover(code=VALUE),
                },
            ),
            "ybox_zoom",
            "ypan",
        )
        p.grid.grid_line_color = None
        p.yaxis.formatter = NumeralTickFormatter(format="0,0")
        p.on_event(Tap, self._tapped)
        p.y_range.on_change("start", self._moved)
        p.y_range.on_change("end", self._moved)
        self.figure = p

    def _tapped(self, event: Tap) -> None:
        if event.y is not None and len(self.order):
            self.choose(int(self.order[int(np.clip(np.floor(event.y), 0, len(self.order) - 1))]))

    def update(self, heat: BinnedBeliefs, prompts: Prompts, kind: str, key: str, amount: np.ndarray) -> None:
        """Draw what is new of `binning`. key: what is drawn (run and belief); kind: one of state.ORDERS.

        amount (N,): what the orders "times asked" and "waste" sort by."""
        again = heat is not self._heat  # another run, or the same one resumed
        self._heat, self._prompts = heat, prompts
        n, other = heat.n_columns, (key, kind) != self._drawn or again
        if other or heat.width != self._width or n > self._room:
            if other or self._whole:
                self._sort(heat, prompts, kind, amount)
            self._paint()
        elif n:
            first = max(min(self._columns, n) - 1, 0)
            block = heat.pixels(self._rows, first, self._pixels)
            self.source.patch({"image": [((0, slice(None), slice(first, n)), block.ravel())]})
        self._drawn, self._width, self._columns = (key, kind), heat.width, n

    def sort_anew(self) -> None:
        """Sort the rows by what is known now, at the next `update`."""
        self._drawn = None

    @property
    def _room(self) -> int:
        image = self.source.data["image"]
        return image[0].shape[1] if len(image) else 0

    @property
    def _whole(self) -> bool:
        y = self.figure.y_range
        return y.start <= 0 and y.end >= len(self.order)

    @property
    def _rows(self) -> np.ndarray:
        return self.order[self._window[0] : self._window[1]]

    @property
    def _pixels(self) -> int:
        """Rows of the picture: the part in view and as much around it, PIXELS for what is in view."""
        return PIXELS if self._window == (0, len(self.order)) else 2 * PIXELS

    def _sort(self, heat: BinnedBeliefs, prompts: Prompts, kind: str, amount: np.ndarray) -> None:
        by_amount = kind in ("times asked", "waste")
        self.order = np.argsort(amount, kind="stable") if by_amount else heat.order(kind, prompts.stratum)
        n = len(self.order)
        self._window = (0, n)
        self.figure.y_range.update(start=0, end=max(n, 1), reset_start=0, reset_end=max(n, 1))
        self._axis(kind, prompts, n)

    def _paint(self) -> None:
        heat, rows = self._heat, self._rows
        assert heat is not None
        block, k = heat.pixels(rows, rows=self._pixels), per_row(len(rows), self._pixels)
        room = 16
        while room < heat.n_columns:
            room *= 2
        room = min(room, heat.limit)
        image = np.full((max(len(block), 1), room), AHEAD, np.float32)
        image[: len(block), : block.shape[1]] = block
        low = self._window[0]
        self.source.data = {
            "image": [image], "x": [0.5], "y": [low], "dw": [room * heat.width], "dh": [max(len(block), 1) * k],
        }  # fmt: skip
        named = rows if len(rows) <= LABELS else []
        self.names.update(data={"text": [one_line(self._prompts.text[i], 70) for i in named]}, tags=[low])

    def zoom(self) -> None:
        """Paint the prompts in view, and half as many below and above, as finely as they can be seen."""
        n = len(self.order)
        if self._heat is None or not n:
            return
        y = self.figure.y_range
        low, high = max(int(np.floor(y.start)), 0), min(int(np.ceil(y.end)), n)
        half = max(high - low, 8) // 2
        inside = self._window[0] <= low and high <= self._window[1]
        if inside and per_row(len(self._rows), self._pixels) <= per_row(2 * half, PIXELS):
            return
        self._window = (max(low - half, 0), min(high + half, n)) if high - low < n else (0, n)
        self._paint()

    def _moved(self, attr: str, old: float, new: float) -> None:
        """The view changed, perhaps many times in one gesture: paint once, a moment later."""
        doc = self.figure.document
        if doc is None:
            self.zoom()
        elif not self._waiting:
            self._waiting = True
            doc.add_timeout_callback(self._settled, 120)

    def _settled(self) -> None:
        self._waiting = False
        self.zoom()

    def _axis(self, kind: str, prompts: Prompts, n: int) -> None:
        axis = self.figure.yaxis[0]
        if kind == "stratum" and n:
            names = prompts.stratum[self.order]
            edge = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
            middle = (edge + np.append(edge[1:], n)) / 2
            big = np.diff(np.append(edge, n)) >= n / 24
            axis.ticker = FixedTicker(ticks=middle[big].tolist())
            axis.major_label_overrides = {
                float(m): one_line(names[e], 14) for m, e, b in zip(middle, edge, big, strict=True) if b
            }
            axis.axis_label = "prompts by stratum"
            return
        axis.major_label_overrides = {}
        axis.ticker = BasicTicker(desired_num_ticks=5, min_interval=1, num_minor_ticks=0)
        label = {
            "difficulty": "prompts, hardest at the bottom",
            "change": "prompts, what fell most at the bottom",
            "times asked": "prompts, least asked at the bottom",
            "waste": "prompts, most tokens wasted at the top",
        }
        axis.axis_label = label.get(kind, "prompts in pool order")

    def select(self, row: int | None) -> None:
        """Mark the row of a prompt."""
        at = np.flatnonzero(self.order == row) if row is not None else []
        self.mark.update(visible=bool(len(at)), location=float(at[0]) + 0.5 if len(at) else 0.0)

    def neighbour(self, row: int | None, by: int) -> int | None:
        """The prompt `by` rows above the given one, in the order drawn."""
        at = np.flatnonzero(self.order == row)
        return int(self.order[int(np.clip(at[0] + by, 0, len(self.order) - 1))]) if len(at) else None
