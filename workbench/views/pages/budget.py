"""The budget page: where rollouts and tokens went, for which prompts, by whose decision, and what was saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import panel as pn
import panel_material_ui as pmui

from workbench.views.data.budget import OTHER, Spending, asks, budget, decisions
from workbench.views.data.records import Stack
from workbench.views.data.run import RunData, Source
from workbench.views.data.selection import Selection
from workbench.views.data.sql_text import Query
from workbench.views.data.text import count, percent
from workbench.views.pages.base import Page
from workbench.views.parts import cards, cards_budget, theme
from workbench.views.parts.layout import card, grid, pane, plot, put
from workbench.views.parts.plots import StackPlot, follow, steps_range
from workbench.views.parts.plots_budget import KINDS, LINES, PARTS, AskedPlot, SavingsPlot
from workbench.views.parts.steps import SharedSteps
from workbench.views.parts.table import Column, Row, Table, because, cell, number

LOGS = ("asks", "tests inside rollouts")
SORTS = ("most spent", "most wasted", "largest share wasted", "least spent")
LEAST = 8
"""Rollouts from which a prompt's share of waste is looked at."""

PROMPTS = (Column("prompt", "text"), Column("rollouts", "n"), Column("tokens", "n"), Column("wasted", "n", "zero advantage, dropped, pruned, discarded or failed"), Column("where it went", "bar"))  # fmt: skip
STRATA = (
    Column("stratum"),
    Column("rollouts", "n"),
    Column("tokens", "n"),
    Column("wasted", "n"),
    Column("where it went", "bar"),
)
ASKS = (Column("step", "n"), Column("prompt", "text"), Column("purpose", "line"), Column("asked", "n"), Column("solved", "n"), Column("tokens", "n"), Column("asked because", "", "the numbers the decision was made from"))  # fmt: skip
TESTS = (Column("step", "n"), Column("kind", "line"), Column("outcome", "line"), Column("at", "", "node or rollout, and its token"), Column("from these numbers"), Column("stands for", "n", "tests that this row stands for"))  # fmt: skip


