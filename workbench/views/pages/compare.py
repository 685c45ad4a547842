"""The compare page: runs of one store side by side at equal rollouts, tokens or seconds, with everything unfair named."""

from __future__ import annotations

import numpy as np
import panel as pn
import panel_material_ui as pmui

from workbench.analysis.compare import amount
from workbench.analysis.intervals import Interval
from workbench.views.data.compare import AXES, EVALUATED, FEW, METRICS, SHARES, Compared, columns_of, compared
from workbench.views.data.run import RunData, Source
from workbench.views.data.selection import Selection
from workbench.views.data.sql_text import Query
from workbench.views.data.text import count, html, one_line
from workbench.views.pages.base import Page
from workbench.views.parts import cards
from workbench.views.parts.layout import card, grid, pane, plot, put
from workbench.views.parts.plots_compare import ComparePlot, line_styles
from workbench.views.parts.table import Column, Row, Table, cell

FIELD = {"size": "small", "margin": (10, 12, 0, 0)}
RUNS = (Column("shown", "line", "a click shows or leaves out the run"), Column("run", "text"), Column("seed", "n"), Column("steps", "n"), Column("rollouts", "n"), Column("latest", "n"))  # fmt: skip
TABLE = (Column("pipeline", "text"), Column("seeds", "n"), Column("at equal cost", "bar", "mean over the seeds at the dashed line"), Column("to the baseline", "n", "difference with its 95 % interval, paired by seed"), Column("on the way", "n", "mean over the common range of cost"))  # fmt: skip


class ComparePage(Page):
    """Curves with seed bands, the table of differences, what is unfair, and the choice of runs."""

    title, order = "Compare", 70

    def __init__(self, source: Source, chosen: Selection) -> None:
        super().__init__(source, chosen)
        self._drawing = False
        self._stamp: tuple = ()
        self.figure = ComparePlot()
        self.text = {name: pane() for name in ("curves", "none", "table", "unfair", "runs")}
        self.metric = pmui.Select(label="Compared by", options=list(METRICS), width=210, **FIELD)
        self.axis = pmui.Select.from_param(
            chosen.param.axis, label="At equal", description=None, options=list(AXES), width=130, **FIELD
        )
        self.baseline = pmui.Select(label="Baseline", options={}, width=240, visible=False, **FIELD)
        self.metric.param.watch(self._measured, "value")
        self.baseline.param.watch(lambda _: self._drawing or self._redraw(), "value")
        self.table = Table(TABLE, size=12, turned=lambda _: self._redraw())
        self.runs = Table(RUNS, self._picked, lambda _: self._redraw(), size=10)
        self.newest = pmui.Button(
            label=f"Show the {FEW} newest",
            size="small",
            variant="outlined",
            margin=(8, 6, 0, 0),
            on_click=lambda _: self._all(),
        )
        tools = pn.FlexBox(self.metric, self.axis, self.baseline, margin=(0, 0, 2, 0))
        self.shown = plot(self.figure.figure, grows=True)
        self.body = grid(
            card(8, self.text["curves"], tools, self.shown, self.text["none"]),
            card(4, self.text["runs"], self.newest, self.runs),
            card(8, self.text["table"], self.table),
            card(4, self.text["unfair"]),
        )

    # what the reader does

    def _measured(self, event) -> None:
        if not self._drawing:
            self.chosen.metric = event.new or ""

    def _picked(self, run: str) -> None:
        shown = self._shown()
        left = [r for r in shown if r != run] if run in shown else [*shown, run]
        self.chosen.runs = left or [run]

    def _all(self) -> None:
        self.chosen.runs = []

    def _redraw(self) -> None:
        self._stamp = ()
        self._draw()

    # what the shell hands over

    def update(self, data: RunData, force: bool = False) -> None:
        """Draw the runs again where any of them has something new."""
        stamp = (self.source.version, *self._wanted)
        if force or stamp != self._stamp:
            self._draw()
            self._stamp = stamp

    @property
    def _wanted(self) -> tuple:
        return (*self._shown(), self.chosen.metric, self.chosen.axis)

    def _shown(self) -> list[str]:
        """The runs chosen, or the newest ones; those that are not there are left out below."""
        return list(self.chosen.runs) or [r["run"] for r in self.source.runs[:FEW]]

    def _draw(self) -> None:
        self._drawing = True
        try:
            runs = self._shown()
            metric = self.chosen.metric if self.chosen.metric in METRICS else next(iter(METRICS))
            if self.metric.value != metric:
                self.metric.value = metric
            made = compared(self.source, runs, metric, self.chosen.axis, self.baseline.value or "")
            self._offer(made)
            labels = list(dict.fromkeys(c.label for c in reversed(made.curves)))  # oldest run first: colours stay
            styles = line_styles(labels)
            self.figure.update(made, styles)
            for view, on in ((self.shown, bool(made.curves)), (self.text["none"], not made.curves)):
                if view.visible != on:
                    view.visible = on
            put(self.text["none"], "" if made.curves else nothing(made))
            put(self.text["curves"], _curves_head(made, styles))
            self._draw_table(made, styles)
            put(self.text["unfair"], unfair_card(made))
            self._draw_runs(runs, made)
        finally:
            self._drawing = False

    def _offer(self, made: Compared) -> None:
        labels = made.comparison.labels if made.comparison else []
        options = {one_line(k, 60): k for k in sorted(labels)}
        if self.baseline.options != options:
            self.baseline.param.update(options=options, visible=bool(options))
        if made.comparison and self.baseline.value != made.comparison.baseline:
            self.baseline.value = made.comparison.baseline

    def _draw_table(self, made: Compared, styles: dict[str, tuple[str, str]]) -> None:
        c = made.comparison
        self.table.empty = ("Nothing to compare yet", made.why, "Another seed or another pipeline makes one: workbench sweep runs several.")  # fmt: skip
        rows = c.rows() if c else []
        share = made.metric in SHARES
        most = max([abs(r["final"]) for r in rows] + [1e-9])
        lines = [
            Row("", (
                cell(r["pipeline"], note="the baseline" if c and r["pipeline"] == c.baseline else ""),
                f"{r['seeds']}",
                cell(_value(r["final"], share), bars=[(abs(r["final"]) / most, styles[r["pipeline"]][0], "mean over seeds")]),
                "–" if c is None or r["pipeline"] == c.baseline else _difference(c.difference(r["pipeline"]), share),
                _value(r["on_the_way"], share),
            ))
            for r in rows
        ]  # fmt: skip
        first = self.table.page_of(len(lines))
        self.table.show(lines[first : first + self.table.size], len(lines))
        where = (
            f"<span>{html(made.metric)} after {amount(float(c.x[-1]), made.axis)}, the cost that all runs reached</span>"
            if c
            else ""
        )
        put(self.text["table"], cards.head("Side by side", where))

    def _draw_runs(self, runs: list[str], made: Compared) -> None:
        latest = {c.run: float(c.pass_rate[-1]) for c in made.curves}
        share = made.metric in SHARES
        every = [r["run"] for r in self.source.runs]
        every += [r for r in runs if r not in every]
        first = self.runs.page_of(len(every))
        lines = [
            self._run(run, run in runs, latest.get(run), share, made) for run in every[first : first + self.runs.size]
        ]
        self.runs.show(lines, len(every), chosen=self.chosen.run)
        note = f"<span>{len(made.curves):,} of {len(every):,} drawn; a row shows a run or leaves it out</span>"
        put(self.text["runs"], cards.head("Runs", note))

    def _run(self, run: str, shown: bool, latest: float | None, share: bool, made: Compared) -> Row:
        row = next((r for r in self.source.runs if r["run"] == run), None)
        known = columns_of(self.source, run) if row is not None and shown else None
        about = made.left_out.get(run) or (known.label if known else str((row or {}).get("name") or ""))
        spent = count(float(known.cost["rollouts"][-1])) if known and len(known.step) else "–"
        seed = (row or {}).get("seed")
        steps = f"{row['last_step'] or 0:,}" if row else "–"
        return Row(run, (
            "✓" if shown else "·", cell(run, note=one_line(about, 120)), "–" if seed is None else str(seed), steps, spent,
            "–" if latest is None else _value(latest, share),
        ))  # fmt: skip

    @property
    def queries(self) -> list[Query]:
        """The questions behind the cards; all but the first are asked of each run shown."""
        run = self._shown()[0] if self._shown() else ""
        return [
            Query("At equal cost: evaluation", "compare_runs", {"runs": self._shown()}),
            Query("Evaluation of one run", "page_evaluation", {"run": run}),
            Query("Training of one run", "reward_by_step", {"run": run}),
            Query("Cost of one run", "costs_by_step", {"run": run}),
            Query("Evaluation set of one run", "page_eval_prompts", {"run": run}),
            Query("Runs", "runs"),
        ]


