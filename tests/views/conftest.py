"""A small recorded run for the views, of a simulated world, so that it takes a second; and a browser to look with."""

import dataclasses

import numpy as np
import pytest
from browsing import OWN, launched, new_page

from tests.timing import patience
from workbench.methods.grpo import Grpo
from workbench.methods.mopps import Mopps
from workbench.pipeline import Pipeline, advance
from workbench.store import Writer
from workbench.types import Budget
from workbench.worlds import SimWorld

HOSTILE = (
    "<script>window.hit=1</script><img src=x onerror='window.hit=1'>",
    "$$\\frac{1}{0}$$ \\(x\\)",
    "A" * 200_000,
    "\x00\x07\x1b[31m red",
    "\u202egnp.exe\u202c \u05e9\u05dc\u05d5\u05dd",
    "</textarea></script><svg onload=window.hit=1>",
    "`${window.hit=1}` {{7*7}} @{x}",
    "",
)


@pytest.fixture
def hostile():
    """Texts that try to become markup, to hide, or to be very long."""
    return HOSTILE


class Recording:
    """A run that is being recorded; `go(n)` makes n steps and waits until they are on disk."""

    def __init__(self, folder, pipeline=None, *, prompts=40, hostile=False, target=12):
        self.pipeline = pipeline or Pipeline(Grpo(), Mopps())
        self.world = SimWorld(n_prompts=prompts, seed=0)
        if hostile:
            pool = self.world.pool
            text = np.array([HOSTILE[i % 8] or "?" for i in range(len(pool))], dtype=object)
            self.world.pool = dataclasses.replace(pool, text=text)
        self.hostile, self.n = hostile, 0
        self.states = self.pipeline.init(self.world.pool)
        self.writer = Writer(
            folder,
            {"name": "test", "steps": target, "model": "sim", "pipeline": self.pipeline.spec},
            self.world.pool,
            self.world.evaluation,
            world=self.world.describe(),
            who=self.pipeline.who(),
        )
        self.run = self.writer.run
        self.writer.evaluation(0, self.world.evaluate(0))
        self.writer.flush()

    def go(self, n):
        for _ in range(n):
            self.n += 1
            budget = Budget(prompts=8, rollouts=64)
            self.states, step = advance(self.pipeline, self.states, self.world, budget, step=self.n, seed=0)
            if self.hostile:
                text = np.array([HOSTILE[i % 8] for i in range(len(step.rollouts))], dtype=object)
                step = dataclasses.replace(step, rollouts=step.rollouts.with_(text=text))
            evaluation = self.world.evaluate(self.n) if self.n % 6 == 0 else None
            self.writer.append(step, self.pipeline.reveal(self.states), evaluation=evaluation)
        self.writer.flush()
        return self


@pytest.fixture
def recording(tmp_path):
    """Make recordings in one store; those left open are closed at the end."""
    made = []

    def make(pipeline=None, **options):
        made.append(Recording(tmp_path / "store", pipeline, **options))
        return made[-1]

    make.store = str(tmp_path / "store")
    yield make
    for r in made:
        r.writer.close("stopped")


@pytest.fixture(scope="module")
def browser():
    """Chromium, for all tests of a file."""
    with launched() as chromium:
        yield chromium


def _replaced(error) -> bool:
    """Whether Tabulator measured a row of a table that had been replaced meanwhile: rare, of a busy machine, and harmless."""
    return "(reading 'firstChild')" in str(error) and "abulator" in (error.stack or "")


@pytest.fixture
def opened(browser):
    """Open a page of a store; afterwards nothing foreign was asked for, nothing complained, nothing of a text had run."""
    from workbench.views.shell.server import serve

    servers, page = [], new_page(browser, viewport={"width": 1300, "height": 1000})
    foreign, complaints = [], []
    page.on("request", lambda r: None if r.url.startswith(OWN) else foreign.append(r.url))
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: None if _replaced(e) else complaints.append(str(e)))

    def open_(store, query="", **options):
        server, url = serve(str(store), open=False, **options)
        servers.append(server)
        assert url.startswith("http://127.0.0.1:")
        page.goto(url)  # its token becomes a cookie
        if query:
            page.goto(page.url + query)
        return page

    yield open_
    hit = page.evaluate("window.hit ?? null")
    page.context.close()
    for server in servers:
        server.stop()
        server.join(patience(10))
    assert (hit, foreign, complaints) == (None, [], [])
