"""The served page in headless Chromium: empty, mid-run, finished; nothing from elsewhere, no error, clicks work."""

import threading

import numpy as np
import pytest
from browsing import drawn, says

pytestmark = pytest.mark.browser

HEAT = """() => {
  for (const v of Bokeh.index.roots) {
    const found = [...v.model.references()].find(m => m.type === "Figure" && m.right.some(r => r.type === "ColorBar"))
    if (found) {
      const view = Bokeh.index.find_one_by_id(found.id)
      const frame = view.frame.bbox, box = view.el.getBoundingClientRect()
      view.el.scrollIntoView({block: "center"})
      const now = view.el.getBoundingClientRect()
      return {x: now.x + frame.left, y: now.y + frame.top, w: frame.width, h: frame.height}
    }
  }
}"""


def test_empty_then_a_run_appears_and_moves_and_ends(opened, recording):
    page = opened(recording.store)
    says(page, "No run yet", "workbench demo")
    rec = recording().go(2)
    says(page, "Evaluation solved", "of 12", "running", "Where the budget went", "select", "Completions")
    page.locator(".value", has_text="2 of 12").wait_for()
    rec.go(4)
    page.locator(".value", has_text="6 of 12").wait_for()
    rec.writer.close("finished")
    page.locator(".badge", has_text="finished").wait_for()


@pytest.mark.slow
def test_a_click_on_the_heat_map_chooses_the_prompt(opened, recording):
    recording().go(3)
    page = opened(recording.store)
    says(page, "Difficulty of prompts", "rollouts in")
    drawn(page)
    seen = set()
    for share in (0.1, 0.5, 0.9):
        frame = page.evaluate(HEAT)
        before = page.url
        page.mouse.click(frame["x"] + 0.3 * frame["w"], frame["y"] + share * frame["h"])
        page.wait_for_function("url => location.href !== url", arg=before)
        seen.add(page.url)
        page.wait_for_timeout(600)  # two clicks in quick succession are one double click to Bokeh
    assert len(seen) == 3
    assert all("prompt=" in url for url in seen)
    page.reload()
    says(page, "rollouts in")
    assert page.url in seen


SCROLLED = """() => {
  const within = root => [...root.querySelectorAll("*")].flatMap(e => e.shadowRoot ? [e, ...within(e.shadowRoot)] : [e])
  return within(document).find(e => String(e.className).includes("main-content")).scrollTop
}"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["live", "difficulty", "glossary"])
def test_the_wheel_scrolls_a_page_taller_than_the_window(opened, recording, name):
    recording().go(2)
    page = opened(recording.store)
    says(page, "Difficulty of prompts")
    page.set_viewport_size({"width": 1300, "height": 700})
    page.get_by_role("tab", name=name.title(), exact=True).click()
    says(
        page,
        {"live": "Where the seconds go", "difficulty": "Calibration", "glossary": "what a pipeline may hold"}[name],
    )
    drawn(page)
    page.mouse.move(650, 95)
    page.mouse.wheel(0, 300)
    page.wait_for_function(f"({SCROLLED})() >= 200")


@pytest.mark.slow
def test_hostile_completions_stay_text(opened, recording):
    recording(hostile=True).go(1)
    page = opened(recording.store)
    says(page, "Completions", "show all 200,000 characters", "window.hit=1")
    assert page.evaluate("window.hit") is None
    page.get_by_text("show all 200,000 characters").first.click()
    body = page.locator(".body", has_text="A" * 1000).first
    body.wait_for()
    assert len(body.text_content()) == 200_000
    assert page.locator("img[src='x']").count() == 0
    assert page.locator("svg[onload]").count() == 0
    assert page.evaluate("window.hit") is None


@pytest.mark.slow
def test_narrow_and_dark(opened, recording):
    recording().go(2)
    page = opened(recording.store)
    says(page, "Difficulty of prompts")
    page.set_viewport_size({"width": 480, "height": 900})
    page.wait_for_function("document.documentElement.scrollWidth <= 480")
    page.locator("header button").last.click()
    page.locator(".mui-dark").first.wait_for(state="attached")


@pytest.mark.slow
def test_two_viewers_share_the_questions(opened, recording):
    from workbench.views.data.run import Source

    rec = recording().go(2)
    page = opened(recording.store)
    says(page, "Evaluation solved")
    source = Source.of(recording.store)
    asked, lock, ask = [], threading.Lock(), source.ask

    def counted(question, **params):
        with lock:
            asked.append(question)
        return ask(question, **params)

    source.ask = counted
    other = page.context.new_page()
    other.goto(page.url)
    says(other, "Evaluation solved")
    rec.go(1)
    other.locator(".value", has_text="3 of 12").wait_for()
    page.locator(".value", has_text="3 of 12").wait_for()
    assert np.sum([q == "reward_by_step" for q in asked]) == 1
