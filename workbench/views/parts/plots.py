"""Figures over the steps of a run: each is built once and then given new columns. No data logic, no queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    DataRange1d,
    HoverTool,
    NumeralTickFormatter,
    Range1d,
    WheelZoomTool,
)
from bokeh.plotting import figure

from workbench.views.data.records import WINDOW, Columns, Evaluation, History, Stack, binned, smooth
from workbench.views.data.text import one_line
from workbench.views.parts import theme

if TYPE_CHECKING:
    from workbench.views.data.steering import Command


def percents() -> NumeralTickFormatter:
    """Labels of an axis of shares. A new one for each axis: Bokeh's models belong to one page each."""
    return NumeralTickFormatter(format="0 %")


def steps_range() -> Range1d:
    """The range of steps, shared by all figures of a page so that they zoom and pan together."""
    return Range1d(start=0, end=15.5, min_interval=3)


def follow(steps: Range1d, last: int) -> None:
    """Show all steps up to `last`, unless the reader has zoomed in (the reset tool follows again)."""
    end = max(last, 3) + 0.5
    start = -end / 64  # room for the whole mark of step 0, the evaluation before learning
    follows = not steps.tags or steps.tags == [steps.start, steps.end]
    steps.update(reset_start=start, reset_end=end)
    if follows and steps.tags != [start, end]:
        steps.update(start=start, end=end, tags=[start, end])


def canvas(height: int, steps: Range1d, label: str, *, tall: tuple[float, float] | None = None, fmt: Any = None) -> Any:
    """A quiet Bokeh figure: no title or legend of its own (the card has them), light grid, tools on hover.

    Any: the types of Bokeh know neither an axis' ticker nor what glyphs take beside their columns."""
    p = figure(
        height=height,
        sizing_mode="stretch_width",
        x_range=steps,
        y_range=Range1d(start=tall[0], end=tall[1]) if tall else DataRange1d(),
        tools="xpan,xbox_zoom,reset,save",
        active_drag=None,
        toolbar_location="right",
        min_border=4,
        outline_line_color=None,
    )
    p.toolbar.autohide = True
    p.toolbar.logo = None
    p.add_tools(WheelZoomTool(dimensions="width", modifiers="shift"))
    p.xaxis.axis_label = "training step"
    p.yaxis.axis_label = label
    p.xgrid.grid_line_color = None
    p.xaxis.formatter = NumeralTickFormatter(format="0,0")
    p.xaxis.ticker.mantissas = [1, 2, 5]  # type: ignore[attr-defined]
    p.xaxis.ticker.min_interval = 1  # type: ignore[attr-defined]
    p.axis.minor_tick_line_color = None
    p.yaxis.ticker.desired_num_ticks = 5  # type: ignore[attr-defined]
    if fmt:
        p.yaxis.formatter = fmt
    return p


def hover(p: figure, renderers: Sequence[Any], *tips: tuple[str, str], vline: bool = False) -> None:
    """Readings under the pointer; vline: of all that stands at its x."""
    p.add_tools(HoverTool(renderers=list(renderers), tooltips=list(tips), mode="vline" if vline else "mouse"))


class CurvesPlot:
    """Evaluation (learning), training reward (moves with selection), pass rate and zero-advantage share."""

    def __init__(self, steps: Range1d, height: int = 280) -> None:
        raw = ("step", "reward", "pass_rate", "zero_advantage")
        self.train = ColumnDataSource({k: [] for k in (*raw, *(f"{k}_mean" for k in raw[1:]))})
        self.eval = ColumnDataSource({k: [] for k in ("step", "solved", "low", "high", "n", "reward")})
        self.commands = ColumnDataSource({"step": [], "at": [], "what": [], "who": []})
        p = canvas(height, steps, "share, or mean reward", tall=(0, 1.06))
        colors = {"zero_advantage": theme.ZERO, "pass_rate": theme.PASS, "reward": theme.MOVES}
        for name, color in colors.items():
            p.scatter("step", name, source=self.train, color=color, size=3, alpha=0.35, line_color=None)
            dash = [5, 3] if name == "reward" else "solid"
            line = p.line("step", f"{name}_mean", source=self.train, color=color, width=1.8, line_dash=dash)
        p.varea("step", "low", "high", source=self.eval, color=theme.LEARNING, alpha=0.16)
        p.line("step", "solved", source=self.eval, color=theme.LEARNING, width=3)
        p.segment("step", 0, "step", 1.02, source=self.commands, color=theme.ASKED, line_dash="dotted", line_width=1.2)
        marks = p.scatter("step", 1.025, source=self.commands, marker="inverted_triangle", size=10, color=theme.CHOSEN)
        points = p.scatter("step", "solved", source=self.eval, color=theme.LEARNING, size=9, line_color="white")
        shares = (("pass rate", "@pass_rate{0.0 %}"), ("zero advantage", "@zero_advantage{0.0 %}"))
        hover(p, [line], ("step", "@step{0,0}"), ("training reward", "@reward{0.000}"), *shares, vline=True)
        hover(p, [marks], ("acts from step", "@at{0,0}"), ("what", "@what"), ("who", "@who"))
        solved = (
            ("solved", "@solved{0.0 %} of @n{0,0} rollouts"),
            ("95 % interval, for prompts like these", "@low{0.0 %} to @high{0.0 %}"),
        )
        hover(p, [points], ("evaluation at step", "@step{0,0}"), *solved, ("mean reward", "@reward{0.000}"))
        self.figure = p

    def mark(self, told: Sequence[Command]) -> None:
        """Commands on the time axis, between the steps before and after."""
        made = {
            "step": [t.step - 0.5 for t in told], "at": [t.step for t in told],
            "what": [one_line(t.what, 90) for t in told], "who": [one_line(t.who, 40) for t in told],
        }  # fmt: skip
        if made["what"] != self.commands.data["what"] or made["step"] != self.commands.data["step"]:
            self.commands.data = made

    def update(self, curves: Columns, evaluation: Evaluation) -> None:
        """Append the steps that are new; start again where the run is another one."""
        n = len(self.train.data["step"])
        fresh = {k: getattr(curves, k) for k in ("step", "reward", "pass_rate", "zero_advantage")}
        fresh |= {f"{k}_mean": smooth(fresh[k], WINDOW) for k in ("reward", "pass_rate", "zero_advantage")}
        same = n and n <= len(curves.step) and self.train.data["step"][0] == curves.step[0]
        same = same and np.array_equal(self.train.data["reward"], curves.reward[:n], equal_nan=True)
        if not same or self.train.data["step"][-1] != curves.step[n - 1]:
            self.train.data = fresh
        elif n < len(curves.step):
            self.train.stream({k: v[n:] for k, v in fresh.items()})
        if len(self.eval.data["step"]) != len(evaluation.step) or not same:
            self.eval.data = evaluation._asdict()
        low = np.nanmin(curves.reward, initial=0.0)
        high = np.nanmax(curves.reward, initial=1.0)
        self.figure.y_range.update(start=min(0.0, 1.05 * low), end=max(1.0, high) + 0.02)  # type: ignore[union-attr]


