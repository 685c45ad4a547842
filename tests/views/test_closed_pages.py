"""A page that was closed leaves nothing in the server: neither its objects nor its statement."""

import asyncio
import gc
import threading
import weakref

import pytest

from tests.benchmarks.dashboard_viewers import glance
from tests.timing import until
from workbench.store.sample import sample_folder
from workbench.views.data import sql_processes
from workbench.views.pages import PAGES
from workbench.views.shell.dashboard import Dashboard
from workbench.views.shell.server import serve


@pytest.fixture
def url():
    server, url = serve(str(sample_folder()), open=False, token=False)
    yield url
    server.stop()


@pytest.mark.slow
def test_a_closed_page_is_let_go(url, monkeypatch):
    made, built = weakref.WeakSet(), []
    begin = Dashboard.__init__

    def count(self, *given):
        begin(self, *given)
        made.add(self)
        built.append(self.chosen.page)

    monkeypatch.setattr(Dashboard, "__init__", count)

    for name in PAGES:
        asyncio.run(glance(f"{url}?page={name}", 0.5))
    assert len(built) == len(PAGES)
    until(lambda: gc.collect() >= 0 and not made, 60, or_say=lambda: f"{len(made)} dashboards are left")


@pytest.mark.slow
@pytest.mark.browser
def test_a_statement_is_given_up_with_its_page(opened, recording, monkeypatch):
    recording().go(1)
    stops = []
    ask = sql_processes.Workers.ask
    monkeypatch.setattr(
        sql_processes.Workers,
        "ask",
        lambda self, job, cancelled=None: stops.append(cancelled) or ask(self, job, cancelled),
    )
    page = opened(recording.store, "?page=sql&query=SELECT count(*) FROM range(10000000) a, range(10000000) b")
    page.locator("button", has_text="Ask").first.click()
    page.locator("button", has_text="Cancel").first.wait_for()
    assert isinstance(stops[0], threading.Event)
    page.locator("button", has_text="Cancel").first.click()
    page.get_by_text("cancelled").first.wait_for()
    page.locator("button", has_text="Ask").first.click()
    until(lambda: len(stops) == 2)
    page.goto("about:blank")
    until(stops[1].is_set, 60)
