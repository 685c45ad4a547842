"""Prompt picker: the heat map of difficulty with its belief and order, and the prompt that is chosen."""

from __future__ import annotations

from collections.abc import Mapping

import panel as pn
import panel_material_ui as pmui
from bokeh.models import Range1d

from workbench.views.data.difficulty import amount
from workbench.views.data.records import History
from workbench.views.data.run import RunData
from workbench.views.data.selection import OBSERVED, ORDERS, Selection
from workbench.views.data.sql_text import Query
from workbench.views.parts import cards
from workbench.views.parts.heatmap import HeatMap
from workbench.views.parts.layout import button, field, pane, put
from workbench.views.parts.plots import PromptPlot

CHOOSING = "click a row of the heat map"
"""How a prompt is chosen on a page with this part."""


class PromptPicker:
    """Widgets and figures that pages about prompts share; `update` follows the run and the selection.

    heat, plot: the figures. tools: choice of belief and order. text: panes "heat", "prompt" (their titles) and "about"
    (the prompt). easier, harder: buttons to the neighbouring rows. history: of the prompt that is shown."""

    def __init__(
        self, chosen: Selection, steps: Range1d, heights: tuple[int, int], keys: bool = False, margin: int = 8
    ) -> None:
        self.chosen, self.prompt, self.history = chosen, "", History()
        self.data: RunData | None = None
        self._drawing, self._first = False, ("", 0)
        self.heat, self.plot = HeatMap(steps, self._choose_row, heights[0]), PromptPlot(steps, heights[1])
        self.text = {name: pane() for name in ("heat", "prompt", "about")}
        self.beliefs = field(pmui.Select, "Chance of solving according to", 240, options=[])
        self.beliefs.param.watch(self._choose_belief, "value")
        order = chosen.param.order
        self.order = field(
            pmui.Select.from_param, "Order of prompts", 180, order, description=None, options=list(ORDERS)
        )
        self.tools = pn.FlexBox(self.beliefs, self.order, margin=(0, 0, 2, 0))
        up, down = ("Easier (p)", "Harder (n)") if keys else ("Easier", "Harder")
        place = {"margin": (margin, 6, 0, 0)}
        self.easier = button(up, "arrow_upward", lambda: self.move(1), **place)
        self.harder = button(down, "arrow_downward", lambda: self.move(-1), **place)

    def _choose_belief(self, event) -> None:
        if not self._drawing:
            self.chosen.belief = event.new or ""

    def _choose_row(self, row: int) -> None:
        if self.data is not None:
            self.chosen.prompt = str(self.data.prompts.id[row])

    def move(self, by: int) -> None:
        """Choose the prompt `by` rows above in the order drawn."""
        if self.data is not None and self.data.step:
            row = self.heat.neighbour(self.row(self.data), by)
            if row is not None:
                self._choose_row(row)

    def row(self, data: RunData) -> int:
        """The prompt looked at: the one chosen, or the one asked most at the first look."""
        row = data.prompts.row(self.chosen.prompt)
        if row is not None:
            return row
        if self._first[0] != data.run:
            self._first = data.run, int(data.asked.argmax())
        return self._first[1]

    def update(self, data: RunData) -> str:
        """Draw the heat map and the prompt; returns the belief that is shown."""
        self.data, order, options = data, self.chosen.order, data.beliefs
        belief = self.chosen.belief if self.chosen.belief in options else data.believed
        self._drawing = True
        try:
            if self.beliefs.options != options:
                self.beliefs.options = options
            if self.beliefs.value != belief:
                self.beliefs.value = belief
        finally:
            self._drawing = False
        self.heat.update(data.heat(belief), data.prompts, order, f"{data.run}|{belief}", amount(data, order))
        note = f"<span>{cards.difficulty_note(data.prompts, data.asked, belief)}</span>"
        put(self.text["heat"], cards.head("Difficulty of prompts", note))
        row = self.row(data) if data.step else data.prompts.row(self.chosen.prompt)
        self.heat.select(row)
        self.prompt = "" if row is None else str(data.prompts.id[row])
        self.history = data.history(self.prompt, belief) if self.prompt else History()
        self.plot.update(self.history, data.step)
        put(self.text["prompt"], cards.prompt_head(belief))
        put(self.text["about"], cards.prompt(self.history, belief))
        return belief

    def queries(self, run: Mapping[str, object]) -> list[Query]:
        """The questions behind the heat map and the prompt."""
        belief, prompt = self.beliefs.value or "", {**run, "prompt": self.prompt}
        if belief == OBSERVED:
            found = [Query("Difficulty of prompts", "page_observed", run)]
        else:
            found = [
                Query("Difficulty of prompts", "belief_map", {**run, "method": belief}),
                Query("One prompt: beliefs", "beliefs_of_prompt", {**prompt, "method": belief}),
            ]
        return [*found, Query("One prompt: outcomes, asks and reasons", "outcomes_of_prompt", prompt)]
