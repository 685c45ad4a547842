"""Difficulty, budget and compare in headless Chromium: by mouse and by keyboard, narrow, empty, with hostile texts."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no `chromium` on the path; .ci/run installs Debian's"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield b
        b.close()


@pytest.fixture
def opened(browser):
    """Open a page of a store; afterwards nothing foreign was asked for, nothing complained, nothing of a text had run."""
    from workbench.views import serve

    servers, context = [], browser.new_context(viewport={"width": 1300, "height": 1000})
    page = context.new_page()
    foreign, complaints = [], []
    own = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")
    page.on("request", lambda r: None if r.url.startswith(own) else foreign.append(r.url))
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: complaints.append(str(e)))

    def open_(store, query):
        server, url = serve(store, open=False)
        servers.append(server)
        page.goto(url + query)
        return page

    yield open_
    hit = page.evaluate("window.hit ?? null")
    context.close()
    for server in servers:
        server.stop()
        server.join(10)
    assert (hit, foreign, complaints) == (None, [], [])


def says(page, *texts):
    for text in texts:
        page.get_by_text(text, exact=False).first.wait_for(timeout=30_000)


def chosen(page, name):
    page.wait_for_function("n => location.search.includes(n + '=')", arg=name, timeout=30_000)
    return page.evaluate("n => new URLSearchParams(location.search).get(n)", name)


def test_difficulty_by_list_and_by_keys(opened, recording):
    rec = recording(hostile=True).go(12)
    page = opened(recording.store, f"?page=difficulty&run={rec.run}")
    says(page, "Where the pool stands", "Calibration", "Prompts that need a look", "When this prompt was asked")
    page.get_by_text("stuck", exact=True).click()
    says(page, "tried often, never solved")
    row = page.locator("tr.live").first
    row.wait_for(timeout=30_000)
    key = row.get_attribute("data-key")
    row.click()
    assert chosen(page, "prompt") == key
    page.locator("tr.chosen").first.wait_for(timeout=30_000)
    page.locator("h2").first.click()
    page.keyboard.press("p")
    page.wait_for_function("k => new URLSearchParams(location.search).get('prompt') !== k", arg=key, timeout=30_000)
    page.keyboard.press("n")
    page.wait_for_function("k => new URLSearchParams(location.search).get('prompt') === k", arg=key, timeout=30_000)
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
