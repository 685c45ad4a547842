"""The difficulty page: how hard every prompt is and became, what one of them went through, and how far beliefs hold."""

from __future__ import annotations

import numpy as np
import panel as pn
import panel_material_ui as pmui

from workbench.views.data.difficulty import EDGE, LOSS, MANY, TRIES, Asking, Difficulty, Frontier, Listed, difficulty
from workbench.views.data.records import History, Prompts
from workbench.views.data.run import RunData, Source
from workbench.views.data.selection import OBSERVED, ORDERS, Selection
from workbench.views.data.sql_text import Asked
from workbench.views.data.text import percent
from workbench.views.pages.base import Page
from workbench.views.parts import cards
from workbench.views.parts.heatmap import HeatMap
from workbench.views.parts.keys import Keys
from workbench.views.parts.layout import card, grid, pane, plot, put
from workbench.views.parts.plots import PromptPlot, follow, steps_range
from workbench.views.parts.plots_difficulty import OUTCOMES, ZONES, AskedPlot, CalibrationPlot, HistogramPlot, ZonesPlot
from workbench.views.parts.steps import SharedSteps
from workbench.views.parts.table import Head, Line, Listing, because, cell

SMALL = {"size": "small", "variant": "outlined", "margin": (10, 6, 0, 0)}
FIELD = {"size": "small", "margin": (10, 12, 0, 0)}

