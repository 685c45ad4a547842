"""The live page: one run, watched while it goes.

The page is built once. A timer of the session asks the shared source what is new and hands it to the views; the
training process never knows that anybody looks. Whatever goes wrong in a refresh is shown as a message above the
last good state, and the next refresh tries again.
"""

from __future__ import annotations

import time
import traceback

import panel as pn
import panel_material_ui as pmui

from workbench.views import cards, theme
from workbench.views.completions import Completions
from workbench.views.data import RunData, Source
from workbench.views.heatmap import HeatMap
from workbench.views.plots import CurvesPlot, PromptPlot, StackPlot, follow, steps_range
from workbench.views.state import ORDERS, Selection
from workbench.views.text import one_line

PERIOD = 700
"""Milliseconds between two looks at the store."""

_FORM = {"typography": {"fontSize": 13, "button": {"textTransform": "none"}}, "shape": {"borderRadius": 8}}
MUI = {
    "light": {"palette": {"primary": {"main": "#24527a"}}, **_FORM},
    "dark": {"palette": {"primary": {"main": "#4a8ac6"}}, **_FORM},
}


def pane(text: str = "", **params) -> pn.pane.HTML:
    """An HTML pane in the page's style. The caller escapes what comes from outside."""
    return pn.pane.HTML(text, stylesheets=[theme.HTML], sizing_mode="stretch_width", margin=0, **params)


def card(span: int, *parts: pn.viewable.Viewable) -> pn.Column:
    """A bordered box of `span` twelfths of the page; the whole width on a narrow window."""
    return pn.Column(*parts, stylesheets=[theme.CARD.replace("SPAN", str(span))], sizing_mode="stretch_width", margin=0)


def plot(figure) -> pn.pane.Bokeh:
    """A figure that fills its card."""
    return pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=(4, 0, 0, 0))


