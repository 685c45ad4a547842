"""Figures of the budget page: what was asked for against what came of it, and what sharing and cutting saved."""

from __future__ import annotations

import numpy as np
from bokeh.models import ColumnDataSource, CustomJSTickFormatter, NumeralTickFormatter, Range1d

from workbench.views.data.budget import OTHER
from workbench.views.data.records import Columns, thinned
from workbench.views.parts import theme
from workbench.views.parts.plots import canvas, hover

KINDS = theme.BUDGET | {OTHER: "#6b6fd0"}
"""Colours of the stacked bars: fates of training rollouts, and what was generated for another purpose."""

PARTS = {"with signal": theme.PASS, "zero advantage": theme.ZERO, "lost": "#d98200", OTHER: "#6b6fd0"}
"""Colours of the parts of a prompt's or stratum's cost."""

LOSS = "#d4512a"
"""Colour of tokens generated beyond what rollouts one by one would have cost."""

LINES = {"asked": theme.CHOSEN, "spent": theme.LEARNING, "useful": theme.PASS}

SHORT = """
for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
  if (Math.abs(tick) >= size) { return Number((tick / size).toPrecision(4)) + unit }
}
return String(tick)
"""
"""Tick labels as `text.count` writes them."""

MOST = 400
"""Points of a line at most; a longer run is drawn as means over neighbouring steps."""


class AskedPlot:
    """Training rollouts of each step: asked for, generated, and trained on with an advantage that is not zero."""

    def __init__(self, steps: Range1d, height: int = 330) -> None:
        self.source = ColumnDataSource({k: [] for k in ("step", *LINES)})
        p = canvas(height, steps, "rollouts per step", fmt=NumeralTickFormatter(format="0,0"))
        p.y_range.start = 0  # type: ignore[union-attr]
        p.varea("step", "useful", "spent", source=self.source, color=theme.LEARNING, alpha=0.13)
        p.varea("step", 0, "useful", source=self.source, color=theme.PASS, alpha=0.22)
        for name, dash in (("spent", "solid"), ("useful", "solid"), ("asked", [5, 4])):
            line = p.line("step", name, source=self.source, color=LINES[name], line_width=2, line_dash=dash)
        tips = [
            ("step", "@step{0,0}"),
            ("asked for", "@asked{0,0.[0]} rollouts"),
            ("generated", "@spent{0,0.[0]} rollouts"),
            ("trained on with signal", "@useful{0,0.[0]} rollouts"),
        ]
        hover(p, [line], *tips, vline=True)
        self.figure = p

    def update(self, a: Columns) -> None:
        """Draw these steps."""
        step, asked, spent, useful = thinned(MOST, a.step, a.asked, a.spent, a.useful)
        self.source.data = {"step": step, "asked": asked, "spent": spent, "useful": useful}


class SavingsPlot:
    """Tokens generated so far, and what the same kept rollouts would have cost one by one."""

    def __init__(self, steps: Range1d, height: int = 190) -> None:
        self.source = ColumnDataSource({k: [] for k in ("step", "generated", "flat", "top", "saved")})
        p = canvas(height, steps, "tokens so far", fmt=CustomJSTickFormatter(code=SHORT))
        p.y_range.start = 0  # type: ignore[union-attr]
        p.varea("step", "generated", "top", source=self.source, color=theme.PASS, alpha=0.2)
        p.varea("step", "flat", "top", source=self.source, color=LOSS, alpha=0.2)
        p.line("step", "flat", source=self.source, color=theme.ASKED, line_width=2, line_dash=[5, 4])
        line = p.line("step", "generated", source=self.source, color=theme.LEARNING, line_width=2.4)
        tips = [
            ("up to step", "@step{0,0}"),
            ("generated", "@generated{0,0} tokens"),
            ("one by one", "@flat{0,0} tokens"),
            ("saved", "@saved{0,0} tokens"),
        ]
        hover(p, [line], *tips, vline=True)
        self.figure = p

    def update(self, s: Columns) -> None:
        """Draw sums up to each step."""
        k = max(1, -(-len(s.step) // MOST))
        at = np.arange(len(s.step) - 1, -1, -k)[::-1]  # the last step is always among them
        made, flat = np.cumsum(s.generated)[at], np.cumsum(s.flat_equivalent)[at]
        top = np.maximum(made, flat)
        self.source.data = {"step": s.step[at], "generated": made, "flat": flat, "top": top, "saved": flat - made}
