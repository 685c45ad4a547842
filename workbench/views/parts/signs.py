"""Pictures of advantage signs: rates over steps, two estimators by group size, and one group in the plane of reward and
advantage. Each figure is built once and then given new columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.models import BoxAnnotation, ColumnDataSource, FactorRange, Range1d, Span, TeeHead, Whisker
from bokeh.plotting import figure
from bokeh.transform import dodge

from workbench.views.data.records import WINDOW
from workbench.views.data.signs import COUNTS, RATES, GroupReference, Rates, rate
from workbench.views.data.text import one_line, percent
from workbench.views.data.tokens import Sibling
from workbench.views.parts import theme
from workbench.views.parts.plots import canvas, hover, percents
from workbench.views.parts.signs_text import COLORS, LABELS


class RatesPlot:
    """Hard, vanish and spurious rates over the steps, from counts summed over WINDOW steps."""

    def __init__(self, steps: Range1d, height: int = 260) -> None:
        self.source = ColumnDataSource({k: [] for k in ("step", *RATES, *(f"{k}_of" for k in RATES))})
        p = canvas(height, steps, "share of rollouts", tall=(-0.02, 1.02), fmt=percents())
        self.dots = []
        for name, color in COLORS.items():
            line = p.line("step", name, source=self.source, color=color, width=2.4)
            self.dots.append(p.scatter("step", name, source=self.source, color=color, size=4))
            hover(p, [line], ("up to step", "@step{0,0}"), (name, f"@{name}{{0.0 %}} of @{name}_of{{0,0}} rollouts"))
        self.figure = p

    def update(self, rates: Rates) -> None:
        """Draw the rates of these counts."""
        keys, sums = rates.by("step")
        step = np.array([k[0] for k in keys], float)
        total = np.concatenate([np.zeros((1, len(COUNTS))), np.cumsum(sums, axis=0)])
        first = np.maximum(np.arange(len(keys)) - WINDOW + 1, 0)
        wide = total[1:] - total[first]
        columns = {"step": step}
        for name, whole in RATES.items():
            columns[name], columns[f"{name}_of"] = rate(wide, name), wide[:, COUNTS.index(whole)]
        self.source.data = columns  # type: ignore[assignment]
        for dots in self.dots:  # a line of one step would not be seen; of a long run they hide it
            dots.visible = len(step) <= 60


class PairPlot:
    """A rate of two estimators at several group sizes, with 95 % intervals over prompts."""

    def __init__(self, height: int = 250) -> None:
        self.figure = p = figure(
            height=height, sizing_mode="stretch_width", x_range=FactorRange(), y_range=Range1d(start=-0.02, end=1.02), tools="",
            toolbar_location=None, outline_line_color=None, min_border=4,
        )  # fmt: skip
        p.xaxis.axis_label, p.yaxis.axis_label = "rollouts per group", "share of rollouts"
        p.yaxis.formatter = percents()
        p.xgrid.grid_line_color = None
        self.sources = []
        for k, (color, marker) in enumerate(((theme.LEARNING, "circle"), (theme.MOVES, "square"))):
            source = ColumnDataSource({c: [] for c in ("size", "value", "low", "high", "name")})
            x = dodge("size", -0.12 if not k else 0.12, range=p.x_range)
            ends: dict[str, Any] = {e: TeeHead(size=7, line_color=color) for e in ("upper_head", "lower_head")}
            p.add_layout(
                Whisker(base=x, lower="low", upper="high", source=source, line_color=color, line_width=2, **ends)
            )
            dots = p.scatter(x, "value", source=source, color=color, marker=marker, size=9, line_color="white")
            rate = ("rate", "@value{0.0 %} (@low{0.0 %} to @high{0.0 %})")
            hover(p, [dots], ("estimator", "@name"), ("group size", "@size"), rate)
            self.sources.append(source)

    def update(self, rows: Sequence[Mapping[str, object]], names: Sequence[str], of: str) -> None:
        """Draw rate `of` of the two estimators named; rows as `compared` makes them."""
        sizes = sorted({int(r["size"]) for r in rows})  # type: ignore[call-overload]
        self.figure.x_range.factors = [str(g) for g in sizes]  # type: ignore[union-attr]
        top = max([float(r[f"{of}_high"]) for r in rows], default=1.0)  # type: ignore[arg-type]
        self.figure.y_range.update(start=-0.03 * max(top, 0.02), end=1.08 * max(top, 0.02))  # type: ignore[union-attr]
        for source, name in zip(self.sources, [*names, "", ""][:2], strict=True):
            mine = [r for r in rows if r["estimator"] == name]
            source.data = {
                "size": [str(r["size"]) for r in mine], "value": [r[of] for r in mine], "low": [r[f"{of}_low"] for r in mine],
                "high": [r[f"{of}_high"] for r in mine], "name": [name] * len(mine),
            }  # fmt: skip


class StripPlot:
    """A group as points of reward and advantage. Right of the reference a rollout should be pushed up, left of it down:
    the shaded quarters are where advantages point the wrong way."""

    def __init__(self, height: int = 300) -> None:
        names = ("reward", "advantage", "color", "marker", "id", "label", "chance", "n", "size")
        self.source = ColumnDataSource({k: [] for k in names})
        self.figure = p = figure(
            height=height, sizing_mode="stretch_width", x_range=Range1d(start=-0.05, end=1.05), y_range=Range1d(start=-2, end=2), tools="save,reset",
            toolbar_location="right", outline_line_color=None, min_border=4,
        )  # fmt: skip
        p.toolbar.autohide, p.toolbar.logo = True, None
        p.xaxis.axis_label, p.yaxis.axis_label = "reward", "advantage"
        p.axis.minor_tick_line_color = None
        self.wrong = [BoxAnnotation(fill_color=COLORS["hard"], fill_alpha=0.13, line_color=None) for _ in range(2)]
        self.interval = BoxAnnotation(
            fill_color=theme.LEARNING, fill_alpha=0.08, line_color=theme.LEARNING, line_alpha=0.5, line_dash=[2, 4]
        )
        self.reference = Span(dimension="height", line_color=theme.LEARNING, line_width=2.4)
        self.baseline = Span(dimension="height", line_color=theme.MOVES, line_width=2.2, line_dash=[6, 4])
        zero = Span(location=0, dimension="width", line_color="#8b949e", line_width=1)
        for mark in (*self.wrong, self.interval, zero, self.reference, self.baseline):
            p.add_layout(mark)
        style = {"color": "color", "marker": "marker", "size": "size", "line_width": 2, "fill_alpha": 0.85}
        dots = p.scatter("reward", "advantage", source=self.source, **style)
        place = (("reward", "@reward{0.000}"), ("advantage", "@advantage{0.000}"))
        label = (("label", "@label"), ("chance of pointing the wrong way", "@chance"))
        hover(p, [dots], ("rollouts", "@n{0}, first: @id"), *place, *label)

    def update(self, rows: Sequence[Sibling], found: GroupReference | None) -> None:
        """Draw these rollouts and what they are held against."""
        points: dict[tuple, list[int]] = {}
        for i, s in enumerate(rows):
            if s.reward is not None:
                label = found.labels[i] if found else "ambiguous"
                points.setdefault((s.reward, s.advantage or 0.0, label), []).append(i)
        columns: dict[str, list] = {str(k): [] for k in self.source.data}
        for (reward, advantage, label), here in points.items():
            color, marker = LABELS[label][:2]
            chance = found.chance[here[0]] if found else float("nan")
            values = (reward, advantage, color, marker, one_line(rows[here[0]].id, 40), label.replace("_", " "),
                      "not told" if chance != chance else percent(chance), len(here), 10 + 4 * np.sqrt(len(here) - 1))  # fmt: skip
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)
        self.source.data = columns  # type: ignore[assignment]
        baselines = (s.baseline for s in rows if s.baseline is not None and s.baseline == s.baseline)
        self._frame(columns, found, next(baselines, None))

    def _frame(self, columns: dict[str, list], found: GroupReference | None, baseline: float | None) -> None:
        known = [*columns["reward"], *([found.value] if found else []), *([] if baseline is None else [baseline])]
        low, high = min(known or [0.0]), max(known or [1.0])
        room = max(0.08 * (high - low), 0.02)
        tall = 1.2 * max([abs(a) for a in columns["advantage"]] or [1.0]) or 1.0
        self.figure.x_range.update(start=low - room, end=high + room)  # type: ignore[union-attr]
        self.figure.y_range.update(start=-tall, end=tall)  # type: ignore[union-attr]
        self.baseline.update(location=baseline, visible=baseline is not None)
        for mark in (self.reference, self.interval, *self.wrong):
            mark.visible = found is not None
        if found is not None:
            self.reference.location = found.value
            self.interval.update(left=found.low, right=found.high)
            self.wrong[0].update(right=found.value, bottom=0)
            self.wrong[1].update(left=found.value, top=0)
