"""The signs page: how often advantages point the wrong way, where, and why."""

from __future__ import annotations

import threading

import panel as pn
import panel_material_ui as pmui

from workbench.views.data.groups import place_of
from workbench.views.data.pair import PAIR, Pair, compared, estimators
from workbench.views.data.run import RunData, Source
from workbench.views.data.selection import Selection
from workbench.views.data.signs import RATES, Rates, against, rates
from workbench.views.data.sql_text import Query
from workbench.views.data.text import html
from workbench.views.data.tokens import siblings
from workbench.views.pages.base import Page
from workbench.views.parts import cards, theme
from workbench.views.parts.layout import card, grid, pane, plot, put, side
from workbench.views.parts.picker import CHOOSING, GroupPicker, about
from workbench.views.parts.plots import follow, steps_range
from workbench.views.parts.signs import PairPlot, RatesPlot, StripPlot
from workbench.views.parts.signs_text import (
    against_table,
    bins_table,
    counted,
    explain,
    rates_head,
    rollouts_table,
    strip_head,
)
from workbench.views.parts.steps import SharedSteps

BEST = "best there is"


class SignsPage(Page):
    """Rates over steps, by group size and difficulty, of two estimators, and one group against its reference."""

    title, order = "Signs", 60
    choosing = CHOOSING

    def __init__(self, source: Source, chosen: Selection) -> None:
        super().__init__(source, chosen)
        self._data: RunData | None = None
        self._following = False
        self._pair: tuple[str, tuple[str, ...], Pair | str] | None = None
        self.steps = steps_range()
        SharedSteps(self.steps, self.chosen)
        self.text = {
            n: pane() for n in ("rates", "of", "bins", "table", "pair", "pair_note", "head", "strip", "refs", "why")
        }
        self.rates, self.pair, self.strip = RatesPlot(self.steps), PairPlot(), StripPlot()
        small = {"size": "small", "margin": (10, 12, 0, 0)}
        self.kind = pmui.Select(
            label="Reference", options=[BEST, "pool", "posterior", "small pool"], value=BEST, width=190, **small
        )
        self.rate = pmui.RadioButtonGroup(options=list(RATES), value="hard", size="small", margin=(10, 12, 4, 0))
        names = estimators()
        self.first = pmui.Select(label="Estimator", options=names, value=PAIR[0], width=170, **small)
        self.second = pmui.Select(label="against", options=names, value=PAIR[1], width=170, **small)
        self.go = pmui.Button(
            label="Compare",
            icon="balance",
            variant="outlined",
            size="small",
            margin=(12, 0, 0, 0),
            on_click=self._compare,
        )
        self._figure = plot(self.pair.figure)
        self._figure.visible = False
        self.picker = GroupPicker(chosen)
        for widget in (self.kind, self.rate):
            widget.param.watch(lambda _: self._drawn(), "value")
        for widget in (self.first, self.second):
            widget.param.watch(self._paired, "value")
        self.body = grid(
            card(7, self.text["rates"], self.kind, plot(self.rates.figure), self.text["of"]),
            card(5, self.text["bins"], self.rate, self.text["table"]),
            card(8, self.text["head"], self.picker.row, self.text["strip"], plot(self.strip.figure), self.text["refs"]),
            side(
                4,
                card(12, self.text["why"]),
                card(12, self.text["pair"], pn.FlexBox(self.first, self.second, self.go, margin=0), self._figure, self.text["pair_note"]),
            ),
        )  # fmt: skip

    def update(self, data: RunData, force: bool = False) -> None:
        """Take in the steps that are new."""
        self._data = data
        follow(self.steps, data.facts.room)
        first, second = self._names()
        self._following = True
        try:
            self.first.value, self.second.value = first, second
        finally:
            self._following = False
        self._drawn()

    def _names(self) -> tuple[str, str]:
        known = [n for n in self.chosen.pair if n in self.first.options]
        first, second = (known + [n for n in PAIR if n not in known])[:2]
        return first, second

    def _paired(self, event) -> None:
        """Two that differ: who picks the one on the other side changes the sides."""
        if self._following:
            return
        if self.first.value == self.second.value:
            self.chosen.pair = list(reversed(self._names()))
        else:
            self.chosen.pair = [self.first.value, self.second.value]

    def _drawn(self) -> None:
        data = self._data
        if data is None:
            return
        found, span = rates(data)
        mine = self._of_kind(found)
        kind = str(mine.kind[0]) if len(mine.kind) else "posterior"
        total = mine.counts.sum(0)
        put(self.text["rates"], rates_head(kind, total))
        put(self.text["of"], counted(kind, total) if len(mine.kind) else cards.empty("No rate yet", NO_RATE))
        self.rates.update(mine)
        put(self.text["bins"], cards.head("By group size and difficulty", f"<span>{html(kind)}</span>"))
        put(self.text["table"], bins_table(mine, self.rate.value, span))
        self._draw_group(data)
        self._draw_pair(data)

    def _of_kind(self, found: Rates) -> Rates:
        """The rates against the reference asked for; the best one is that which has something to count."""
        if self.kind.value != BEST:
            return found.take(found.kind == self.kind.value)
        for kind in ("pool", "posterior", "small pool"):
            mine = found.take(found.kind == kind)
            if len(mine.kind) and mine.counts[:, 3].sum() > 0:
                return mine
        return found.take(found.kind == "small pool")

    def _draw_group(self, data: RunData) -> None:
        place = place_of(data, self.chosen)
        self.picker.update(place, data.step)
        span = rates(data)[1]
        title = "One group against its reference"
        if place is None:
            put(self.text["head"], cards.head(title))
            put(
                self.text["refs"], cards.empty("No group yet", "The first group appears as soon as a step is recorded.")
            )
            put(self.text["why"], cards.head("Why signs flip, or cannot") + explain(span, (), ()))
            return
        rows = siblings(data, place.group)
        found = against(data, place.group, rows)
        put(self.text["head"], about(place, title))
        put(self.text["strip"], strip_head(found, rows))
        self.strip.update(rows, found[0] if found else None)
        put(self.text["refs"], against_table(found, rows) + rollouts_table(rows, found))
        put(self.text["why"], cards.head("Why signs flip, or cannot") + explain(span, rows, found))

    def _draw_pair(self, data: RunData) -> None:
        names = self._names()
        put(
            self.text["pair"],
            cards.head("Two estimators on the same rollouts", f"<span>{html(self.rate.value)}</span>"),
        )
        known = self._pair if self._pair and self._pair[:2] == (data.run, names) else None
        self._figure.visible = known is not None and not isinstance(known[2], str)
        if known is None:
            put(self.text["pair_note"], ASK)
        elif isinstance(known[2], str):
            put(self.text["pair_note"], cards.error("These two could not be compared", known[2]))
        else:
            self.pair.update(known[2].rows, names, self.rate.value)
            keys = [cards.key(theme.LEARNING, names[0]), cards.key(theme.MOVES, names[1])]
            note = f"Against a {known[2].kind}. {known[2].note}. Bars: 95 % intervals over prompts."
            put(
                self.text["pair_note"],
                f'<div class="head">{"".join(keys)}</div><div class="quiet">{html(note, 600)}</div>',
            )

    def _compare(self, event) -> None:
        """Compare in a thread of its own: other viewers of this server do not wait for it."""
        data, names, page = self._data, self._names(), pn.state.curdoc
        if data is None or not data.step:
            return
        self.go.param.update(loading=True, disabled=True)
        put(self.text["pair_note"], '<div class="quiet">Drawing groups of every size from the newest steps …</div>')

        def work() -> None:
            try:
                made: Pair | str = compared(data, names)
            except Exception as problem:  # of an estimator on these rollouts: told in its place
                made = f"{type(problem).__name__}: {problem}"
            if page is None:
                self._compared((data.run, names, made))
            else:
                page.add_next_tick_callback(lambda: self._compared((data.run, names, made)))

        threading.Thread(target=work, name="compare estimators", daemon=True).start()

    def _compared(self, made: tuple[str, tuple[str, ...], Pair | str]) -> None:
        self._pair = made
        self.go.param.update(loading=False, disabled=False)
        if self._data is not None:
            self._draw_pair(self._data)

    @property
    def queries(self) -> list[Query]:
        """The questions behind the cards."""
        run, place = {"run": self.chosen.run}, self.picker.place
        found = [
            Query("Signs against a pool, by step", "sign_flips", {**run, "since": 0}),
            Query("Signs against a pool, by group size and difficulty", "page_signs", {**run, "since": 0}),
            Query("Signs against a posterior: what it is made from", "page_sign_rows", {**run, "since": 0}),
        ]
        if place is None:
            return found
        g = place.group
        return [
            *found,
            Query(
                "One group: rollouts and baseline",
                "page_siblings",
                {**run, "step": g.step, "rank": g.rank, "group": g.group},
            ),
            Query("One group: its references", "page_reference", {**run, "prompt": g.prompt, "step": g.step}),
        ]


NO_RATE = (
    "No trained rollout has a reference of this kind. Choose another one, or record a pool with <code>probe_set</code>."
)
ASK = (
    '<div class="quiet">Compare draws groups of 2, 4, 8 and 16 from the newest recorded rollouts and lets both estimators '
    "judge each of them. It takes some seconds; training is not touched.</div>"
)
