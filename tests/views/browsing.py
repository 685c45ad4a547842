"""Chromium for the tests that look at a page as its reader does; the fixtures `browser` and `opened` are in conftest."""

import shutil
from contextlib import contextmanager

import pytest

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


def says(page, *texts):
    """Wait until a page shows each of these texts."""
    for text in texts:
        page.get_by_text(text, exact=False).first.wait_for(timeout=30_000)
