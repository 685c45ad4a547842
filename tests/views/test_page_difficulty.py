"""The difficulty page draws what was recorded, and what is clicked on it becomes the selection."""

import numpy as np
import pytest

from workbench.methods.dars import Dars
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline
from workbench.views.data.records import Columns, History
from workbench.views.pages.difficulty import before
from workbench.views.parts.keys import Keys
from workbench.views.parts.plots_difficulty import AskedPlot, HistogramPlot
from workbench.views.parts.table import Column, Row, Table, because, cell, number
from workbench.views.shell.dashboard import Dashboard


@pytest.fixture
def page(recording):
    def open_(pipeline=None, steps=6, **options):
        rec = recording(pipeline, **options).go(steps)
        shown = Dashboard(recording.store, names=("difficulty",))
        shown.source._asked = 0.0
        shown.tick()
        assert shown.shown is shown.page.body
        shown.rec = rec
        return shown

    return open_


def tick(shown):
    shown.source._asked = 0.0
    shown.tick()
    assert not shown.message.visible and shown.shown is shown.page.body


def test_one_prompt_with_its_asks_and_reasons(page):
    shown = page()
    p, data = shown.page, shown.source.run(shown.chosen.run)
    row = int(data.asked.argmax())
    assert sum(p.made.source.data["asked"]) == data.asked[row]
    rows = p.asks.state["rows"]
    assert [r["key"] for r in rows] == sorted((r["key"] for r in rows), key=int, reverse=True)
    assert [name for name, _ in rows[0]["cells"][5]["chips"]] == ["draw", "distance"]
    assert rows[0]["cells"][2].endswith(" %")
    p.asks._handle_msg({"pick": rows[-1]["key"]})
    assert shown.chosen.step == int(rows[-1]["key"])
    assert f"after step {shown.chosen.step}" in p.text["histogram"].object
    assert p.slider.value == shown.chosen.step


def test_a_click_in_a_list_chooses_the_prompt(page):
    shown = page(steps=12)
    p = shown.page
    p.which.value = "stuck"
    key = p.list.state["rows"][0]["key"]
    p.list._handle_msg({"pick": key})
    assert shown.chosen.prompt == key
    assert p.list.state["chosen"] == key
    p.list._handle_msg({"pick": "a prompt that is not there"})
    assert shown.chosen.prompt == key


def test_keys_go_to_the_neighbour_in_the_order_drawn(page):
    shown = page()
    p, data = shown.page, shown.source.run(shown.chosen.run)
    start = p.picker.row(data)
    p.keys._handle_msg({"key": "p"})
    above = data.prompts.row(shown.chosen.prompt)
    at = p.picker.heat.order.tolist()
    assert at.index(above) == min(at.index(start) + 1, len(at) - 1)
    p.keys._handle_msg({"key": "n"})
    assert data.prompts.row(shown.chosen.prompt) == at[at.index(above) - 1]


def test_the_map_is_sorted_by_waste_and_again_on_demand(page):
    shown = page(steps=3)
    p, data = shown.page, shown.source.run(shown.chosen.run)
    shown.chosen.order = "waste"
    from workbench.views.data.difficulty import difficulty

    wasted = difficulty(data).wasted
    assert (np.diff(wasted[p.picker.heat.order]) >= 0).all()
    shown.rec.go(4)
    tick(shown)
    p.sort.clicks += 1
    assert (np.diff(difficulty(data).wasted[p.picker.heat.order]) >= 0).all()


def test_a_run_without_beliefs_says_what_to_do(page):
    shown = page(Pipeline(Grpo()), steps=2)
    assert "Choose a method that keeps beliefs" in shown.page.text["calibration"].object


def test_a_run_without_steps_is_drawn(page):
    shown = page(steps=0)
    assert shown.page.asks.state["empty"][0] == "Not asked yet"
    assert shown.page.list.state["rows"] == []
    tick(shown)


def test_new_steps_move_the_page(page):
    shown = page(steps=2)
    shown.rec.go(2)
    tick(shown)
    assert shown.page.slider.end == 4 and shown.page.slider.value == 4
    assert shown.page.zones.source.data["step"].tolist() == [1, 2, 3, 4]


