"""The SQL page: any reading question to the store, saved or written by hand, as a table and a quick plot."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import panel as pn
import panel_material_ui as pmui
from bokeh.models import ColumnDataSource
from bokeh.plotting import figure
from panel.io.resources import CDN_DIST, CSS_URLS
from panel.models.tabulator import THEME_PATH

from workbench.store.questions import load
from workbench.views.data.sql import CELL, EXACT, ROWS, Answer, ask, defaults, names_in
from workbench.views.data.sql_processes import LIMITS, Cancelled
from workbench.views.data.sql_text import Query
from workbench.views.data.text import duration, html
from workbench.views.pages.base import Page
from workbench.views.parts import cards, theme
from workbench.views.parts.layout import card, grid, pane, plot, put, side

if TYPE_CHECKING:
    from workbench.views.data.run import RunData, Source
    from workbench.views.data.selection import Selection

START = "-- Which prompts of a run were asked most, and how did they do?\nSELECT prompt_id, count(*) AS rollouts, avg(correct) AS solved\nFROM rollouts\nWHERE run = $run\nGROUP BY prompt_id\nORDER BY rollouts DESC"
OWN = "your own statement"
KINDS = ("line", "dots", "bars")
TABULATOR = (CSS_URLS["font-awesome"], f"{CDN_DIST}bundled/datatabulator/{THEME_PATH}tabulator_materialize.min.css")
"""What Panel's table fetches in the design of panel-material-ui, which names the theme."""


