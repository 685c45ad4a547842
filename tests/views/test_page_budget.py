"""The budget page draws the ledger, the savings and the logs, and what is clicked on it becomes the selection."""

import numpy as np
import pytest

from workbench.methods.dapo_dynamic_sampling import DapoDynamicSampling
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline
from workbench.views.data.budget import Entry
from workbench.views.data.records import Columns, thinned
from workbench.views.pages.budget import ordered
from workbench.views.parts import cards_budget
from workbench.views.parts.plots import steps_range
from workbench.views.parts.plots_budget import AskedPlot, SavingsPlot
from workbench.views.shell.dashboard import Dashboard


@pytest.fixture
def page(recording):
    def open_(pipeline=None, steps=4, **options):
        rec = recording(pipeline, **options).go(steps)
        shown = Dashboard(recording.store, names=("budget",))
        shown.source._asked = 0.0
        shown.tick()
        assert shown.shown is shown.page.body
        shown.rec = rec
        return shown

    return open_


def test_the_ledger_and_its_figures_are_shown(page):
    shown = page(Pipeline(Grpo(), DapoDynamicSampling()))
    text = {k: v.object for k, v in shown.page.text.items()}
    assert "for training" in text["ledger"] and "for evaluation" in text["ledger"] and "dropped" in text["ledger"]
    assert "Tokens generated" in text["figures"]
    assert "share no prefix" in text["savings"]


def test_a_row_of_prompts_and_of_the_log_sets_the_selection(page):
    shown = page()
    p = shown.page
    key = p.prompts.state["rows"][1]["key"]
    p.prompts._handle_msg({"pick": key})
    assert shown.chosen.prompt == key == p.prompts.state["chosen"]
    ask = p.asks.state["rows"][3]["key"]
    p.asks._handle_msg({"pick": ask})
    assert f"{shown.chosen.step}|{shown.chosen.prompt}" == ask == p.asks.state["chosen"]


def test_the_log_turns_pages_and_narrows_to_a_step(page):
    shown = page()
    p = shown.page
    assert p.asks.state["note"] == "1–12 of 32"
    p.asks._handle_msg({"turn": 1})
    assert p.asks.state["note"] == "13–24 of 32"
    shown.chosen.step = 2
    p.which.value = True
    assert p.asks.state["note"] == "" and len(p.asks.state["rows"]) == 8
    assert {r["cells"][0] for r in p.asks.state["rows"]} == {"2"}
    p.log.value = "tests inside rollouts"
    assert p.tests.visible and not p.asks.visible
    assert "Methods that fork" in p.tests.state["empty"][1]
    assert {a.question for a in p.queries} >= {"page_spent", "savings_by_step", "page_decisions", "ledger_by_step"}
    for a in p.queries:
        shown.source.store.sql(a.sql)


def test_units_change_the_bars(page):
    shown = page()
    p = shown.page
    assert sum(np.sum(p.stack.source.data[k]) for k in p.stack.colors) == 4 * 64
    shown.chosen.unit = "tokens"
    data = shown.source.run(shown.chosen.run)
    assert sum(np.sum(p.stack.source.data[k]) for k in p.stack.colors) == np.sum(data.curves.tokens)
    assert p.stack.figure.yaxis[0].axis_label == "tokens per step"


def test_a_run_without_steps_says_so(page):
    shown = page(steps=0)
    assert shown.page.prompts.state["empty"][0] == "No prompt was asked yet"
    assert shown.page.strata.state["rows"] == []
    assert "Nothing generated yet" in shown.page.text["savings"].object


def test_hostile_names_stay_text(page):
    shown = page(hostile=True)
    assert not any("<script>window" in v.object or "<img" in v.object for v in shown.page.text.values())
    html = cards_budget.ledger([Entry("train", "dropped", "<script>x</script>", 1, 2)], 3)
    assert "<script>x" not in html and "&lt;script&gt;x" in html and "3 rollouts of earlier steps" in html


def test_orders_of_prompts():
    total, wasted, rollouts = np.array([0, 40, 90, 8, 40]), np.array([0, 40, 10, 8, 10]), np.array([0, 8, 16, 2, 8])
    assert ordered("most spent", total, wasted, rollouts).tolist() == [2, 1, 4, 3]
    assert ordered("most wasted", total, wasted, rollouts).tolist() == [1, 2, 4, 3]
    assert ordered("largest share wasted", total, wasted, rollouts).tolist() == [1, 4, 2]
    assert ordered("least spent", total, wasted, rollouts).tolist() == [3, 1, 4, 2]


def test_savings_are_summed_to_the_last_step():
    columns = {"generated": [21.0, 10], "kept": [21.0, 8], "pruned": [0.0, 2], "flat_equivalent": [31.0, 8]}
    columns |= {"saved": [10.0, -2], "spared": [0.0, 5]}
    columns |= {"step": [1.0, 2.0], "discarded": [0.0, 0], "probe": [0.0, 0]}
    s = Columns(**{k: np.array(v) for k, v in columns.items()})
    plot = SavingsPlot(steps_range())
    plot.update(s)
    assert plot.source.data["saved"].tolist() == [10, 8]
    text = cards_budget.savings(s)
    assert "1.34 tokens" in text and "pruned" in text and "spared about 5 tokens" in text


def test_long_runs_are_drawn_as_means():
    step, mean = thinned(400, np.arange(1.0, 1001), np.arange(1.0, 1001))
    assert len(step) <= 400 and step[-1] == 1000
    assert (step[0], mean[0], mean[-1]) == (3, 2, 1000)
    plot = AskedPlot(steps_range())
    plot.update(Columns(**{k: np.arange(1.0, 6) for k in ("step", "asked", "spent", "useful")}))
    assert plot.source.data["spent"].tolist() == [1, 2, 3, 4, 5]