ASKS = (
    Head("step", "n"),
    Head("asked", "n", "rollouts asked for in the step"),
    Head("believed", "n", "chance of solving believed before the step"),
    Head("solved", "n", "of the rollouts without a hint that were verified"),
    Head("tokens each", "n", "mean length of a rollout"),
    Head("asked because", "", "the numbers the decision was made from, as the method named them"),
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
    """Heat map, one prompt, calibration, frontier, forgotten and stuck prompts."""

    title, order = "Difficulty", 20
    choosing = "click a row of the heat map"

    def __init__(self, source: Source, chosen: Selection) -> None:
        super().__init__(source, chosen)
        self._drawing = False
        self._data: RunData | None = None
        self._first: tuple[str, int] | None = None
        self._asking, self._history = Asking(), History()
        self._build()

    def _build(self) -> None:
        self.steps = steps_range()
        SharedSteps(self.steps, self.chosen)
        self.heat = HeatMap(self.steps, self._choose_row, 470)
        self.prompt, self.made = PromptPlot(self.steps, 225), AskedPlot(self.steps)
        self.gauge, self.zones, self.histogram = CalibrationPlot(), ZonesPlot(self.steps), HistogramPlot()
        names = ("heat", "prompt", "about", "calibration", "frontier", "asks", "lists", "histogram", "made")
        self.text = {name: pane() for name in names}
        self.beliefs = pmui.Select(label="Chance of solving according to", options=[], width=240, **FIELD)
        self.beliefs.param.watch(self._believed, "value")
        self.order = pmui.Select.from_param(
            self.chosen.param.order,
            label="Order of prompts",
            description=None,
            options=list(ORDERS),
            width=180,
            **FIELD,
        )
        self.sort = pmui.Button(label="Sort anew", icon="sort", on_click=lambda _: self._resort(), **SMALL)
        self.up = pmui.Button(label="Easier (p)", icon="arrow_upward", on_click=lambda _: self._move(1), **SMALL)
        self.down = pmui.Button(label="Harder (n)", icon="arrow_downward", on_click=lambda _: self._move(-1), **SMALL)
        self.keys = Keys({"p": lambda: self._move(1), "n": lambda: self._move(-1)})
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
        self.asks = Listing(ASKS, self._picked_step, lambda _: self._draw_asks(), size=8, stacks=True)
        self.which = pmui.RadioButtonGroup(options=list(LISTS), value="forgotten", size="small", margin=(6, 0, 0, 0))
        self.which.param.watch(lambda _: self._other_list(), "value")
        columns = (Head("prompt", "text"), Head("best", "n"), Head("now", "n"), Head("tried", "n", "rollouts"),
                   Head("tokens wasted", "n", "tokens that taught nothing"))  # fmt: skip
        self.list = Listing(columns, self._picked_prompt, lambda _: self._draw_list(), size=8)
        self.gauged = plot(self.gauge.figure, grows=True)
        put(
            self.text["made"],
            f'<div class="head"><span>its rollouts</span>{"".join(cards.key(c, k) for k, c in OUTCOMES.items())}</div>',
        )
        tools = pn.FlexBox(self.beliefs, self.order, self.sort, margin=(0, 0, 2, 0))
        moves = pn.FlexBox(self.up, self.down, self.keys, margin=0)
        self.body = grid(
            card(8, self.text["heat"], tools, plot(self.heat.figure, grows=True)),
            card(
                4,
                self.text["prompt"],
                plot(self.prompt.figure),
                self.text["made"],
                plot(self.made.figure),
                self.text["about"],
                moves,
            ),
            card(5, self.text["frontier"], plot(self.zones.figure, grows=True)),
            card(4, self.text["histogram"], self.slider, plot(self.histogram.figure, grows=True)),
            card(3, self.text["calibration"], self.gauged),
            card(6, self.text["lists"], self.which, self.list),
            card(6, self.text["asks"], self.asks),
        )

    # what the reader does

    def _believed(self, event) -> None:
        if not self._drawing:
            self.chosen.belief = event.new or ""

    def _choose_row(self, row: int) -> None:
        if self._data is not None:
            self.chosen.prompt = str(self._data.prompts.id[row])

    def _move(self, by: int) -> None:
        if self._data is None or not self._data.step:
            return
        row = self.heat.neighbour(self._row(self._data), by)
        if row is not None:
            self._choose_row(row)

    def _resort(self) -> None:
        self.heat.sort_anew()
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
            options = data.beliefs
            belief = self.chosen.belief if self.chosen.belief in options else data.believed
            if self.beliefs.options != options:
                self.beliefs.options = options
            if self.beliefs.value != belief:
                self.beliefs.value = belief
            follow(self.steps, data.facts.room)
            self._draw_heat(data, known, belief)
            self._draw_prompt(data, known, belief)
            self._draw_frontier(data, known.frontier(data, belief))
            self._draw_calibration(data, known, belief)
            self._draw_list()
        finally:
            self._drawing = False

    def _draw_heat(self, data: RunData, known: Difficulty, belief: str) -> None:
        order = self.chosen.order
        amount = known.wasted if order == "waste" else data.asked
        self.heat.update(data.heat(belief), data.prompts, order, f"{data.run}|{belief}", amount)
        note = f"<span>{cards.difficulty_note(data.prompts, data.asked, belief)}</span>"
        put(self.text["heat"], cards.head("Difficulty of prompts", note))

    def _row(self, data: RunData) -> int:
        """The prompt looked at: the one chosen, or the one asked most at the first look."""
        row = data.prompts.row(self.chosen.prompt)
        if row is not None:
            return row
        if self._first is None or self._first[0] != data.run:
            self._first = data.run, int(data.asked.argmax())
        return self._first[1]

    def _draw_prompt(self, data: RunData, known: Difficulty, belief: str) -> None:
        row = self._row(data) if data.step else None
        self.heat.select(row)
        id_ = "" if row is None else str(data.prompts.id[row])
        history = self._history = data.history(id_, belief) if id_ else History()
        self._asking = known.asking(data, id_)
        self.prompt.update(history, data.step)
        self.made.update(self._asking, data.step)
        put(self.text["prompt"], cards.prompt_head(belief))
        put(self.text["about"], cards.prompt(history, belief))
        self._draw_asks()

    def _draw_asks(self) -> None:
        a = self._asking
        total = len(a.step)
        first = self.asks.page_of(total)
        believed = before(self._history, a.step)
        newest = range(total - 1 - first, max(total - 1 - first - self.asks.size, -1), -1)
        rows = [
            Line(
                f"{a.step[i]:.0f}",
                (f"{a.step[i]:,.0f}", f"{a.asked[i]:,.0f}", percent(believed[i]), f"{a.solved[i]:g} of {a.tried[i]:,.0f}", _tokens(a.length[i]),
                 because(a.why[i])),
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

    def _draw_calibration(self, data: RunData, known: Difficulty, belief: str) -> None:
        c = known.calibration(data, belief)
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
        lines = [_line(r, prompts) for r in found[first : first + self.list.size]]
        self.list.empty = LISTS[self.which.value]
        self.list.show(lines, len(found), chosen=self.chosen.prompt)
        what = "solved more often once than now" if self.which.value == "forgotten" else "tried often, never solved"
        put(
            self.text["lists"], cards.head("Prompts that need a look", f"<span>{what}; a row chooses the prompt</span>")
        )

    @property
    def asked(self) -> list[Asked]:
        """The questions behind the cards."""
        run = {"run": self.chosen.run}
        belief = self.beliefs.value or ""
        prompt = {
            **run,
            "prompt": str(self._data.prompts.id[self._row(self._data)])
            if self._data and len(self._data.prompts)
            else "",
        }
        if belief == OBSERVED:
            values, one = Asked("Difficulty, frontier", "page_observed", run), []
        else:
            values = Asked("Difficulty, frontier", "belief_map", {**run, "method": belief})
            one = [Asked("One prompt: beliefs", "beliefs_of_prompt", {**prompt, "method": belief})]
        return [
            values,
            Asked("Order by waste", "page_prompt_costs", run),
            *one,
            Asked("One prompt: outcomes, asks and reasons", "outcomes_of_prompt", prompt),
            *([] if belief == OBSERVED else [Asked("Calibration", "calibration", {**run, "method": belief})]),
            Asked("Forgotten prompts", "forgotten", run),
            Asked("Stuck prompts", "stuck", run),
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


def _tokens(length: float) -> str:
    return "–" if length != length else f"{length:,.0f}"


def _line(r: Listed, prompts: Prompts) -> Line:
    def at(share: float, step: int) -> dict | str:
        return "–" if not np.isfinite(share) else cell(percent(share), note=f"step {step:,}")

    text = cell(prompts.text[r.row], note=str(prompts.stratum[r.row]))
    return Line(
        str(prompts.id[r.row]), (text, at(r.best, r.best_step), at(r.now, r.last_step), f"{r.tried:,}", f"{r.wasted:,}")
    )
