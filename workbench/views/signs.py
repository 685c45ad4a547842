"""Pictures of advantage signs: rates over steps, two estimators by group size, and one group in the plane of reward and
advantage. Each figure is built once and then given new columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from bokeh.models import BoxAnnotation, ColumnDataSource, FactorRange, HoverTool, Range1d, Span, TeeHead, Whisker
from bokeh.plotting import figure
from bokeh.transform import dodge

from workbench.numerics.flips import TAU, binary_vanish
from workbench.views import theme
from workbench.views.cards import empty, head, key
from workbench.views.data_signs import BINS, COUNTS, RATES, Against, Rates, rate
from workbench.views.data_signs import Span as Levels
from workbench.views.data_tokens import Sibling
from workbench.views.plots import PERCENT, canvas
from workbench.views.text import count, html, one_line, percent

COLORS = {"hard": "#d4512a", "vanish": "#a9669f", "spurious": "#d98200"}

SAID = {
    "ok": ("#13a082", "circle", "●", "ok: pushed the right way"),
    "hard": ("#d4512a", "x", "✕", "hard flip: pushed the wrong way"),
    "vanish": ("#a9669f", "circle_dot", "◉", "vanish: should be pushed, is not"),
    "spurious": ("#d98200", "diamond", "◆", "spurious: should not be pushed, is"),
    "ambiguous": ("#8b949e", "triangle", "▲", "ambiguous: too close to the reference to tell"),
    "both_zero": ("#8b949e", "dot", "·", "rightly not pushed"),
    "out of the loss": ("#8b949e", "cross", "+", "out of the loss"),
}
"""Label of a rollout -> colour, marker, the marker as a sign, words."""

KINDS = {
    "pool": "a pool: the mean of 64 or more rollouts of the same policy version",
    "posterior": "a belief: what the earlier steps of each prompt say, older ones fading; rates are expected shares",
    "small pool": "a small pool: the group itself, mostly, which cannot contradict it much",
}
"""Kind of reference -> words."""

WINDOW = 9
"""Steps whose counts are summed for a point of a line."""


class RatesPlot:
    """Hard, vanish and spurious rates over the steps, from counts summed over WINDOW steps."""

    def __init__(self, steps: Range1d, height: int = 260) -> None:
        self.source = ColumnDataSource({k: [] for k in ("step", *RATES, *(f"{k}_of" for k in RATES))})
        p = canvas(height, steps, "share of rollouts", tall=(-0.02, 1.02), fmt=PERCENT)
        self.dots = []
        for name, color in COLORS.items():
            line = p.line("step", name, source=self.source, color=color, width=2.4)
            self.dots.append(p.scatter("step", name, source=self.source, color=color, size=4))
            p.add_tools(
                HoverTool(
                    renderers=[line],
                    tooltips=[("up to step", "@step{0,0}"), (name, f"@{name}{{0.0 %}} of @{name}_of{{0,0}} rollouts")],
                )
            )
        self.figure = p

    def update(self, rates: Rates) -> None:
        """Draw the rates of these counts."""
        keys, sums = rates.by("step")
        step = np.array([k[0] for k in keys], float)
        total = (
            np.concatenate([np.zeros((1, len(COUNTS))), np.cumsum(sums, axis=0)])
            if len(keys)
            else np.zeros((1, len(COUNTS)))
        )
        first = np.maximum(np.arange(len(keys)) - WINDOW + 1, 0)
        wide = total[1:] - total[first]
        columns = {"step": step}
        for name, whole in RATES.items():
            columns[name], columns[f"{name}_of"] = rate(wide, name), wide[:, COUNTS.index(whole)]
        self.source.data = columns
        for dots in self.dots:  # a line of one step would not be seen; of a long run they hide it
            dots.visible = len(step) <= 60


class PairPlot:
    """A rate of two estimators at several group sizes, with 95 % intervals over prompts."""

    def __init__(self, height: int = 250) -> None:
        self.figure = p = figure(
            height=height, sizing_mode="stretch_width", x_range=FactorRange(), y_range=Range1d(-0.02, 1.02), tools="",
            toolbar_location=None, outline_line_color=None, min_border=4,
        )  # fmt: skip
        p.xaxis.axis_label, p.yaxis.axis_label = "rollouts per group, G", "share of rollouts"
        p.yaxis.formatter = PERCENT
        p.xgrid.grid_line_color = None
        self.sources = []
        for k, (color, marker) in enumerate(((theme.LEARNING, "circle"), (theme.MOVES, "square"))):
            source = ColumnDataSource({c: [] for c in ("size", "value", "low", "high", "name")})
            x = dodge("size", -0.12 if not k else 0.12, range=p.x_range)
            ends = {e: TeeHead(size=7, line_color=color) for e in ("upper_head", "lower_head")}
            p.add_layout(
                Whisker(base=x, lower="low", upper="high", source=source, line_color=color, line_width=2, **ends)
            )
            dots = p.scatter(x, "value", source=source, color=color, marker=marker, size=9, line_color="white")
            p.add_tools(
                HoverTool(
                    renderers=[dots],
                    tooltips=[
                        ("estimator", "@name"),
                        ("G", "@size"),
                        ("rate", "@value{0.0 %} (@low{0.0 %} to @high{0.0 %})"),
                    ],
                )
            )
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
            height=height, sizing_mode="stretch_width", x_range=Range1d(-0.05, 1.05), y_range=Range1d(-2, 2), tools="save,reset",
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
        dots = p.scatter(
            "reward",
            "advantage",
            source=self.source,
            color="color",
            marker="marker",
            size="size",
            line_width=2,
            fill_alpha=0.85,
        )
        p.add_tools(HoverTool(renderers=[dots], tooltips=[
            ("rollouts", "@n{0}, first: @id"), ("reward", "@reward{0.000}"), ("advantage", "@advantage{0.000}"),
            ("label", "@label"), ("chance of pointing the wrong way", "@chance"),
        ]))  # fmt: skip

    def update(self, rows: Sequence[Sibling], found: Against | None) -> None:
        """Draw these rollouts and what they are held against."""
        points: dict[tuple, list[int]] = {}
        for i, s in enumerate(rows):
            if s.reward is not None:
                points.setdefault((s.reward, s.advantage or 0.0, found.labels[i] if found else "ambiguous"), []).append(
                    i
                )
        columns: dict[str, list] = {k: [] for k in self.source.data}
        for (reward, advantage, label), here in points.items():
            color, marker = SAID[label][:2]
            chance = found.chance[here[0]] if found else float("nan")
            values = (reward, advantage, color, marker, one_line(rows[here[0]].id, 40), label.replace("_", " "),
                      "not told" if chance != chance else percent(chance), len(here), 10 + 4 * np.sqrt(len(here) - 1))  # fmt: skip
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)
        self.source.data = columns
        self._frame(
            columns,
            found,
            next((s.baseline for s in rows if s.baseline is not None and s.baseline == s.baseline), None),
        )

    def _frame(self, columns: dict[str, list], found: Against | None, baseline: float | None) -> None:
        known = [*columns["reward"], *([found.value] if found else []), *([] if baseline is None else [baseline])] or [
            0.0,
            1.0,
        ]
        low, high = min(known), max(known)
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


def rates_head(kind: str, total: np.ndarray) -> str:
    """Legend of the rates over steps, with the rates over all of them."""
    hard = "hard flip, expected" if kind == "posterior" else "hard flip"
    words = {
        "hard": f"{hard}: pushed the wrong way",
        "vanish": "vanish: not pushed at all",
        "spurious": "spurious: pushed without cause",
    }
    keys = [
        key(COLORS[k], words[k], _share(float(rate(total, k))), "line")
        for k in RATES
        if k != "spurious" or kind != "posterior"
    ]
    return head("Signs over the steps", *keys)


def counted(kind: str, total: np.ndarray) -> str:
    """What the rates are over, and against what."""
    n, unclear, signed = (total[COUNTS.index(c)] for c in ("n", "unclear", "signed"))
    left = (
        "of prompts that were never asked before"
        if kind == "posterior"
        else f"within {2} standard errors of the reference, ambiguous"
    )
    text = f"Against {KINDS[kind]}. {count(n)} trained rollouts; {count(unclear)} {left}, stay outside."
    return f'<div class="quiet">{html(text, 600)}</div>' if signed or n else ""


def bins_table(rates: Rates, name: str, span: Levels) -> str:
    """A rate by estimator and group size (rows) and difficulty (columns), shaded by its size."""
    keys, _ = rates.by("estimator", "size")
    if not keys:
        return empty("Nothing to count yet", "Rates appear once trained rollouts have a reference of this kind.")
    width = (span.high - span.low) / BINS
    top = "".join(
        f'<th class="n">{span.low + k * width:.2f} to {span.low + (k + 1) * width:.2f}</th>' for k in range(BINS)
    )
    lines = []
    for estimator, size in sorted(keys, key=lambda k: (k[0], k[1])):
        mine = rates.take((rates.estimator == estimator) & (rates.size == size))
        at = dict(zip((k[0] for k in mine.by("bin")[0]), mine.by("bin")[1], strict=True))
        cells = "".join(_cell(at.get(k), name) for k in range(BINS))
        lines.append(
            f'<tr><td>{html(estimator, 60)}</td><td class="n">{size}</td>{cells}{_cell(mine.counts.sum(0), name)}</tr>'
        )
    return (
        f'<div style="overflow-x:auto"><table><tr><th>estimator</th><th class="n">G</th>{top}<th class="n">all</th></tr>{"".join(lines)}</table></div>'
        f'<div class="quiet">Share of rollouts; below it, how many it is over. Columns: the reference, which is the mean reward of the prompt, hardest first. '
        f"G: rollouts of a group that reached the loss.</div>"
    )


def _cell(sums: np.ndarray | None, name: str) -> str:
    of = 0.0 if sums is None else float(sums[COUNTS.index(RATES[name])])
    if sums is None or not of:
        return '<td class="n quiet">–</td>'
    share = float(rate(sums, name))
    shade = f"background:color-mix(in srgb, {COLORS[name]} {min(70.0, 100 * share):.0f}%, transparent)"
    return f'<td class="n" style="{shade}">{_share(share)}<br><span class="quiet">{count(of)}</span></td>'


def _share(x: float) -> str:
    return "–" if x != x else "0 %" if x == 0 else f"{100 * x:.1f} %" if x < 0.1 else f"{100 * x:.0f} %"


def strip_head(found: Sequence[Against], rows: Sequence[Sibling]) -> str:
    """Legend of the strip: what the lines are, and the labels that occur."""
    lines = [key(theme.MOVES, "baseline of the estimator", _first(rows), "line")]
    if found:
        a = found[0]
        lines.append(key(theme.LEARNING, f"reference: {a.kind}, with its 95 % interval", f"{a.value:.3f}", "line"))
        lines.append(key("color-mix(in srgb, #d4512a 22%, transparent)", "where advantages point the wrong way"))
    labels = [label for label in SAID if found and label in found[0].labels]
    marks = "".join(
        f'<span class="key"><b style="color:{SAID[n][0]}">{SAID[n][2]}</b>{html(SAID[n][3])} <b>{found[0].labels.count(n)}</b></span>'
        for n in labels
    )
    return f'<div class="head">{"".join(lines)}</div><div class="head" style="margin-top:3px">{marks}</div>'


def rollouts_table(rows: Sequence[Sibling], found: Sequence[Against], most: int = 64) -> str:
    """Every rollout with its label, and the chance that its advantage points the wrong way."""
    lines = []
    for i, s in enumerate(rows[:most]):
        label = found[0].labels[i] if found else "ambiguous"
        chance = found[0].chance[i] if found else float("nan")
        color, _, sign, _ = SAID[label]
        said = label.replace("_", " ") if found else "no reference"
        lines.append(
            f'<tr><td class="mono">{html(s.id, 40)}</td><td class="n">{"–" if s.reward is None else f"{s.reward:.3f}"}</td>'
            f'<td class="n">{"–" if s.advantage is None or s.fate != "trained" else f"{s.advantage:+.2f}".replace("-", "−")}</td>'
            f'<td><b style="color:{color}">{sign}</b> {html(said)}</td><td class="n">{percent(chance)}</td></tr>'
        )
    top = '<tr><th>rollout</th><th class="n">reward</th><th class="n">advantage</th><th>label</th><th class="n">chance of the wrong way</th></tr>'
    rest = f'<div class="quiet">and {len(rows) - most:,} more rollouts</div>' if len(rows) > most else ""
    return (
        f'<div style="max-height:230px;overflow:auto;margin-top:8px"><table>{top}{"".join(lines)}</table>{rest}</div>'
    )


def _plain(x: float) -> str:
    return f"{x:.3f}".replace("-", "\u2212")


def _first(rows: Sequence[Sibling]) -> str:
    value = next((s.baseline for s in rows if s.baseline is not None and s.baseline == s.baseline), None)
    return "not recorded" if value is None else f"{value:.3f}"


def against_table(found: Sequence[Against], rows: Sequence[Sibling]) -> str:
    """Every reference there is for the group, and what it says of its rollouts."""
    if not found:
        return empty(
            "No reference yet",
            "It takes scored rollouts of the same version, or of the same prompt in an earlier step.",
        )
    lines = []
    for i, a in enumerate(found):
        chance = [c for c in a.chance if c == c]
        expected = f"{sum(chance):.2f}" if chance else "–"
        lines.append(
            f'<tr><td>{"<b>" if not i else ""}{html(a.kind)}{"</b>, drawn" if not i else ""}</td><td class="n">{a.value:.3f}</td>'
            f'<td class="n">{_plain(a.low)} to {_plain(a.high)}</td><td class="n">{a.n:.0f}</td><td class="n">{expected}</td></tr>'
        )
    top = '<tr><th>reference</th><th class="n">mean reward</th><th class="n">95 % interval</th><th class="n">rollouts</th><th class="n">hard flips</th></tr>'
    return f"<table>{top}{''.join(lines)}</table><div class='quiet'>Hard flips: counted against a pool, expected under a belief, of {len(rows)} rollouts.</div>"


def explain(span: Levels, rows: Sequence[Sibling], found: Sequence[Against]) -> str:
    """Why signs flip here, or cannot, in words and with the numbers of this run and group."""
    kept = [s for s in rows if s.fate in ("trained", "carried") and s.reward is not None]
    g = max(len(kept), 1)
    say = []
    if span.levels == 2:
        p = (found[0].value - span.low) / max(span.high - span.low, 1e-12) if found else 0.5
        v = binary_vanish(np.array(min(max(p, 0.0), 1.0)), g)
        say += [
            f"Rewards of this run take two values, {span.low:g} and {span.high:g}. A baseline between them lies below the one and above the "
            "other, and so does the true mean: whoever has the higher reward is pushed up under both, whoever has the lower is pushed down. "
            "A hard flip cannot happen under any baseline between the two, so a rate of 0 is no merit here. It takes three or more reward "
            "levels, rewards shaped by length, or advantages whitened over a whole batch.",
            f"What can happen is that signs vanish: a group whose rewards are all equal teaches nothing. At a chance of solving of {percent(p)} "
            f"and G = {g} that meets {percent(float(v.mean))} of the rollouts under a mean, and {percent(float(v.median))} under a median baseline.",
        ]
    elif span.levels > 2:
        between = [
            s
            for s in kept
            if found
            and s.baseline is not None
            and min(s.baseline, found[0].value) < s.reward < max(s.baseline, found[0].value)
        ]
        say.append(
            f"Rewards of this run take {span.levels:,} values, so a rollout may lie between the baseline of its group and the true mean of its "
            "prompt. It is then pushed the wrong way: a hard flip."
        )
        if found and _first(rows) != "not recorded":
            say.append(f"In this group {len(between)} of {len(kept)} rollouts lie between the two lines.")
    if found and found[0].kind == "small pool":
        say.append(
            "The reference here is the group's own mean over few rollouts: an estimator that compares with that mean agrees with it by "
            "construction. For a reference that can contradict it, record a probe set (<code>probe_set</code>), or let prompts come again."
        )
    if found and found[0].kind == "posterior":
        say.append(
            "The reference is a belief from earlier steps, of earlier policies: where the prompt is being learned, it lags behind."
        )
    if any(abs(s.advantage or 0.0) <= TAU for s in kept):
        say.append(
            f"{sum(abs(s.advantage or 0.0) <= TAU for s in kept)} of {len(kept)} rollouts of this group got advantage 0."
        )
    return "".join(f"<p>{line}</p>" for line in say)
