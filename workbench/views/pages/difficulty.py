"""The difficulty page: how hard every prompt is and became, what one of them went through, and how far beliefs hold."""

from __future__ import annotations

import numpy as np
import panel as pn
import panel_material_ui as pmui

from workbench.views.data.difficulty import EDGE, LOSS, MANY, TRIES, Asks, Calibration, Difficulty, Frontier, difficulty
from workbench.views.data.records import History, Prompts
from workbench.views.data.run import RunData, Source
from workbench.views.data.selection import OBSERVED, Selection
from workbench.views.data.sql_text import Query
from workbench.views.data.text import percent
from workbench.views.pages.base import Page
from workbench.views.parts import cards
from workbench.views.parts.keys import Keys
from workbench.views.parts.layout import button, card, grid, pane, plot, put
from workbench.views.parts.plots import follow, steps_range
from workbench.views.parts.plots_difficulty import OUTCOMES, ZONES, AskedPlot, CalibrationPlot, HistogramPlot, ZonesPlot
from workbench.views.parts.prompt_picker import CHOOSING, PromptPicker
from workbench.views.parts.steps import SharedSteps
from workbench.views.parts.table import Column, Row, Table, because, cell

ASKS = (
    Column("step", "n"),
    Column("asked", "n", "rollouts asked for in the step"),
    Column("believed", "n", "chance of solving believed before the step"),
    Column("solved", "n", "of the rollouts without a hint that were verified"),
    Column("tokens each", "n", "mean length of a rollout"),
    Column("asked because", "", "the numbers the decision was made from, as the method named them"),
)
LISTED = (
    Column("prompt", "text"),
    Column("best", "n"),
    Column("now", "n"),
    Column("tried", "n", "rollouts"),
    Column("tokens wasted", "n", "tokens that taught nothing"),
)
LISTS = {
    "forgotten": (
        f"Forgotten: no prompt lost {100 * LOSS:.0f} points",
        f"A prompt stands here once its pass rate falls {100 * LOSS:.0f} points below its best step ({TRIES} rollouts or more).",
    ),
    "stuck": (
        f"Stuck: no prompt was tried {MANY} times in vain",
        f"A prompt stands here after {MANY} rollouts or more of which none was solved.",
    ),
}