class LivePage:
    """All views of the live page and the one selection they share."""

    def __init__(self, store_url: str, run: str | None = None) -> None:
        self.source = Source.of(store_url)
        self.chosen = Selection(run=run or "")
        self.pinned = run is not None
        self.refresh_ms = 0.0
        self._seen: tuple = ()
        self._drawing = False
        self._first: tuple[str, int] | None = None
        self._group_step, self._group_rank = 0, 0
        self._held: tuple | None = None
        self._build()
        watched = [name for name in self.chosen.param if name != "name"]
        self.chosen.param.watch(lambda *_: self.update(force=True), watched)

    def _build(self) -> None:
        self.steps = steps_range()
        self.message = pane(visible=False)
        self.head = pane()
        self.curves = CurvesPlot(self.steps, 340)
        self.heat = HeatMap(self.steps, self._choose_row)
        self.prompt = PromptPlot(self.steps)
        self.budget = StackPlot(self.steps, theme.BUDGET, "rollouts per step", "rollouts", 225)
        self.seconds = StackPlot(self.steps, theme.SECONDS, "seconds per step", "s", 200)
        self.completions = Completions(self._whole_text, sizing_mode="stretch_width", margin=0)
        names = ("curves", "budget", "spent", "seconds", "heat", "prompt", "about", "group", "line", "notes")
        self.text = {name: pane() for name in names}
        self.picker = pmui.Select(
            options=[],
            size="small",
            margin=(6, 12),
            color="light",
            sizing_mode="stretch_width",
            min_width=90,
            max_width=330,
        )
        self.beliefs = pmui.Select(
            label="Chance of solving according to", options=[], width=240, size="small", margin=(4, 12, 0, 0)
        )
        self.order = pmui.Select.from_param(
            self.chosen.param.order,
            label="Order of prompts",
            description=None,
            options=list(ORDERS),
            width=180,
            size="small",
            margin=(4, 12, 0, 0),
        )
        small = {"size": "small", "variant": "outlined", "margin": (8, 6, 0, 0)}
        self.up = pmui.Button(label="Easier", icon="arrow_upward", on_click=lambda _: self._move(1), **small)
        self.down = pmui.Button(label="Harder", icon="arrow_downward", on_click=lambda _: self._move(-1), **small)
        self.which = pmui.RadioButtonGroup.from_param(
            self.chosen.param.group, label="", description=None, size="small", width=250, margin=(8, 10, 6, 0)
        )
        self.next = pmui.Button(label="Next group", icon="navigate_next", on_click=lambda _: self._next(), **small)
        self.picker.param.watch(self._picked, "value")
        self.beliefs.param.watch(self._believed, "value")
        tools = pn.FlexBox(self.beliefs, self.order, margin=(4, 0, 2, 0))
        groups = pn.FlexBox(self.which, self.next, margin=0)
        self.body = pn.Column(
            card(12, self.head),
            card(8, self.text["curves"], plot(self.curves.figure)),
            card(4, self.text["budget"], self.text["spent"], plot(self.budget.figure)),
            card(8, self.text["heat"], tools, plot(self.heat.figure)),
            card(4, self.text["prompt"], plot(self.prompt.figure), self.text["about"], pn.FlexBox(self.up, self.down, margin=0)),
            card(8, self.text["group"], groups, self.text["line"], self.completions),
            pn.Column(
                card(12, self.text["seconds"], plot(self.seconds.figure)),
                card(12, self.text["notes"]),
                stylesheets=[theme.SIDE], sizing_mode="stretch_width", margin=0,
            ),
            stylesheets=[theme.PAGE], sizing_mode="stretch_width", margin=0,
        )  # fmt: skip
        self.empty = card(12, pane(cards.empty("Looking for runs …")))
        self.shell = pn.Column(self.message, self.empty, sizing_mode="stretch_width", margin=0)

    # what the reader does

    def _picked(self, event) -> None:
        if event.new and event.new != self.chosen.run:
            self.pinned = True
            self.chosen.param.update(run=event.new, prompt="", belief="", place=0)
            if pn.state.location is not None:
                pn.state.location.update_query(run=event.new)

    def _believed(self, event) -> None:
        if not self._drawing:
            self.chosen.belief = event.new or ""

    def _choose_row(self, row: int) -> None:
        if (data := self._data()) is not None:
            self.chosen.prompt = str(data.prompts.id[row])

    def _move(self, by: int) -> None:
        data = self._data()
        if data is None:
            return
        now = data.prompts.row(self.chosen.prompt)
        row = self.heat.neighbour(self._example(data) if now is None else now, by)
        if row is not None:
            self._choose_row(row)

    def _next(self) -> None:
        self.chosen.param.update(group="latest step", place=self.chosen.place + 1)

    def _whole_text(self, rollout: str) -> tuple[str, int]:
        data = self._data()
        if data is None:
            return "", 0
        self._held = self._group_asked()
        self._put("group", cards.head("Completions", "<span>held while you read; Next group goes on</span>"))
        return data.text(self._group_step, rollout, self._group_rank)

    def _group_asked(self) -> tuple:
        c = self.chosen
        return c.run, c.group, c.place, c.prompt if c.group == "chosen prompt" else ""

    # what the timer does

    def _data(self) -> RunData | None:
        return self.source.run(self.chosen.run) if self.chosen.run else None

    def tick(self) -> None:
        """One look at the store; an error becomes a message, never a blank page."""
        began = time.perf_counter()
        try:
            self.source.refresh()
            self._offer_runs()
            self.update()
            self.message.visible = False
        except FileNotFoundError:
            self._nothing_yet()
        except Exception as problem:  # shown to the reader, tried again at the next tick
            text = cards.error(
                "The store could not be read", f"{type(problem).__name__}: {problem}", traceback.format_exc()
            )
            if self.message.object != text:
                self.message.object = text
            self.message.visible = True
        self.refresh_ms = 1e3 * (time.perf_counter() - began)

    def _nothing_yet(self) -> None:
        self._main(self.empty)
        where = cards.html(self.source.where)
        self.empty[0].object = cards.empty(
            "No run yet",
            "Start one with <code>workbench demo</code>, or <code>workbench run experiment.toml</code>.",
            f"This page watches the store <code>{where}</code> and shows the run as soon as its first step is recorded.",
        )

    def _main(self, shown: pn.viewable.Viewable) -> None:
        if self.shell[1] is not shown:
            self.shell[1] = shown

    def _offer_runs(self) -> None:
        runs = self.source.runs
        if not runs:
            self._nothing_yet()
            return
        options = {f"{r['run']}  ({r.get('status') or '?'})": r["run"] for r in runs}
        if self.chosen.run != runs[0]["run"] and not self.pinned:
            self.chosen.param.update(run=runs[0]["run"], prompt="", belief="", place=0)
        if self.chosen.run not in options.values():
            options = {f"{self.chosen.run}  (not found)": self.chosen.run, **options}
        if options != self.picker.options or self.picker.value != self.chosen.run:
            self.picker.param.update(options=options, value=self.chosen.run)

    def update(self, force: bool = False) -> None:
        """Hand what is new to the views; with force, all of it."""
        data = self._data()
        if data is None or not self.source.runs or self._drawing:
            return
        data.refresh()
        stamp = (data.facts, len(data.evaluation.step), data.warnings, data.notes[:1])
        if stamp == self._seen and not force:
            return
        self._drawing = True
        try:
            with pn.io.hold():
                self._draw(data)
                self._main(self.body)
        finally:
            self._drawing = False
        self._seen = stamp

    def _draw(self, data: RunData) -> None:
        follow(self.steps, data.step)
        put = self._put
        self._text_of(self.head, cards.header(data.facts, data.curves, data.evaluation, data.budget, data.warnings))
        put("curves", cards.curves_head(data.curves, data.evaluation))
        self.curves.update(data.curves, data.evaluation)
        put("budget", cards.head("Where the budget went"))
        put(
            "spent",
            cards.totals(data.budget, theme.BUDGET, "rollouts", data.reasons)
            or cards.empty("Nothing spent yet", "The first step is being made."),
        )
        self.budget.update(data.budget)
        put("seconds", cards.head("Where the seconds go", *cards.legend(data.seconds, theme.SECONDS)))
        self.seconds.update(data.seconds)
        put("notes", cards.head("Notes") + cards.notes(data.notes))
        self._draw_difficulty(data)
        self._draw_group(data)

    def _draw_difficulty(self, data: RunData) -> None:
        options = data.beliefs
        belief = self.chosen.belief if self.chosen.belief in options else data.believed
        if self.beliefs.options != options:
            self.beliefs.options = options
        if self.beliefs.value != belief:
            self.beliefs.value = belief
        heat = data.heat(belief)
        self.heat.update(heat, data.prompts, self.chosen.order, f"{data.run}|{belief}", data.asked)
        row = data.prompts.row(self.chosen.prompt)
        if row is None and data.step:
            row = self._example(data)
        self.heat.select(row)
        self._put(
            "heat",
            cards.head(
                "Difficulty of prompts", f"<span>{cards.difficulty_note(data.prompts, data.asked, belief)}</span>"
            ),
        )
        history = data.history(str(data.prompts.id[row]), belief) if row is not None else cards.History()
        self.prompt.update(history, data.step)
        self._put("prompt", cards.prompt_head(belief))
        self._put("about", cards.prompt(history, belief))

    def _example(self, data: RunData) -> int:
        """The prompt shown before one is chosen: the one asked most at the first look, and then the same."""
        run, row = self._first or ("", 0)
        if run != data.run:
            row = int(data.asked.argmax())
            self._first = data.run, row
        return row

    def _draw_group(self, data: RunData) -> None:
        if self._held == self._group_asked():
            return
        self._held = None
        own = self.chosen.group == "chosen prompt"
        prompt = self.chosen.prompt if own else ""
        group = data.group(self.chosen.place, prompt) if prompt or not own else cards.Group()
        self._group_step, self._group_rank = group.step, group.rank
        where = f"group {group.place + 1} of {group.of}" if group.rows and not own else one_line(group.prompt, 40)
        self._put("group", cards.head("Completions", f"<span>{cards.html(where)}</span>"))
        self._put("line", cards.group_line(group))
        self.completions.empty = "Click a row of the heat map first." if own and not prompt else "No completion yet."
        self.completions.show(group)

    def _put(self, name: str, text: str) -> None:
        self._text_of(self.text[name], text)

    @staticmethod
    def _text_of(where: pn.pane.HTML, text: str) -> None:
        if where.object != text:
            where.object = text


def shell(page: LivePage, title: str = "Rollout Workbench") -> pmui.Page:
    """The frame around a page's views: title, run picker, switch between light and dark."""
    return pmui.Page(
        title=title,
        header=[page.picker],
        main=[page.shell],
        sidebar_open=False,
        sidebar_variant="temporary",
        theme_config=MUI,
        busy_indicator=None,
        sx={"& .main-content": {"backgroundColor": theme.GROUND}},
    )


def app(store_url: str, run: str | None = None) -> pn.viewable.Viewable:
    """The live page of a store: the run named, or the newest. Served, or shown in a cell.

    A mistake while the page is built becomes a page that says so."""
    try:
        where = pn.state.location
        page = LivePage(store_url, where.query_params.get("run", run) if where is not None else run)
        if where is not None:
            where.sync(page.chosen, Selection.URL)
        page.tick()
        # not before the browser has it all: what changes while a page is being opened is lost to Panel's components
        pn.state.onload(lambda: pn.state.add_periodic_callback(page.tick, period=PERIOD))
        return shell(page)
    except Exception as problem:  # a blank page would say nothing
        return pane(
            cards.error("The page could not be built", f"{type(problem).__name__}: {problem}", traceback.format_exc())
        )