def test_every_view_has_its_question(page):
    shown = page(steps=2)
    asked = shown.page.queries
    assert {a.view for a in asked} >= {"Calibration", "Forgotten prompts", "Stuck prompts"}
    for a in asked:
        shown.source.store.sql(a.sql)


def test_hostile_prompts_stay_text(page):
    shown = page(steps=12, hostile=True)
    html = "".join(pane.object for pane in shown.page.text.values())
    assert "<script>window" not in html and "<img" not in html
    cells = [c for r in shown.page.list.state["rows"] for c in r["cells"] if isinstance(c, dict)]
    assert all(len(c["text"]) <= 400 for c in cells)
    assert not any("\u202e" in c["text"] or "\x07" in c["text"] for c in cells)


def test_a_listing_turns_pages_and_only_reports_rows_in_view():
    picked, turned = [], []
    rows = [Row(str(i), (str(i), cell("x", chips={"score": 0.25}))) for i in range(5)]
    listing = Table((Column("a"), Column("b")), picked.append, turned.append, size=2)
    assert listing.state["empty"] == ["Nothing yet"]
    listing.show(rows[:2], 5)
    assert (listing.state["before"], listing.state["after"], listing.state["note"]) == (False, True, "1–2 of 5")
    listing._handle_msg({"pick": "4"})
    listing._handle_msg({"turn": 1})
    assert (picked, turned) == ([], [2])
    listing.show(rows[2:4], 5)
    listing._handle_msg({"pick": "3"})
    listing._handle_msg({"pick": "1"})  # of the page before: its click was on the way
    listing.show(rows[4:], 5)
    listing._handle_msg({"pick": "1"})
    assert picked == ["3", "1"]
    assert listing.page_of(2) == 0


def test_a_prompt_is_asked_because_of_its_scores_or_without():
    assert because({"draw": 0.25, "distance": None, "gap": float("nan")})["chips"] == [["draw", "0.25"]]
    assert because({"draw": None, "distance": float("nan")})["text"] == "without a score"
    assert because({}) == "no scores recorded"


def test_numbers_of_any_scale():
    assert [number(x) for x in (3.0, 12345.0, 0.12345, 1e-9, 123456.7, float("nan"), None)] == [
        "3", "12,345", "0.123", "1e-09", "123,457", "–", "–",
    ]  # fmt: skip


def test_keys_call_their_action():
    pressed = []
    keys = Keys({"n": lambda: pressed.append("n")})
    keys._handle_msg({"key": "n"})
    keys._handle_msg({"key": "x"})
    keys._handle_msg("nonsense")
    assert pressed == ["n"]


def test_reasons_are_shown_where_the_method_names_them(page):
    shown = page(Pipeline(Grpo(), Dars()), steps=3)
    rows = shown.page.asks.state["rows"]
    assert any(isinstance(r["cells"][5], dict) and r["cells"][5]["chips"] for r in rows)


def test_what_was_believed_before_a_step():
    history = History(step=np.array([0, 3, 5]), mean=np.array([0.5, 0.25, 0.75]))
    assert before(history, np.array([1, 3, 4, 9])).tolist() == [0.5, 0.5, 0.25, 0.75]
    assert np.isnan(before(History(), np.array([2]))).all()


def test_bars_of_asked_rollouts_and_of_the_pool():
    from workbench.views.parts.plots import steps_range

    plot = AskedPlot(steps_range())
    names = ("step", "asked", "rollouts", "tried", "solved")
    asks = Columns(**{k: np.array([v]) for k, v in zip(names, (3.0, 8.0, 7.0, 6.0, 2.0), strict=True)})
    plot.update(asks, 10)
    data = plot.source.data
    assert [data[k].tolist() for k in ("solved", "not solved", "not verified")] == [[2], [4], [1]]
    histogram = HistogramPlot()
    histogram.update(np.append(np.arange(20), 5), np.zeros(21))
    assert histogram.source.data["n"].tolist() == list(range(20))
    assert histogram.source.data["zone"][:3] == ["too hard", "too hard", "frontier"]
