"""Difficulty, budget and compare in headless Chromium: by mouse and by keyboard, narrow, empty, with hostile texts."""

import pytest
from browsing import says

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def chosen(page, name):
    page.wait_for_function("n => location.search.includes(n + '=')", arg=name)
    return page.evaluate("n => new URLSearchParams(location.search).get(n)", name)


def test_difficulty_by_list_and_by_keys(opened, recording):
    rec = recording(hostile=True).go(12)
    page = opened(recording.store, f"?page=difficulty&run={rec.run}")
    says(page, "Where the pool stands", "Calibration", "Prompts that need a look", "When this prompt was asked")
    page.get_by_text("stuck", exact=True).click()
    says(page, "tried often, never solved")
    row = page.locator("tr.live").first
    row.wait_for()
    key = row.get_attribute("data-key")
    row.click()
    assert chosen(page, "prompt") == key
    page.locator("tr.chosen").first.wait_for()
    page.locator("h2").first.click()
    page.keyboard.press("p")
    page.wait_for_function("k => new URLSearchParams(location.search).get('prompt') !== k", arg=key)
    page.keyboard.press("n")
    page.wait_for_function("k => new URLSearchParams(location.search).get('prompt') === k", arg=key)
    assert page.locator("img[src='x']").count() == page.locator("svg[onload]").count() == 0


def test_budget_moves_with_the_run_and_its_log_is_paged(opened, recording):
    rec = recording(hostile=True).go(3)
    page = opened(recording.store, f"?page=budget&run={rec.run}")
    says(page, "Ledger", "for training", "By stratum", "1–12 of 24", "share no prefix")
    page.get_by_text("Next ›").last.click()
    says(page, "13–24 of 24")
    rec.go(1)
    says(page, "of 32")
    page.get_by_text("tests inside rollouts").click()
    says(page, "No test inside a rollout", "leave a row for each test")
    page.get_by_text("Show SQL").click()
    says(page, "savings_by_step", "page_spent", "page_decisions")


def test_compare_takes_runs_in_and_out(opened, recording):
    runs = [recording().go(6).run, recording().go(6).run]
    page = opened(recording.store, "?page=compare")
    says(page, "Runs side by side", "a seed was run more than once", "after 384 rollouts")
    page.locator("tr.live", has_text=runs[0]).first.focus()
    page.keyboard.press("Enter")
    assert chosen(page, "runs") == runs[1]
    says(page, "Nothing to compare yet", "workbench sweep")
    page.locator("tr.live", has_text=runs[0]).first.click()
    says(page, "after 384 rollouts")


def test_narrow_and_without_any_step(opened, recording):
    rec = recording()
    page = opened(recording.store, f"?page=difficulty&run={rec.run}")
    page.set_viewport_size({"width": 460, "height": 900})
    says(page, "No prompt chosen", "Not asked yet", "no prompt lost 25 points")
    for name, text in (("Budget", "Nothing generated yet"), ("Compare", "Nothing to compare yet")):
        page.get_by_role("tab", name=name).click()
        says(page, text)
        assert page.evaluate("document.documentElement.scrollWidth") <= 460


def test_on_a_phone_the_cells_of_a_decision_stand_under_each_other(opened, recording):
    rec = recording().go(2)
    page = opened(recording.store, f"?page=budget&run={rec.run}")
    says(page, "asked because")
    row = page.locator("tr.live", has=page.locator(".chip")).first
    names = [h.inner_text() for h in page.locator("tr", has_text="asked because").locator("th").all()]
    said = row.locator("td").all_inner_texts()
    assert row.evaluate("r => getComputedStyle(r).display") == "table-row"
    page.set_viewport_size({"width": 420, "height": 900})
    assert row.evaluate("r => getComputedStyle(r).display") == "flex"
    assert row.locator("td").all_inner_texts() == said, "nothing is left out"
    assert [td.get_attribute("data-name") for td in row.locator("td").all()] == names
    assert page.locator(".scroll").evaluate_all("all => all.filter(s => s.scrollWidth > s.clientWidth).length") == 0
