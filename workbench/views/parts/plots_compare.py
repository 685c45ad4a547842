"""The figure of the compare page: one line and seed band a pipeline, a thin line a run, over what each had cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from bokeh.models import ColumnDataSource, HoverTool, NumeralTickFormatter, Range1d, Span

from workbench.views.data.compare import SHARES, Compared
from workbench.views.data.text import one_line
from workbench.views.parts import theme
from workbench.views.parts.plots import canvas

COLORS = ("#2f81d6", "#d98200", "#13a082", "#a9669f", "#d4512a", "#7fbdea", "#b8a02c", "#6b6fd0")
"""Colours of pipelines in the order of the comparison; the ninth takes the first again."""

DASHES = ("solid", "dashed", "dotted", "dashdot")
"""Dashes of pipelines that take a colour for the second, third, fourth time."""

MOST = 250
"""Points of a line at most."""

LEAST = 0.04
"""Shares that the height of the figure shows at least: less would draw chance large."""

AROUND = 1.3
"""How far beyond the equal cost the figure shows at first."""

UNITS = {"rollouts": "rollouts generated", "tokens": "tokens generated", "seconds": "seconds of training"}


def line_styles(labels: list[str]) -> dict[str, tuple[str, str]]:
    """(colour, dash) of each pipeline."""
    n = len(COLORS)
    return {label: (COLORS[i % n], DASHES[i // n % len(DASHES)]) for i, label in enumerate(labels)}


class ComparePlot:
    """Curves over cost; the dashed line marks the cost that all runs reached."""

    def __init__(self, height: int = 430) -> None:
        self.bands = ColumnDataSource({k: [] for k in ("xs", "ys", "color")})
        self.runs = ColumnDataSource({k: [] for k in ("xs", "ys", "color", "dash", "label", "run", "alpha", "width")})
        self.means = ColumnDataSource({k: [] for k in ("xs", "ys", "color", "dash", "label", "seeds")})
        p = canvas(height, Range1d(start=0, end=1), "", tall=(0, 1))
        p.tools = [t for t in p.tools if type(t).__name__ in ("SaveTool", "ResetTool", "BoxZoomTool", "PanTool")]
        p.patches("xs", "ys", source=self.bands, fill_color="color", fill_alpha=0.11, line_color=None)
        thin = p.multi_line(
            "xs", "ys", source=self.runs, color="color", line_dash="dash", alpha="alpha", line_width="width"
        )
        thick = p.multi_line("xs", "ys", source=self.means, color="color", line_dash="dash", line_width=3)
        self.equal = Span(dimension="height", line_color=theme.ASKED, line_dash=[5, 4], line_width=1.5, visible=False)
        p.add_layout(self.equal)
        value = [("cost", "$x{0,0}"), ("value", "$y{0.000}")]
        p.add_tools(
            HoverTool(renderers=[thick], tooltips=[("pipeline", "@label"), ("seeds", "@seeds"), *value], line_policy="interp"),
            HoverTool(renderers=[thin], tooltips=[("run", "@run"), ("pipeline", "@label"), *value], line_policy="interp"),
        )  # fmt: skip
        self.figure = p

    def update(self, made: Compared, styles: Mapping[str, tuple[str, str]]) -> None:
        """Draw this comparison, or single curves where there is none."""
        c, p = made.comparison, self.figure
        pieces = [thin(curve.x, curve.pass_rate) for curve in made.curves]
        self.runs.data = {
            "xs": [x for x, _ in pieces],
            "ys": [y for _, y in pieces],
            "color": [styles[curve.label][0] for curve in made.curves],
            "dash": [styles[curve.label][1] for curve in made.curves],
            "label": [one_line(curve.label, 80) for curve in made.curves],
            "run": [one_line(curve.run, 80) for curve in made.curves],
            "alpha": [0.45 if c else 1.0] * len(made.curves),  # alone, they are what is looked at
            "width": [1.2 if c else 2.4] * len(made.curves),
        }
        labels = c.labels if c else []
        made_bands = {label: c.band(label) for label in labels} if c else {}
        sure = [label for label in labels if np.isfinite(made_bands[label][1]).all()]
        around = [np.concatenate([c.x, c.x[::-1]]) for _ in sure] if c else []
        self.bands.data = {
            "xs": around,
            "ys": [np.concatenate([made_bands[k][1], made_bands[k][2][::-1]]) for k in sure],
            "color": [styles[k][0] for k in sure],
        }
        self.means.data = {
            "xs": [c.x for _ in labels] if c else [],
            "ys": [made_bands[k][0] for k in labels],
            "color": [styles[k][0] for k in labels],
            "dash": [styles[k][1] for k in labels],
            "label": [one_line(k, 80) for k in labels],
            "seeds": [len(c.of(k)) for k in labels] if c else [],
        }
        self.equal.update(visible=c is not None, location=float(c.x[-1]) if c else 0.0)
        share = made.metric in SHARES
        p.yaxis.formatter = NumeralTickFormatter(format="0.[0] %") if share else NumeralTickFormatter(format="0.00")
        p.yaxis.axis_label, p.xaxis.axis_label = made.metric, UNITS[made.axis]
        self._frame(pieces, share, float(c.x[-1]) if c else None)

    def _frame(self, pieces: list[tuple[np.ndarray, np.ndarray]], share: bool, equal: float | None) -> None:
        """Show the range that is compared and a little more; the reset tool shows all of the longest run."""
        end = max((float(x[-1]) for x, _ in pieces), default=1.0) * 1.02
        shown = end if equal is None else min(end, AROUND * equal)
        bands = list(self.bands.data["ys"])
        whole = [y for _, y in pieces] + bands
        near = [np.append(y[x <= shown], np.interp(shown, x, y)) for x, y in pieces] + bands
        low, high = _height(near, share)
        all_low, all_high = _height(whole, share)
        self.figure.y_range.update(start=low, end=high, reset_start=all_low, reset_end=all_high)  # type: ignore[union-attr]
        x = self.figure.x_range
        if x.tags != [shown, end]:  # type: ignore[union-attr]
            x.update(start=0, end=shown, reset_start=0, reset_end=end, tags=[shown, end])  # type: ignore[union-attr]


def _height(ys: list[np.ndarray], share: bool) -> tuple[float, float]:
    """The range of these values with a little room; of shares no less than LEAST."""
    low, high = (float(f(np.concatenate(ys))) for f in (np.min, np.max)) if ys else (0.0, 1.0)
    room = max(0.06 * (high - low), (LEAST - (high - low)) / 2 if share else 0.0) or 0.05
    low, high = low - room, high + room
    return (max(low, -0.01), min(high, 1.01)) if share else (low, high)


def thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most MOST points of a line, the last one among them."""
    k = max(1, -(-len(x) // MOST))
    at = np.arange(len(x) - 1, -1, -k)[::-1]
    return x[at], y[at]
