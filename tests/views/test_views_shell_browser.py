"""Navigation, keys, the SQL page and the glossary in Chromium."""

import pytest
from bokeh.util.warnings import BokehUserWarning
from browsing import drawn, fill, says

from workbench.views.pages import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.slow]


FIRST_WORDS = {
    "live": "Where the budget went",
    "difficulty": "Where the pool stands",
    "budget": "Ledger",
    "tree": "step 3",
    "tokens": "step 3",
    "signs": "Signs over the steps",
    "compare": "Runs side by side",
    "sql": "Ask the store",
    "glossary": "Find a word",
}
"""Page -> what it shows once it is drawn."""


def test_every_page_is_reached_by_click_key_and_address(opened, recording):
    recording().go(3)
    page = opened(recording.store)
    says(page, "Where the budget went")
    page.get_by_role("tab", name=PAGES.title("sql"), exact=True).click()
    says(page, "Ask the store")
    assert "page=sql" in page.url
    names = list(PAGES)
    page.locator("body").click(position={"x": 2, "y": 700})
    page.keyboard.press(str(names.index("glossary") + 1))
    says(page, "Find a word")
    page.keyboard.press("1")
    says(page, "Where the budget went")
    assert "page=" not in page.url
    page.keyboard.press("s")
    says(page, "The questions behind this page", 'store.ask("reward_by_step"')
    for name in names:
        page.goto(page.url.partition("?")[0] + f"?page={name}")
        page.wait_for_function("name => document.title && location.search.includes(name)", arg=name)
        page.get_by_role("tab", name=PAGES.title(name), exact=True).wait_for()
        says(page, FIRST_WORDS[name])
        drawn(page)
        assert page.get_by_text("could not be drawn").count() == 0, name


DARK = """() => [...Bokeh.index.roots].some(
  v => [...v.model.references()].some(m => m.class_name === "Page" && m.data.dark_theme))"""


def test_colours_follow_the_system_unless_the_address_names_a_theme(opened, recording):
    recording().go(1)
    page = opened(recording.store)
    says(page, "Evaluation solved")
    assert not page.evaluate(DARK)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(DARK)
    page.reload()
    says(page, "Evaluation solved")
    page.wait_for_function(DARK)
    page.goto(page.url.partition("?")[0] + "?theme=default")
    says(page, "Evaluation solved")
    drawn(page)
    assert not page.evaluate(DARK)


def test_an_address_of_old_is_mended_in_the_address_bar(opened, recording):
    recording().go(2)
    page = opened(recording.store)
    page.goto(page.url + "?page=tree&step=999999")
    says(page, "step 999,999 is not recorded; step 2 is shown")
    assert "step=2" in page.url
    page.goto(page.url.partition("?")[0] + "?run=nosuch")
    says(page, "There is no run 'nosuch'", "Choose one of them at the top")


def test_back_and_forward_of_the_browser_lead_to_the_pages_before(opened, recording):
    recording().go(1)
    page = opened(recording.store)
    says(page, "Where the budget went")
    for name in ("glossary", "tree", "sql"):
        page.get_by_role("tab", name=PAGES.title(name), exact=True).click()
        page.wait_for_url(f"**/?page={name}")
    for go, name in (
        ("back", "tree"),
        ("back", "glossary"),
        ("forward", "tree"),
        ("back", "glossary"),
        ("back", "live"),
    ):
        page.evaluate(f"history.{go}()")
        page.locator("[role=tab][aria-selected=true]", has_text=PAGES.title(name)).wait_for()
        assert page.url.endswith("/" if name == "live" else f"/?page={name}")
    page.get_by_role("tab", name=PAGES.title("glossary"), exact=True).click()
    page.wait_for_url("**/?page=glossary")


def test_on_a_phone_the_whole_header_is_seen(opened, recording):
    recording().go(1)
    page = opened(recording.store)
    page.set_viewport_size({"width": 360, "height": 800})
    says(page, "Where the budget went")
    page.get_by_role("combobox").first.wait_for()
    for part in (page.get_by_label("Toggle theme").first, page.get_by_role("combobox").first):
        box = part.bounding_box()
        assert box["width"] > 30
        assert box["x"] + box["width"] <= 360


def test_a_page_stands_alone(opened, recording):
    recording().go(1)
    page = opened(recording.store)
    page.goto(page.url + "glossary")
    says(page, "Find a word", "zero advantage")
    assert page.get_by_role("tab").count() == 0


def test_a_statement_is_asked_and_hostile_text_stays_text(opened, recording, recwarn):
    recording(hostile=True).go(1)
    page = opened(recording.store)
    page.goto(page.url + "?page=sql&query=reward_by_step")
    says(page, "1 rows, in")
    box = page.get_by_label("Statement", exact=False).first
    fill(page, box, "SELECT rollout_id, text FROM completions WHERE step = 1")
    page.locator("button", has_text="Ask").first.click()
    says(page, "64 rows, in", "window.hit=1")
    assert page.evaluate("window.hit") is None
    assert page.locator("img[src='x']").count() == 0
    assert "SELECT" in page.url
    fill(page, box, "SELECT 77001 AS \"<img src=x onerror='window.hit=1'>\"")
    page.locator("button", has_text="Ask").first.click()
    says(page, "1 rows, in", "<img src=x onerror=")
    page.locator(".tabulator-col-title", has_text="<img src=x").first.hover()
    page.wait_for_timeout(800)  # nothing should happen, so there is nothing to wait for
    assert page.evaluate("window.hit") is None
    assert page.locator("img[src='x']").count() == 0
    fill(page, box, "DROP TABLE runs")
    page.locator("button", has_text="Ask").first.click()
    says(page, "The store did not answer")
    assert [str(w.message) for w in recwarn if issubclass(w.category, BokehUserWarning)] == []
