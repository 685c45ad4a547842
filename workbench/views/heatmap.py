"""The heat map of prompts over steps: built once, then patched column by column.

A refresh sends the columns that are new (a few kB), not the picture. The whole picture goes out when the order or
the run changes, or when the room for columns is used up and doubles; the rows are sorted anew at those moments
only, so that a row stays where it is while one looks at it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from bokeh.events import Tap
from bokeh.models import (
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

from workbench.views import theme
from workbench.views.heat import Heat, per_row
from workbench.views.plots import canvas
from workbench.views.tables import Prompts
from workbench.views.text import one_line

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
const k = Math.floor(special_vars.y)
const text = names.data.text[k]
return text === undefined ? "click to see it" : text
"""


class HeatMap:
    """Prompts x steps in a colour-blind safe scale; a click chooses the prompt, wheel and box zoom both ways."""

    def __init__(self, steps: Range1d, choose: Callable[[int], None], height: int = 430) -> None:
        self.source = ColumnDataSource({"image": [], "x": [], "y": [], "dw": [], "dh": []})
        self.names = ColumnDataSource({"text": []})
        self.choose = choose
        self.order = np.empty(0, np.int64)
        self._drawn: tuple | None = None
        self._columns = 0
        p = canvas(height, steps, "prompt", tall=(0, 1))
        mapper = LinearColorMapper(Viridis256, low=0, high=1, nan_color=theme.UNKNOWN, low_color="#0000")
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
        p.on_event(Tap, self._tapped)
        self.figure = p

    def _tapped(self, event: Tap) -> None:
        if event.y is not None and len(self.order):
            self.choose(int(self.order[int(np.clip(np.floor(event.y), 0, len(self.order) - 1))]))

    def update(self, heat: Heat, prompts: Prompts, kind: str, key: str, visits: np.ndarray) -> None:
        """Draw what is new of `heat`. key: what is drawn (run and belief); kind: one of state.ORDERS."""
        drawn = (key, kind, heat.width)
        n = heat.n_columns
        if drawn != self._drawn or n > self._room:
            self._redraw(heat, prompts, kind, visits)
        elif n:
            first = max(min(self._columns, n) - 1, 0)
            block = heat.pixels(self.order, first)
            cells = (0, slice(None), slice(first, n))
            self.source.patch({"image": [(cells, block.ravel())]})
        self._drawn, self._columns = drawn, n

    @property
    def _room(self) -> int:
        image = self.source.data["image"]
        return image[0].shape[1] if len(image) else 0

    def _redraw(self, heat: Heat, prompts: Prompts, kind: str, visits: np.ndarray) -> None:
        self.order = np.argsort(visits, kind="stable") if kind == "times asked" else heat.order(kind, prompts.stratum)
        block = heat.pixels(self.order)
        n_prompts, k = len(self.order), per_row(len(self.order))
        room = 16
        while room < heat.n_columns:
            room *= 2
        room = min(room, heat.limit)
        image = np.full((max(len(block), 1), room), AHEAD, np.float32)
        image[: len(block), : block.shape[1]] = block
        self.source.data = {
            "image": [image], "x": [0.5], "y": [0], "dw": [room * heat.width], "dh": [max(len(block), 1) * k],
        }  # fmt: skip
        few = n_prompts <= LABELS
        self.names.data = {"text": [one_line(prompts.text[i], 70) for i in self.order] if few else []}
        self.figure.y_range.update(start=0, end=max(n_prompts, 1), reset_start=0, reset_end=max(n_prompts, 1))
        self._axis(kind, prompts, n_prompts)

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
        ticks = np.unique(np.linspace(0, n, 5).round()).tolist() if n else []
        axis.ticker = FixedTicker(ticks=ticks)
        label = {
            "difficulty": "prompts, hardest at the bottom",
            "change": "prompts, what fell most at the bottom",
            "times asked": "prompts, least asked at the bottom",
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