class BudgetPage(Page):
    """Ledger by fate and purpose, by prompt and stratum; asked against spent; logs of decisions; savings."""

    title, order = "Budget", 30
    choosing = "click a row of By prompt"

    def __init__(self, source: Source, chosen: Selection) -> None:
        super().__init__(source, chosen)
        self._data: RunData | None = None
        self._build()

    def _build(self) -> None:
        c, chosen = {"size": "small", "margin": (6, 12, 4, 0)}, self.chosen
        self.steps = steps_range()
        SharedSteps(self.steps, self.chosen)
        self.stack = StackPlot(self.steps, KINDS, "rollouts per step", "rollouts", 270)
        self.made, self.saved = AskedPlot(self.steps), SavingsPlot(self.steps)
        names = ("figures", "stack", "ledger", "asked", "savings", "strata", "prompts", "log")
        self.text = {name: pane() for name in names}
        self.unit = pmui.RadioButtonGroup.from_param(chosen.param.unit, label="", description=None, **c)
        self.sort = pmui.Select(label="Order", options=list(SORTS), value=SORTS[0], width=190, size="small", margin=(10, 12, 0, 0))  # fmt: skip
        self.log = pmui.RadioButtonGroup(options=list(LOGS), value=LOGS[0], width=240, **c)
        self.which = pmui.Checkbox(label="only the step looked at", value=False, size="small", margin=(2, 12, 0, 0))
        self.done = pmui.Checkbox(label="only what changed something", value=False, size="small", margin=(2, 12, 0, 0))
        self.strata = Table(STRATA, size=8, turned=lambda _: self._draw_strata())
        self.prompts = Table(PROMPTS, self._picked, lambda _: self._draw_prompts(), size=8)
        self.asks = Table(ASKS, self._picked_ask, lambda _: self._draw_log(), size=12, stacks=True)
        self.tests = Table(TESTS, turned=lambda _: self._draw_log(), size=12, stacks=True, visible=False)
        self.sort.param.watch(lambda _: self._again(self.prompts, self._draw_prompts), "value")
        for widget in (self.log, self.which, self.done):
            widget.param.watch(lambda _: self._again(self._listed, self._draw_log), "value")
        self.body = grid(
            card(12, self.text["figures"]),
            card(8, self.text["stack"], self.unit, plot(self.stack.figure, grows=True)),
            card(4, self.text["ledger"]),
            card(8, self.text["asked"], plot(self.made.figure, grows=True)),
            card(4, self.text["savings"], plot(self.saved.figure)),
            card(5, self.text["strata"], self.strata),
            card(7, self.text["prompts"], self.sort, self.prompts),
            card(12, self.text["log"], pn.FlexBox(self.log, self.which, self.done, margin=0), self.asks, self.tests),
        )

    # what the reader does

    def _picked(self, prompt: str) -> None:
        self.chosen.prompt = prompt

    def _picked_ask(self, key: str) -> None:
        step, prompt = key.split("|", 1)
        self.chosen.param.update(step=int(step), prompt=prompt)

    @staticmethod
    def _again(listing: Table, draw) -> None:
        listing.first = 0
        draw()

    @property
    def _listed(self) -> Table:
        return self.asks if self.log.value == LOGS[0] else self.tests

    # what the shell hands over

    def update(self, data: RunData, force: bool = False) -> None:
        """Every view takes what is new; what did not change is not sent."""
        self._data = data
        b = budget(data)
        follow(self.steps, data.facts.room)
        put(self.text["figures"], cards_budget.figures(b, data.curves))
        self._draw_stack(b)
        put(
            self.text["ledger"],
            cards.head("Ledger", "<span>the whole run</span>") + cards_budget.ledger(b.ledger, b.used_again),
        )
        lines = (
            ("asked", "asked for", "dots"),
            ("spent", "generated", "line"),
            ("useful", "trained on with signal", "line"),
        )
        keys = [cards.key(LINES[name], label, form=form) for name, label, form in lines]
        put(self.text["asked"], cards.head("Asked and spent", *keys))
        self.made.update(b.asked)
        keys = (
            cards.key(LINES["spent"], "tokens generated", form="line"),
            cards.key(theme.ASKED, "one by one", form="dots"),
        )
        put(self.text["savings"], cards.head("Saved by sharing and cutting", *keys) + cards_budget.savings(b.savings))
        self.saved.update(b.savings)
        self._draw_strata()
        self._draw_prompts()
        self._draw_log()

    def _draw_stack(self, b: Spending) -> None:
        unit = self.chosen.unit
        self.stack.figure.yaxis.axis_label = f"{unit} per step"
        stack = b.stacks[unit]
        self.stack.update(stack)
        put(self.text["stack"], cards.head("Where the budget went", *cards.legend(_known(stack), KINDS)))

    def _draw_strata(self) -> None:
        if self._data is None:
            return
        b, unit = budget(self._data), self.chosen.unit
        by, names, cost = b.by_stratum, b.strata, b.cost
        order = np.argsort(-by.total(unit), kind="stable")
        first = self.strata.page_of(len(names))
        rows = [_costs("", cell(names[i] or "(no name)"), by, unit, i, by.total(unit).max(initial=1)) for i in order[first : first + self.strata.size]]  # fmt: skip
        self.strata.show(rows if by.total(unit).any() else [], len(names) if by.total(unit).any() else 0)
        put(self.text["strata"], cards.head("By stratum", *(cards.key(PARTS[p], p) for p in PARTS if p != OTHER or cost.rollouts[OTHER].any())))  # fmt: skip

    def _draw_prompts(self) -> None:
        if self._data is None:
            return
        cost, unit, prompts = budget(self._data).cost, self.chosen.unit, self._data.prompts
        total, wasted = cost.total(unit), cost.wasted(unit)
        rows = ordered(self.sort.value, total, wasted, cost.total("rollouts"))
        first = self.prompts.page_of(len(rows))
        most = total.max(initial=1)
        lines = [
            _costs(str(prompts.id[i]), cell(prompts.text[i], note=str(prompts.stratum[i])), cost, unit, i, most)
            for i in rows[first : first + self.prompts.size]
        ]
        self.prompts.empty = ("No prompt was asked yet", "Prompts stand here with what they cost once a step was made.")
        self.prompts.show(lines, len(rows), chosen=self.chosen.prompt)
        note = f"<span>bars are {unit}, the longest {count(float(most))}; a row chooses the prompt</span>"
        put(self.text["prompts"], cards.head("By prompt", note))

    def _draw_log(self) -> None:
        data = self._data
        if data is None:
            return
        of_asks = self.log.value == LOGS[0]
        step = (self.chosen.step or data.step) if self.which.value else None
        for listing, on in ((self.asks, of_asks), (self.tests, not of_asks)):
            if listing.visible != on:
                listing.visible = on
        if self.done.visible == of_asks:
            self.done.visible = not of_asks
        listing, where = self._listed, f" of step {step:,}" if step else ""
        if of_asks:
            found, total = asks(data, listing.first, listing.size, step)
            if not found and listing.page_of(total) != listing.first:
                found, total = asks(data, listing.first, listing.size, step)
            listing.empty = (
                f"No ask{where} yet",
                "Each ask of a step's plan becomes a row: how many rollouts, and why.",
            )
            chosen = f"{self.chosen.step}|{self.chosen.prompt}"
            listing.show([_ask(r) for r in found], total, chosen=chosen)
            note = "how many rollouts of which prompt, and the scores behind it; a row sets step and prompt"
        else:
            made, total = decisions(data, listing.first, listing.size, step, self.done.value)
            listing.empty = (f"No test inside a rollout{where}", "Methods that fork, prune or branch rollouts, such as latr, branchgrpo or arrol, leave a row for each test.")  # fmt: skip
            listing.show([_test(r) for r in made], total)
            note = (
                " · ".join(
                    f"{cards.html(k, 20)} {cards.html(what, 40)}: {n:,.0f}"
                    for (k, what), n in _most(budget(data).tests)
                )
                or "forks, cuts and branches"
            )
        put(self.text["log"], cards.head("Decisions", f"<span>newest step first; {note}</span>"))

    @property
    def queries(self) -> list[Query]:
        """The questions behind the cards."""
        run = {"run": self.chosen.run}
        step = (self.chosen.step or (self._data.step if self._data else 0)) if self.which.value else None
        page = {**run, "step": step, "first": self._listed.first, "limit": self._listed.size}
        log = (
            ("page_asks", page) if self.log.value == LOGS[0] else ("page_decisions", {**page, "done": self.done.value})
        )
        return [
            Query("Ledger, where the budget went", "page_spent", run),
            Query("Ledger: does every step add up", "ledger_by_step", run),
            Query("Ledger: evaluation", "page_evaluation", run),
            Query("Asked and spent", "page_asked", run),
            Query("Saved by sharing and cutting", "savings_by_step", run),
            Query("By prompt and stratum", "page_prompt_costs", run),
            Query("Decisions", *log),
            Query("Decisions by kind", "decisions_by_kind", run),
        ]