class DifficultyPage(Page):
    """BinnedBeliefs map, one prompt, calibration, frontier, forgotten and stuck prompts."""

    title, order = "Difficulty", 20
    choosing = CHOOSING

    def __init__(self, source: Source, chosen: Selection) -> None:
        super().__init__(source, chosen)
        self._drawing = False
        self._data: RunData | None = None
        self._asks = Asks()
        self.steps = steps_range()
        SharedSteps(self.steps, self.chosen)
        self.picker = picker = PromptPicker(chosen, self.steps, (470, 225), keys=True, margin=10)
        self.made = AskedPlot(self.steps)
        self.gauge, self.zones, self.histogram = CalibrationPlot(), ZonesPlot(self.steps), HistogramPlot()
        names = ("calibration", "frontier", "asks", "lists", "histogram", "made")
        self.text = {name: pane() for name in names} | picker.text
        self.sort = button("Sort anew", "sort", self._resort)
        picker.tools.append(self.sort)
        self.keys = Keys({"p": lambda: picker.move(1), "n": lambda: picker.move(-1)})
        self.slider = pmui.IntSlider(
            label="After step",
            value=1,
            start=1,
            end=2,
            size="small",
            margin=(6, 18, 0, 10),
            sizing_mode="stretch_width",
        )
        self.slider.param.watch(self._slid, "value")
        self.asks = Table(ASKS, self._picked_step, lambda _: self._draw_asks(), size=8, stacks=True)
        self.which = pmui.RadioButtonGroup(options=list(LISTS), value="forgotten", size="small", margin=(6, 0, 0, 0))
        self.which.param.watch(lambda _: self._other_list(), "value")
        self.list = Table(LISTED, self._picked_prompt, lambda _: self._draw_list(), size=8)
        self.gauged = plot(self.gauge.figure, grows=True)
        keys = "".join(cards.key(color, name) for name, color in OUTCOMES.items())
        put(self.text["made"], f'<div class="head"><span>its rollouts</span>{keys}</div>')
        moves = pn.FlexBox(picker.easier, picker.harder, self.keys, margin=0)
        one = (self.text["prompt"], plot(picker.plot.figure), self.text["made"], plot(self.made.figure))
        self.body = grid(
            card(8, self.text["heat"], picker.tools, plot(picker.heat.figure, grows=True)),
            card(4, *one, self.text["about"], moves),
            card(5, self.text["frontier"], plot(self.zones.figure, grows=True)),
            card(4, self.text["histogram"], self.slider, plot(self.histogram.figure, grows=True)),
            card(3, self.text["calibration"], self.gauged),
            card(6, self.text["lists"], self.which, self.list),
            card(6, self.text["asks"], self.asks),
        )

    # what the reader does

    def _resort(self) -> None:
        self.picker.heat.sort_anew()
        self.chosen.param.trigger("order")

    def _slid(self, event) -> None:
        if not self._drawing and self._data is not None:
            self.chosen.step = 0 if event.new >= self._data.step else int(event.new)

    def _picked_step(self, step: str) -> None:
        self.chosen.step = int(step)

    def _picked_prompt(self, prompt: str) -> None:
        self.chosen.prompt = prompt

    def _other_list(self) -> None:
        self.list.first, self.list.empty = 0, LISTS[self.which.value]
        self._draw_list()

    # what the shell hands over

    def update(self, data: RunData, force: bool = False) -> None:
        """Every view takes what is new; what did not change is not sent."""
        self._data, self._drawing = data, True
        try:
            known = difficulty(data)
            follow(self.steps, data.facts.room)
            belief = self.picker.update(data)
            self._asks = known.asks(data, self.picker.prompt)
            self.made.update(self._asks.columns, data.step)
            self._draw_asks()
            self._draw_frontier(data, known.frontier(data, belief))
            self._draw_calibration(known.calibration(data, belief), belief)
            self._draw_list()
        finally:
            self._drawing = False

    def _draw_asks(self) -> None:
        a, why = self._asks
        total = len(a.step)
        first = self.asks.page_of(total)
        believed = before(self.picker.history, a.step)
        newest = range(total - 1 - first, max(total - 1 - first - self.asks.size, -1), -1)
        rows = [
            Row(
                f"{a.step[i]:.0f}",
                (f"{a.step[i]:,.0f}", f"{a.asked[i]:,.0f}", percent(believed[i]), f"{a.solved[i]:g} of {a.tried[i]:,.0f}", "–" if np.isnan(a.length[i]) else f"{a.length[i]:,.0f}",
                 because(why[i])),
            )
            for i in newest
        ]  # fmt: skip
        self.asks.empty = ("Not asked yet", "Each step in which this prompt is asked becomes a row, with its reasons.")
        self.asks.show(rows, total, chosen=str(self.chosen.step or ""))
        note = "<span>newest first, with the numbers behind each decision; a row sets the step</span>"
        put(self.text["asks"], cards.head("When this prompt was asked, and why", note))

    def _draw_frontier(self, data: RunData, frontier: Frontier) -> None:
        last = max(data.step, 1)
        step = min(self.chosen.step or last, last)
        if self.slider.end != max(last, 2):
            self.slider.end = max(last, 2)
        if self.slider.value != step:
            self.slider.value = step
        self.zones.update(frontier, step)
        counts = frontier.at(step)
        self.histogram.update(counts, frontier.at(1))
        put(self.text["frontier"], zones_head(frontier))
        known = int(counts[:-1].sum())
        note = f"<span>{known:,} of {frontier.n:,} prompts known; dashed: after step 1</span>"
        put(self.text["histogram"], cards.head(f"Believed chance after step {step:,}", note))

    def _draw_calibration(self, c: Calibration, belief: str) -> None:
        self.gauge.update(c)
        if self.gauged.visible != bool(len(c.tries)):
            self.gauged.visible = bool(len(c.tries))
        if belief == OBSERVED:
            text = cards.empty(
                "Nothing is believed", "Choose a method that keeps beliefs, such as mopps, to see whether they hold."
            )
        elif not len(c.tries):
            text = cards.empty("No outcome yet", "Points appear once a prompt with a belief was asked.")
        else:
            text = f"<div class='quiet'>mean gap <b>{100 * c.error:.1f} points</b> over {c.tries.sum():,.0f} rollouts; dashed: as believed</div>"
        put(self.text["calibration"], cards.head("Calibration") + text)

    def _draw_list(self) -> None:
        if self._data is None:
            return
        known, prompts = difficulty(self._data), self._data.prompts
        found = known.forgotten() if self.which.value == "forgotten" else known.stuck()
        first = self.list.page_of(len(found))
        lines = [_row(known, prompts, i) for i in found[first : first + self.list.size]]
        self.list.empty = LISTS[self.which.value]
        self.list.show(lines, len(found), chosen=self.chosen.prompt)
        what = "solved more often once than now" if self.which.value == "forgotten" else "tried often, never solved"
        note = f"<span>{what}; a row chooses the prompt</span>"
        put(self.text["lists"], cards.head("Prompts that need a look", note))

    @property
    def queries(self) -> list[Query]:
        """The questions behind the cards."""
        run, belief = {"run": self.chosen.run}, self.picker.beliefs.value or ""
        return [
            *self.picker.queries(run),
            Query("Order by waste", "page_prompt_costs", run),
            *([] if belief == OBSERVED else [Query("Calibration", "calibration", {**run, "method": belief})]),
            Query("Forgotten prompts", "forgotten", run),
            Query("Stuck prompts", "stuck", run),
        ]


def zones_head(frontier: Frontier) -> str:
    """Legend of the zones with their present shares."""
    now = {k: float(v[-1]) if len(v) else float("nan") for k, v in frontier.zones.items()}
    low, high = f"{100 * EDGE:.0f} %", f"{100 - 100 * EDGE:.0f} %"
    names = {
        "too hard": f"too hard, below {low}",
        "frontier": "frontier",
        "too easy": f"too easy, above {high}",
        "not known": "not known",
    }
    return cards.head("Where the pool stands", *(cards.key(ZONES[k], names[k], percent(now[k])) for k in ZONES))


def before(history: History, step: np.ndarray) -> np.ndarray:
    """(A,) what was believed before each step; NaN where nothing was."""
    at = np.searchsorted(history.step, step, "left") - 1
    return np.where(at >= 0, np.append(history.mean, np.nan)[at], np.nan)


def _row(known: Difficulty, prompts: Prompts, i: int) -> Row:
    """A prompt that is forgotten or stuck, by its place in the pool."""

    def at(share: float, step: int) -> dict | str:
        return "–" if not np.isfinite(share) else cell(percent(share), note=f"step {step:,}")

    best, now = at(known.best[i], known.best_step[i]), at(known.now[i], known.last_step[i])
    text = cell(prompts.text[i], note=str(prompts.stratum[i]))
    return Row(str(prompts.id[i]), (text, best, now, f"{known.tried[i]:,.0f}", f"{known.wasted[i]:,}"))