def nothing(made: Compared) -> str:
    """What to do where no run has a curve."""
    rows = [f"{html(run, 80)}: {html(why, 200)}" for run, why in list(made.left_out.items())[:5]]
    what = "A run is drawn once it was evaluated twice: before learning and some steps on." if made.metric in EVALUATED else "A run is drawn after its second step."  # fmt: skip
    return cards.empty(f"No {made.metric} to draw yet", what, *rows)


def unfair_card(made: Compared) -> str:
    """What makes the comparison unfair, in words; what was left out, and why."""
    c = made.comparison
    lines = [f'<tr><td class="warn">!</td><td>{html(w, 500)}</td></tr>' for w in (c.warnings if c else [])]
    lines += [f"<tr><td>–</td><td>{html(run, 80)}: {html(why, 200)}</td></tr>" for run, why in made.left_out.items()]
    if not lines and c:
        lines = [
            "<tr><td>Nothing found: same model, tasks, budget, world and evaluation set, the same seeds.</td></tr>"
        ]
    head = cards.head("What is unfair here", "<span>read it before the table</span>" if c and c.warnings else "")
    if not lines:
        return head + cards.empty("Nothing compared yet", html(made.why))
    how = "Bands and intervals are 95 %, Student's t over seeds; runs that differ only in their seed are pooled."
    return f'{head}<table>{"".join(lines)}</table><div class="quiet">{how}</div>'


def _curves_head(made: Compared, styles: dict[str, tuple[str, str]]) -> str:
    labels = made.comparison.labels if made.comparison else list(styles)
    keys = [cards.key(styles[k][0], one_line(k, 70), form="line") for k in labels[:12]]
    more = f"<span>and {len(labels) - 12} more</span>" if len(labels) > 12 else ""
    dashed = "<span>thin: single runs; dashed: equal cost up to here</span>" if made.comparison else ""
    return cards.head("Runs side by side", *keys, more, dashed)


def _value(x: float, share: bool) -> str:
    if not np.isfinite(x):
        return "–"
    return f"{100 * x:.1f} %" if share else f"{x:.3f}"


def _difference(i: Interval, share: bool) -> dict[str, object]:
    """A difference with its interval; shares in percentage points."""
    if not i.n:
        return cell("–", note="no seed in common")
    size, digits, unit = (100, 1, " points") if share else (1, 3, "")
    mean, low, high = (f"{size * v:+.{digits}f}".replace("-", "−") for v in (i.mean, i.low, i.high))
    return cell(mean + unit, note=f"{low} to {high}, {i.n} pairs" if i.n > 1 else "one pair: no interval")