def ordered(kind: str, total: np.ndarray, wasted: np.ndarray, rollouts: np.ndarray) -> np.ndarray:
    """Rows of the prompts that cost anything, in one of SORTS; ties keep the order of the pool."""
    on = np.flatnonzero(total > 0)
    if kind == "largest share wasted":
        on = on[rollouts[on] >= LEAST]
        return on[np.lexsort((-wasted[on], -wasted[on] / total[on]))]
    if kind == "least spent":
        return on[np.argsort(total[on], kind="stable")]
    return on[np.argsort(-(wasted if kind == "most wasted" else total)[on], kind="stable")]


def _known(stack: Stack) -> Stack:
    return Stack(stack.step, {k: v for k, v in stack.amount.items() if k in KINDS}, stack.width)


def _most(tests: dict[tuple[str, str], float], n: int = 4) -> list[tuple[tuple[str, str], float]]:
    return sorted(tests.items(), key=lambda item: -item[1])[:n]


def _costs(key: str, name: dict, cost, unit: str, i: int, most: float) -> Row:
    parts = getattr(cost, unit)
    bars = [(float(v[i]) / most, PARTS[p], f"{p}: {int(v[i]):,} {unit}") for p, v in parts.items() if v[i]]
    whole = cost.total("tokens")[i]
    lost = cost.wasted("tokens")[i] / whole if whole else float("nan")
    return Row(key, (name, f"{int(cost.total('rollouts')[i]):,}", f"{int(whole):,}", percent(lost), cell(bars=bars)))


def _ask(r: Mapping[str, Any]) -> Row:
    solved = "–" if r["solved"] is None or not r["tried"] else f"{r['solved']:g} of {r['tried']:,}"
    start = "" if r["start_kind"] == "prompt" else f"from a {r['start_kind']}"
    purpose = " · ".join(x for x in (f"round {r['round'] + 1}" if r["round"] else "", r["context"], start) if x)
    prompt = cell(r["text"] or r["prompt_id"], note=r["stratum"] or "")
    cells = (
        prompt,
        cell(r["purpose"], note=purpose),
        f"{r['n']:,}",
        solved,
        f"{r['tokens']:,}",
        because(dict(r["why"] or ())),
    )
    return Row(f"{r['step']}|{r['prompt_id']}", (f"{r['step']:,}", *cells))


def _test(r: Mapping[str, Any]) -> Row:
    prompt, inputs = r["prompt_id"], dict(r["inputs"] or ())
    at = cell(r["node_id"], note=f"token {r['at_token'] or 0:,}" + (f" · {prompt}" if prompt else ""))
    weight = 1.0 if r["weight"] is None else r["weight"]
    numbers = cell(chips=inputs) if inputs else "–"
    return Row("", (f"{r['step']:,}", r["kind"] or "", r["outcome"] or "", at, numbers, number(weight)))
