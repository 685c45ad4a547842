"""Figures of the difficulty page: what was asked of a prompt, calibration, and where the pool stands over the steps."""

from __future__ import annotations

import numpy as np
from bokeh.models import ColumnDataSource, FixedTicker, NumeralTickFormatter, Range1d, Span
from bokeh.plotting import figure

from workbench.views.data.difficulty import BINS, EDGE, Calibration, Frontier
from workbench.views.data.records import Columns
from workbench.views.parts import theme
from workbench.views.parts.plots import canvas, hover, percents

ZONES = {
    "too hard": theme.ZERO,
    "frontier": theme.PASS,
    "too easy": "#7fbdea",
    "not known": "rgba(128, 134, 142, 0.35)",
}
"""Colours of the zones of the frontier: those of groups that none solved, that taught, that all solved."""

TICKS = [0, 0.25, 0.5, 0.75, 1]
"""Where an axis of shares has its numbers."""

OUTCOMES = {"solved": theme.PASS, "not solved": theme.ZERO, "not verified": theme.ASKED}


def plain(height: int, x: tuple[float, float], y: tuple[float, float] | None, across: str, up: str) -> figure:
    """A quiet figure whose axes are not steps."""
    p = canvas(height, Range1d(start=x[0], end=x[1]), up, tall=y)
    p.tools = [t for t in p.tools if type(t).__name__ == "SaveTool"]
    p.xaxis.axis_label = across
    return p


class AskedPlot:
    """One prompt: rollouts asked for in each step, by what came back."""

    def __init__(self, steps: Range1d, height: int = 130) -> None:
        self.source = ColumnDataSource({k: [] for k in ("step", "asked", "width", *OUTCOMES)})
        p = canvas(height, steps, "rollouts")
        p.y_range.start = 0  # type: ignore[union-attr]
        bars = p.vbar_stack(
            list(OUTCOMES), x="step", width="width", color=list(OUTCOMES.values()), source=self.source, line_color=None
        )
        asked = p.scatter(
            "step", "asked", source=self.source, marker="dash", size=6, color=theme.CHOSEN, line_width=1.5
        )
        tips = [("step", "@step{0,0}"), ("asked", "@asked{0,0} rollouts"), *((k, f"@{{{k}}}{{0,0}}") for k in OUTCOMES)]
        hover(p, [*bars, asked], *tips)
        self.figure = p

    def update(self, asks: Columns, last_step: int) -> None:
        """Draw this prompt; bars are as wide as a step, and never thinner than can be seen."""
        self.source.data = {
            "step": asks.step,
            "asked": asks.asked,
            "width": np.full(len(asks.step), max(0.86, last_step / 160)),
            "solved": asks.solved,
            "not solved": asks.tried - asks.solved,
            "not verified": asks.rollouts - asks.tried,
        }


class CalibrationPlot:
    """Believed against observed share solved, with 95 % intervals; the size of a point tells the rollouts."""

    def __init__(self, height: int = 300) -> None:
        self.source = ColumnDataSource({k: [] for k in ("believed", "observed", "low", "high", "tries", "size")})
        p = plain(height, (-0.04, 1.06), (-0.04, 1.06), "believed before the step", "solved in the step")
        p.line([0, 1], [0, 1], color=theme.ASKED, line_dash=[4, 4], line_width=1.5)
        p.segment("believed", "low", "believed", "high", source=self.source, color=theme.LEARNING, line_width=2)
        p.line("believed", "observed", source=self.source, color=theme.LEARNING, alpha=0.45)
        dots = p.scatter(
            "believed", "observed", size="size", source=self.source, color=theme.LEARNING, line_color="white"
        )
        p.axis.formatter, p.axis.ticker = percents(), FixedTicker(ticks=TICKS)
        p.xgrid.grid_line_color = p.ygrid[0].grid_line_color
        tips = [
            ("believed", "@believed{0.0 %}"),
            ("solved", "@observed{0.0 %} of @tries{0,0} rollouts"),
            ("95 % interval", "@low{0.0 %} to @high{0.0 %}"),
        ]
        hover(p, [dots], *tips)
        self.figure = p

    def update(self, c: Calibration) -> None:
        """Draw these bins."""
        most = max(c.tries.max(initial=0), 1)
        self.source.data = {**c._asdict(), "size": 6 + 12 * np.sqrt(c.tries / most)}


class ZonesPlot:
    """Shares of the pool that are too hard, at the frontier, too easy or not known, over the steps."""

    def __init__(self, steps: Range1d, height: int = 290) -> None:
        self.source = ColumnDataSource({"step": [], **{k: [] for k in ZONES}})
        p = canvas(height, steps, "share of the prompts", tall=(0, 1), fmt=percents())
        p.varea_stack(list(ZONES), x="step", color=list(ZONES.values()), source=self.source, alpha=0.85)
        top = p.line("step", "frontier", source=self.source, alpha=0)
        tips = [("step", "@step{0,0}"), *((k, f"@{{{k}}}{{0.0 %}}") for k in ZONES)]
        hover(p, [top], *tips, vline=True)
        self.mark = Span(dimension="height", line_color=theme.CHOSEN, line_width=2, level="overlay")
        p.add_layout(self.mark)
        self.figure = p

    def update(self, frontier: Frontier, step: int) -> None:
        """Draw all columns, and mark the step whose histogram is shown."""
        self.source.data = {"step": frontier.step, **frontier.zones}
        self.mark.location = float(step)


class HistogramPlot:
    """How many prompts are believed to be how hard after one step, over those of the first step as an outline."""

    def __init__(self, height: int = 240) -> None:
        edge = np.linspace(0, 1, BINS + 1)
        low = round(EDGE * BINS)
        names = ["too hard"] * low + ["frontier"] * (BINS - 2 * low) + ["too easy"] * low
        fixed = {"left": edge[:-1], "right": edge[1:], "zone": names, "color": [ZONES[z] for z in names]}
        self.source = ColumnDataSource({**fixed, "n": np.zeros(BINS), "share": np.zeros(BINS)})
        self.first = ColumnDataSource({"x": np.repeat(edge, 2), "n": np.zeros(2 * BINS + 2)})
        p = plain(height, (0, 1), (0, 1), "believed chance of solving", "prompts")
        bars = p.quad("left", "right", "n", 0, source=self.source, color="color", alpha=0.85, line_color=None)
        p.line("x", "n", source=self.first, color=theme.ASKED, line_width=1.5, line_dash=[4, 3])
        p.xaxis.formatter, p.yaxis.formatter = percents(), NumeralTickFormatter(format="0,0")
        p.xaxis.ticker = FixedTicker(ticks=TICKS)
        tips = [("believed", "@left{0 %} to @right{0 %}"), ("prompts", "@n{0,0} (@share{0.0 %})"), ("zone", "@zone")]
        hover(p, [bars], *tips)
        self.figure = p

    def update(self, counts: np.ndarray, first: np.ndarray) -> None:
        """counts, first: (BINS + 1,) as `Frontier.at` gives them."""
        n, known = counts[:BINS], max(counts.sum(), 1)
        self.source.data = {**self.source.data, "n": n, "share": n / known}  # type: ignore[dict-item]
        # of the first step mostly nothing is known, or one same belief of all: it may be cut off, the bars may not
        self.first.data = {**self.first.data, "n": np.concatenate([[0], np.repeat(first[:BINS], 2), [0]])}  # type: ignore[dict-item]
        self.figure.y_range.end = max(1.15 * n.max(initial=0), 1)  # type: ignore[union-attr]