class SqlPage(Page):
    """A box for statements, the saved questions, the answer."""

    title, order = "SQL", 80
    needs_run = False
    imports = TABULATOR

    def __init__(self, source: Source, chosen: Selection) -> None:
        super().__init__(source, chosen)
        self.answer: Answer | None = None
        self.inputs: dict[str, pmui.TextInput] = {}
        self._run = chosen.run
        self._described = self._filling = False
        self._loaded, self._cancelled = "", threading.Event()
        self._bound = False
        self._build()
        source.workers.warm()
        self._load(chosen.query or START)
        if chosen.query in load():
            self._wanted = True
        chosen.param.watch(lambda e: self._load(e.new) if e.new and e.new != self._loaded else None, "query")

    def _build(self) -> None:
        small = {"size": "small", "margin": (10, 8, 0, 0)}
        options = {OWN: ""} | {f"{q.text}  ({name})": name for name, q in load().items()}
        self._wanted = False
        self.saved = pmui.Select(
            label="Saved questions", options=options, value="", sizing_mode="stretch_width", searchable=True, **small
        )
        self.saved.param.watch(self._pick, "value")
        self.box = pmui.TextAreaInput(
            label="Statement (DuckDB's SQL; reads only)", value="", rows=9, max_rows=24, auto_grow=True,
            sizing_mode="stretch_width", size="small", margin=(10, 8, 0, 0), stylesheets=[theme.asset("sql_box.css")],
            max_length=20_000,
        )  # fmt: skip
        self.box.param.watch(lambda e: self._follow(e.new), "value_input")
        self.fields = pn.FlexBox(margin=0)
        self.run = pmui.Button(label="Ask", icon="play_arrow", on_click=self._ask, margin=(10, 8, 4, 0), size="small")
        self.stop = pmui.Button(
            label="Cancel", icon="stop", on_click=lambda _: self._cancelled.set(), variant="outlined", visible=False,
            margin=(10, 8, 4, 0), size="small",
        )  # fmt: skip
        self.message = pane()
        self.tables = pane()
        self.table = pn.widgets.Tabulator(
            pd.DataFrame(), pagination="remote", page_size=20, disabled=True, show_index=False, layout="fit_data_fill",
            sizing_mode="stretch_width", min_height=80, stylesheets=[theme.asset("sql_table.css")], margin=(6, 0, 0, 0), visible=False,
        )  # fmt: skip
        self.points = ColumnDataSource({"x": [], "y": []})
        p: Any = figure(
            height=300, sizing_mode="stretch_width", tools="pan,box_zoom,reset,save", outline_line_color=None
        )
        p.toolbar.autohide, p.toolbar.logo = True, None
        line = p.line("x", "y", source=self.points, color=theme.LEARNING, width=2)
        dots = p.scatter("x", "y", source=self.points, color=theme.LEARNING, size=6, alpha=0.6, line_color=None)
        bars = p.vbar("x", top="y", source=self.points, width=0.8, color=theme.LEARNING, line_color=None)
        self.glyphs: dict[str, Any] = dict(zip(KINDS, (line, dots, bars), strict=True))
        self.figure = p
        self.x = pmui.Select(label="Across", options=[], width=150, **small)
        self.y = pmui.Select(label="Up", options=[], width=150, **small)
        self.kind = pmui.Select(label="As", options=list(KINDS), value="line", width=100, **small)
        for widget in (self.x, self.y, self.kind):
            widget.param.watch(lambda _: self._plot(), "value")
        self.axes = pn.FlexBox(self.x, self.y, self.kind, margin=0, visible=False)
        self.drawn = plot(p)
        self.drawn.visible = False
        self.about_answer = pane(
            cards.empty("No answer yet", "Choose a saved question or write a statement, then press Ask.")
        )
        self.about_plot = pane(cards.empty("Nothing to draw", "The answer's columns of numbers can be plotted here."))
        buttons = pn.FlexBox(self.run, self.stop, margin=0)
        self.body = grid(
            side(
                8,
                card(12, pane(cards.head("Ask the store")), self.saved, self.box, self.fields, buttons, self.message),
                card(12, pane(cards.head("Answer")), self.about_answer, self.table),
            ),
            side(
                4,
                card(12, pane(cards.head("Quick plot")), self.axes, self.about_plot, self.drawn),
                card(12, pane(cards.head("Tables")), self.tables),
            ),
        )  # fmt: skip

    # what the reader does

    def _pick(self, event) -> None:
        if not self._filling and event.new:
            self.chosen.query = event.new

    def _load(self, query: str) -> None:
        """A saved question by its name, or a statement, into the box."""
        self._loaded, self._filling = query, True
        text = load()[query].sql.strip() if query in load() else query
        self.box.param.update(value=text, value_input=text)
        self.saved.value = query if query in load() else ""
        self._filling = False
        self._follow(text)

    def _follow(self, text: str) -> None:
        """One field for each $parameter of the statement; what was written into one stays."""
        wanted = names_in(text)
        if wanted == list(self.inputs):
            return
        begin = defaults(text, self.chosen.run)
        self.inputs = {
            name: self.inputs.get(name)
            or pmui.TextInput(
                label=f"${name}", value=_written(begin.get(name)), width=230, size="small", margin=(8, 8, 0, 0)
            )
            for name in wanted
        }
        self.fields[:] = list(self.inputs.values())

    @property
    def params(self) -> dict[str, object]:
        """What stands in the fields."""
        return {name: _read(f.value_input or f.value) for name, f in self.inputs.items()}

    def _ask(self, *_) -> None:
        """Ask in a thread of its own, so that no other viewer waits for it; what was asked before is given up."""
        text = self.box.value_input or self.box.value
        if text.strip() != (load()[self._loaded].sql.strip() if self._loaded in load() else self._loaded.strip()):
            self._loaded = self.chosen.query = text[:4000] if text != START else ""
        params = self.params
        self._cancelled.set()
        self._cancelled = turn = threading.Event()
        put(self.message, f'<span class="quiet">asking …, for {LIMITS.seconds:.0f} s at most</span>')
        document = pn.state.curdoc

        def work() -> None:
            try:
                found: Answer | Exception = ask(self.source, text, params, turn)
            except Exception as problem:
                found = problem
            if served and document is not None:
                document.add_next_tick_callback(lambda: self._arrived(found, turn))
            else:
                self._arrived(found, turn)

        served = document is not None and document.session_context is not None
        self.stop.visible = served
        if served and document is not None and not self._bound:  # who closes the page waits for no answer
            document.on_session_destroyed(lambda session_context: self._cancelled.set())
            self._bound = True
        if served:
            threading.Thread(target=work, name="question", daemon=True).start()
        else:
            work()

    def _arrived(self, found: Answer | Exception, turn: threading.Event) -> None:
        """An answer, or what the store says of the statement, without a trace; of several questions the last counts."""
        if turn is not self._cancelled:
            return
        self.stop.visible = False
        if isinstance(found, Cancelled):
            put(self.message, '<span class="quiet">cancelled</span>')
        elif isinstance(found, Exception):
            put(self.message, cards.error("The store did not answer", str(found)))
        else:
            self.answer = found
            self._show(found)

    def _show(self, answer: Answer) -> None:
        more = f"; the first {ROWS:,}, there are more" if answer.more else ""
        put(self.message, f'<span class="quiet">{answer.n:,} rows{more}, in {duration(answer.seconds)}</span>')
        held = pd.DataFrame({k: _rounded(v) for k, v in answer.columns.items()})
        self.table.param.update(value=held, titles={name: html(name) for name in held.columns}, visible=True)
        self.about_answer.visible = False
        numeric = answer.numeric
        x = self.x.value if self.x.value in numeric else next(iter(numeric), None)
        y = self.y.value if self.y.value in numeric and self.y.value != x else next((n for n in numeric if n != x), x)
        self.x.param.update(options=numeric, value=x)
        self.y.param.update(options=numeric, value=y)
        self._plot()

    def _plot(self) -> None:
        answer = self.answer
        known = answer is not None and self.x.value in answer.columns and self.y.value in answer.columns
        self.about_plot.visible, self.axes.visible, self.drawn.visible = not known, known, known
        if answer is None or not known:
            self.points.data = {"x": [], "y": []}
            return
        x, y = (np.asarray(answer.columns[w.value], float) for w in (self.x, self.y))
        order = np.argsort(x, kind="stable") if self.kind.value == "line" else np.arange(len(x))
        self.points.data = {"x": x[order], "y": y[order]}
        for kind, glyph in self.glyphs.items():
            glyph.visible = kind == self.kind.value
        gaps = np.diff(np.unique(x[np.isfinite(x)]))
        self.glyphs["bars"].glyph.width = 0.8 * float(gaps.min()) if len(gaps) else 0.8
        self.figure.xaxis.axis_label, self.figure.yaxis.axis_label = self.x.value, self.y.value

    @property
    def queries(self) -> list[Query]:
        """The statement in the box."""
        text = self.box.value_input or self.box.value
        return [Query("Answer", text, self.params)]

    # what the shell hands over

    def update(self, data: RunData | None, force: bool = False) -> None:
        """Nothing moves by itself here: an answer stays until the next question."""
        if not self._described:
            put(self.tables, _tables(self.source))
            self._described = True
        field = self.inputs.get("run")
        if field is not None and self.chosen.run and field.value in ("", self._run):
            field.value = self._run = self.chosen.run  # follows the picker until another run is written there
        if self._wanted and data is not None:
            self._wanted = False
            self._ask()