class StackPlot:
    """Stacked bars over steps: where the rollouts, or the seconds, of each step went."""

    def __init__(self, steps: Range1d, colors: dict[str, str], label: str, unit: str, height: int = 220) -> None:
        self.colors, self.unit = colors, unit
        self.source = ColumnDataSource({"step": [], "width": [], "middle": [], **{k: [] for k in colors}})
        p = canvas(height, steps, label, fmt=NumeralTickFormatter(format="0,0.[000]"))
        p.y_range.start = 0  # type: ignore[union-attr]
        bars = p.vbar_stack(
            list(colors), x="middle", width="width", color=list(colors.values()), source=self.source, line_color=None
        )
        digits = "0,0.[0]" if unit == "rollouts" else "0.[000]"
        for bar, kind in zip(bars, colors, strict=True):
            hover(p, [bar], ("up to step", "@step{0,0}"), (kind, f"@{{{kind}}}{{{digits}}} {unit} per step"))
        self.figure = p

    def update(self, stack: Stack) -> None:
        """Draw these amounts in at most 120 bars, each the mean over its steps."""
        bars = binned(stack)
        zero = np.zeros(len(bars.step))
        self.source.data = {
            "step": bars.step,
            "middle": bars.step - (bars.width - 1) / 2,
            "width": np.full(len(bars.step), 0.86 * bars.width),
            **{kind: bars.amount.get(kind, zero) for kind in self.colors},
        }


def stairs(history: History, last_step: int) -> dict[str, np.ndarray]:
    """A prompt's beliefs as the corners of stairs: a belief holds until the next one, the last until last_step.

    Bokeh's own step glyphs are not used: its stepped area never returns from an empty column (3.9.2)."""
    step = np.asarray(history.step, float)
    if not len(step):
        return dict.fromkeys(("step", "mean", "low", "high"), step)
    until = np.append(step[1:], max(last_step, step[-1]))
    corners = {k: np.repeat(np.asarray(getattr(history, k), float), 2) for k in ("mean", "low", "high")}
    return {"step": np.stack([step, until], axis=1).ravel(), **corners}


class PromptPlot:
    """One prompt: the posterior mean with its band, and the solved share of each time it was asked."""

    def __init__(self, steps: Range1d, height: int = 250) -> None:
        self.belief = ColumnDataSource({k: [] for k in ("step", "mean", "low", "high")})
        self.outcome = ColumnDataSource({k: [] for k in ("step", "asked", "solved", "share", "size")})
        p = canvas(height, steps, "chance of solving", tall=(-0.04, 1.04), fmt=percents())
        p.varea("step", "low", "high", source=self.belief, color=theme.LEARNING, alpha=0.18)
        mean = p.line("step", "mean", source=self.belief, color=theme.LEARNING, width=2.2)
        dots = p.scatter(
            "step", "share", size="size", source=self.outcome, color=theme.MOVES, alpha=0.8, line_color="white"
        )
        hover(p, [dots], ("step", "@step{0,0}"), ("solved", "@solved{0} of @asked{0} asked"))
        band = (("mean", "@mean{0.0 %}"), ("band", "@low{0.0 %} to @high{0.0 %}"))
        hover(p, [mean], ("step", "@step{0,0}"), *band, vline=True)
        self.figure = p

    def update(self, history: History, last_step: int) -> None:
        """Draw this prompt; the last belief holds until the last step."""
        self.belief.data = stairs(history, last_step)  # type: ignore[assignment]
        asked = np.maximum(history.asked, 1)
        self.outcome.data = {
            "step": history.asked_step,
            "asked": history.asked,
            "solved": history.solved,
            "share": history.solved / asked,
            "size": 5 + 1.6 * np.sqrt(history.asked),
        }
