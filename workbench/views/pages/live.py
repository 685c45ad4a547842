"""The live page: a run at a glance while it goes. Learning, budget, difficulty, one group's completions, seconds, notes."""

from __future__ import annotations

import panel as pn
import panel_material_ui as pmui

from workbench.views.data.difficulty import amount
from workbench.views.data.run import RunData, Source
from workbench.views.data.selection import OBSERVED, ORDERS, Selection
from workbench.views.data.sql_text import Asked
from workbench.views.data.steering import UNDOABLE, steering
from workbench.views.data.text import one_line
from workbench.views.pages.base import Page
from workbench.views.parts import cards, theme
from workbench.views.parts.completions import Completions
from workbench.views.parts.heatmap import HeatMap
from workbench.views.parts.keys import Keys
from workbench.views.parts.layout import card, grid, pane, plot, put, side
from workbench.views.parts.plots import CurvesPlot, PromptPlot, StackPlot, follow, steps_range
from workbench.views.parts.steps import SharedSteps


class LivePage(Page):
    """All views of the live page."""

    title, order = "Live", 10
    choosing = "click a row of the heat map"

    def __init__(self, source: Source, chosen: Selection) -> None:
        super().__init__(source, chosen)
        self._drawing = False
        self._shown = ""
        self._first: tuple[str, int] | None = None
        self._group_step, self._group_rank = 0, 0
        self._held: tuple | None = None
        self._build()

    def _build(self) -> None:
        self.steps = steps_range()
        SharedSteps(self.steps, self.chosen)
        self.head = pane()
        self.curves = CurvesPlot(self.steps, 340)
        self.heat = HeatMap(self.steps, self._choose_row)
        self.prompt = PromptPlot(self.steps)
        self.budget = StackPlot(self.steps, theme.BUDGET, "rollouts per step", "rollouts", 225)
        self.seconds = StackPlot(self.steps, theme.SECONDS, "seconds per step", "s", 200)
        self.completions = Completions(self._whole_text, sizing_mode="stretch_width", margin=0)
        names = ("curves", "budget", "spent", "seconds", "heat", "prompt", "about", "group", "line", "notes", "told")
        self.text = {name: pane() for name in names}
        self.beliefs = pmui.Select(
            label="Chance of solving according to", options=[], width=240, size="small", margin=(10, 12, 0, 0)
        )
        self.order = pmui.Select.from_param(
            self.chosen.param.order,
            label="Order of prompts",
            description=None,
            options=list(ORDERS),
            width=180,
            size="small",
            margin=(10, 12, 0, 0),
        )
        small = {"size": "small", "variant": "outlined", "margin": (8, 6, 0, 0)}
        self.up = pmui.Button(label="Easier", icon="arrow_upward", on_click=lambda _: self._move(1), **small)
        self.down = pmui.Button(label="Harder", icon="arrow_downward", on_click=lambda _: self._move(-1), **small)
        self.which = pmui.RadioButtonGroup.from_param(
            self.chosen.param.group, label="", description=None, size="small", width=250, margin=(8, 10, 6, 0)
        )
        self.next = pmui.Button(label="Next group", icon="navigate_next", on_click=lambda _: self._next(), **small)
        self.beliefs.param.watch(self._believed, "value")
        tools = pn.FlexBox(self.beliefs, self.order, margin=(0, 0, 2, 0))
        keys = Keys({"p": lambda: self._move(1), "n": lambda: self._move(-1), "g": self._next})
        groups = pn.FlexBox(self.which, self.next, keys, margin=0)
        self.body = grid(
            card(12, self.head),
            card(8, self.text["curves"], plot(self.curves.figure, grows=True)),
            card(4, self.text["budget"], self.text["spent"], plot(self.budget.figure)),
            card(8, self.text["heat"], tools, plot(self.heat.figure, grows=True)),
            card(4, self.text["prompt"], plot(self.prompt.figure), self.text["about"], pn.FlexBox(self.up, self.down, margin=0)),
            card(8, self.text["group"], groups, self.text["line"], self.completions),
            side(
                4,
                card(12, self.text["seconds"], plot(self.seconds.figure)),
                card(12, self.text["told"]),
                card(12, self.text["notes"]),
            ),
        )  # fmt: skip

    # what the reader does

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

    def _data(self) -> RunData | None:
        return self.source.run(self.chosen.run) if self.chosen.run else None

    # what the shell hands over

    def update(self, data: RunData, force: bool = False) -> None:
        """Every view takes what is new; what did not change is not sent."""
        self._drawing = True
        try:
            self._draw(data)
        finally:
            self._drawing = False

    def _draw(self, data: RunData) -> None:
        follow(self.steps, data.facts.room)
        put(self.head, cards.header(data.facts, data.curves, data.evaluation, data.budget, data.warnings))
        self._put("curves", cards.curves_head(data.curves, data.evaluation))
        self.curves.update(data.curves, data.evaluation)
        self._put("budget", cards.head("Where the budget went"))
        self._put(
            "spent",
            cards.totals(data.budget, theme.BUDGET, "rollouts", data.reasons)
            or cards.empty("Nothing spent yet", "No step is recorded yet."),
        )
        self.budget.update(data.budget)
        self._put("seconds", cards.head("Where the seconds go", *cards.legend(data.seconds, theme.SECONDS)))
        self.seconds.update(data.seconds)
        told = steering(data).told
        self.curves.mark([t for t in told if t.state == "applied" and t.kind in UNDOABLE])
        self._put("notes", cards.head("Notes") + cards.notes(data.notes))
        commands = cards.head("What was asked of the run", "<span>lasting ones are marks over the curves</span>")
        self._put("told", commands + cards.told_table(told, 8))
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
        self.heat.update(heat, data.prompts, self.chosen.order, f"{data.run}|{belief}", amount(data, self.chosen.order))
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
        self._shown = str(data.prompts.id[row]) if row is not None else ""
        history = data.history(self._shown, belief) if row is not None else cards.History()
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
        put(self.text[name], text)

    @property
    def asked(self) -> list[Asked]:
        """The questions behind the cards."""
        run = {"run": self.chosen.run}
        prompt = {**run, "prompt": self._shown}
        belief = self.beliefs.value or ""
        watched = belief == OBSERVED
        believed = [
            Asked("Difficulty of prompts", "page_observed", run)
            if watched
            else Asked("Difficulty of prompts", "belief_map", {**run, "method": belief}),
            *([] if watched else [Asked("One prompt", "beliefs_of_prompt", {**prompt, "method": belief})]),
        ]
        return [
            Asked("Learning: training", "reward_by_step", run),
            Asked("Learning: evaluation", "page_evaluation", {**run, "since": -1}),
            Asked("Where the budget went", "page_budget", run),
            *believed,
            Asked("One prompt: outcomes", "outcomes_of_prompt", prompt),
            Asked("Completions", "groups_of_step", {**run, "step": self._group_step}),
            Asked("Where the seconds go", "timings_by_step", run),
            Asked("Notes", "events", run),
        ]
