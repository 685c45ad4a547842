"""The live page: a run at a glance while it goes. Learning, budget, difficulty, one group's completions, seconds, notes."""

from __future__ import annotations

import panel as pn
import panel_material_ui as pmui

from workbench.views.data.records import Group
from workbench.views.data.run import RunData, Source
from workbench.views.data.selection import Selection
from workbench.views.data.sql_text import Query
from workbench.views.data.steering import UNDOABLE, steering
from workbench.views.data.text import html, one_line
from workbench.views.pages.base import Page
from workbench.views.parts import cards, theme
from workbench.views.parts.completions import Completions
from workbench.views.parts.keys import Keys
from workbench.views.parts.layout import button, card, grid, pane, plot, put, side
from workbench.views.parts.plots import CurvesPlot, StackPlot, follow, steps_range
from workbench.views.parts.prompt_picker import CHOOSING, PromptPicker
from workbench.views.parts.steps import SharedSteps


class LivePage(Page):
    """All views of the live page."""

    title, order = "Live", 10
    choosing = CHOOSING

    def __init__(self, source: Source, chosen: Selection) -> None:
        super().__init__(source, chosen)
        self._group_step, self._group_rank = 0, 0
        self._held: tuple | None = None
        self.steps = steps_range()
        SharedSteps(self.steps, self.chosen)
        self.judged, self.head = pane(), pane()
        self.curves = CurvesPlot(self.steps, 340)
        self.picker = picker = PromptPicker(chosen, self.steps, (430, 250))
        self.budget = StackPlot(self.steps, theme.BUDGET, "rollouts per step", "rollouts", 225)
        self.seconds = StackPlot(self.steps, theme.SECONDS, "seconds per step", "s", 200)
        self.completions = Completions(self._whole_text, sizing_mode="stretch_width", margin=0)
        names = ("curves", "budget", "spent", "seconds", "group", "line", "notes", "commands")
        self.text = {name: pane() for name in names} | picker.text
        self.which = pmui.RadioButtonGroup.from_param(
            chosen.param.group, label="", description=None, size="small", width=250, margin=(8, 10, 6, 0)
        )
        self.next = button("Next group", "navigate_next", self._next, margin=(8, 6, 0, 0))
        keys = Keys({"p": lambda: picker.move(1), "n": lambda: picker.move(-1), "g": self._next})
        groups = pn.FlexBox(self.which, self.next, keys, margin=0)
        moves = pn.FlexBox(picker.easier, picker.harder, margin=0)
        self.body = grid(
            card(12, self.judged, self.head),
            card(8, self.text["curves"], plot(self.curves.figure, grows=True)),
            card(4, self.text["budget"], self.text["spent"], plot(self.budget.figure)),
            card(8, self.text["heat"], picker.tools, plot(picker.heat.figure, grows=True)),
            card(4, self.text["prompt"], plot(picker.plot.figure), self.text["about"], moves),
            card(8, self.text["group"], groups, self.text["line"], self.completions),
            side(
                4,
                card(12, self.text["seconds"], plot(self.seconds.figure)),
                card(12, self.text["commands"]),
                card(12, self.text["notes"]),
            ),
        )

    # what the reader does

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
        follow(self.steps, data.facts.room)
        put(self.judged, cards.judgement(data.diagnosis))
        put(self.head, cards.header(data.facts, data.curves, data.evaluation, data.budget, data.warnings))
        self._put("curves", cards.curves_head(data.curves, data.evaluation))
        self.curves.update(data.curves, data.evaluation)
        self._put("budget", cards.head("Where the budget went"))
        spent = cards.totals(data.budget, theme.BUDGET, "rollouts", data.reasons)
        self._put("spent", spent or cards.empty("Nothing spent yet", "No step is recorded yet."))
        self.budget.update(data.budget)
        self._put("seconds", cards.head("Where the seconds go", *cards.legend(data.seconds, theme.SECONDS)))
        self.seconds.update(data.seconds)
        commands = steering(data).commands
        self.curves.mark([c for c in commands if c.state == "applied" and c.kind in UNDOABLE])
        self._put("notes", cards.head("Notes") + cards.notes(data.notes))
        title = cards.head("What was asked of the run", "<span>lasting ones are marks over the curves</span>")
        self._put("commands", title + cards.command_table(commands, 8))
        self.picker.update(data)
        self._draw_group(data)

    def _draw_group(self, data: RunData) -> None:
        if self._held == self._group_asked():
            return
        self._held = None
        own = self.chosen.group == "chosen prompt"
        prompt = self.chosen.prompt if own else ""
        group = data.group(self.chosen.place, prompt) if prompt or not own else Group()
        self._group_step, self._group_rank = group.step, group.rank
        where = f"group {group.place + 1} of {group.of}" if group.rows and not own else one_line(group.prompt, 40)
        self._put("group", cards.head("Completions", f"<span>{html(where)}</span>"))
        self._put("line", cards.group_line(group))
        self.completions.empty = "Click a row of the heat map first." if own and not prompt else "No completion yet."
        self.completions.show(group)

    def _put(self, name: str, text: str) -> None:
        put(self.text[name], text)

    @property
    def queries(self) -> list[Query]:
        """The questions behind the cards."""
        run = {"run": self.chosen.run}
        return [
            Query("Learning: training", "reward_by_step", run),
            Query("Learning: evaluation", "page_evaluation", {**run, "since": -1}),
            Query("Where the budget went", "page_budget", run),
            *self.picker.queries(run),
            Query("Completions", "groups_of_step", {**run, "step": self._group_step}),
            Query("Where the seconds go", "timings_by_step", run),
            Query("Notes", "events", run),
        ]
