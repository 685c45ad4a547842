"""Chromium for the tests that look at a page as its reader does; the fixtures `browser` and `opened` are in conftest."""

import shutil
from contextlib import contextmanager

import pytest

from tests.timing import patience

CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
OWN = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")
"""How every address begins that a page may ask for."""


@contextmanager
def launched():
    """A headless Chromium until the end of the `with`; the test is skipped where there is none, or nothing drives it."""
    if CHROMIUM is None:
        pytest.skip("no `chromium` on the path; .ci/run installs Debian's")
    driver = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    with driver.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def new_page(browser, **options):
    """A page in a context of its own, whose waits have the patience of the tests."""
    context = browser.new_context(**options)
    context.set_default_timeout(1000 * patience(30))
    return context.new_page()


def says(page, *texts):
    """Wait until a page shows each of these texts."""
    for text in texts:
        page.get_by_text(text, exact=False).first.wait_for()


def drawn(page):
    """Wait until Bokeh has drawn all that it was given."""
    page.wait_for_function("window.Bokeh && Bokeh.documents.length && Bokeh.documents.every(d => d.is_idle)")


HELD = """value => [...Bokeh.index.roots].some(v => [...v.model.references()].some(
  m => m.data && [m.data.value, m.data.value_input].some(held => String(held) === value)))"""


def fill(page, box, value):
    """Write into a box, and wait until the widget holds it: what is clicked next comes after it."""
    box.fill(value)
    box.press("Tab")
    page.wait_for_function(HELD, arg=value)