def _rounded(column: np.ndarray) -> np.ndarray:
    """Six figures or six decimals, whichever is more, the plot has them all; whole numbers too large for a browser as text."""
    if column.dtype.kind == "f":
        return np.array([float(f"{v:.6g}") if abs(v) < 1 else round(v, 6) for v in column.tolist()])
    if column.dtype.kind == "O" or any(abs(int(v)) > EXACT for v in column):
        return np.array(["" if v is None else str(v) for v in column], dtype=object)
    return column


def _written(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _read(text: str) -> object:
    """A field as a parameter: a number, true, null or a list as JSON has them, else the text; empty is null."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _tables(source: Source) -> str:
    """The tables and their columns with what they hold, folded."""
    rows = source.store.sql(
        "SELECT table_name, column_name, comment FROM columns ORDER BY table_name, rowid"
    ).to_pylist()
    found: dict[str, list[tuple[str, str]]] = {}
    for r in rows:
        found.setdefault(r["table_name"], []).append((r["column_name"] or "", r["comment"] or ""))

    def described(table: str, columns: list[tuple[str, str]]) -> str:
        about = next((text for c, text in columns if not c), "")
        lines = "".join(
            f"<tr><td><code>{html(c)}</code></td><td class='quiet'>{html(text)}</td></tr>" for c, text in columns if c
        )
        return (
            f"<details><summary><b>{html(table)}</b> <span class='quiet'>{html(about)}</span></summary>"
            f"<table>{lines}</table></details>"
        )

    parts = "".join(described(*item) for item in found.items())
    limits = f"At most {ROWS:,} rows, {CELL} characters a cell, {LIMITS.seconds:.0f} seconds and {LIMITS.memory >> 20:,} MiB."
    return f'<div class="quiet">{limits} Nothing can be written.</div>{parts}'
