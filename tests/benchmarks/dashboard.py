"""What the dashboard costs: a browser opens a run of 10,000 prompts and 1,000 steps while it goes on, and is measured.

The run is a process of its own, steered through its store. shell and data are the reader's wait, from asking for the
address to the line of pages and to the last card; refresh is the server's time for a look that brought a step, and wire
what the browser is sent for it. Needs playwright and a `chromium` on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.figure import Figure
from workbench.runs.experiment import Experiment
from workbench.runs.steering.remote import Remote
from workbench.types import Budget
from workbench.views.data.sql_processes import Limits

PROMPTS, STEPS = 10_000, 1_000
LOOKS = 20
"""Steps that are made while the page is watched, one at a time."""

TURNS, EACH = 5, 40
"""How often the trainer is timed with and without a viewer, and over how many steps."""

CLIENTS, SETTLING = 5, 5.0
"""Sessions without a browser that watch at once; seconds until those who watch have all there is."""

WARM, OPENED, FORGOTTEN = 50, 200, 40.0
"""Pages after which memory should stay, and pages in all; seconds after which the server has let go of closed ones."""

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def bench(case: str | None) -> Iterator[Figure]:
    """Opening and refreshing a large run (case large); what a browser (viewer) or five sessions without one (clients)
    cost the tiny model's training; statements of the SQL page, plain ones and such as never end (sql); the memory that pages
    opened one after the other leave in the server (memory_client, memory_browser)."""
    if case in (None, "sql"):
        yield from _sql()
    if case in (None, "memory_client"):
        yield from _memory("memory_client", "a client without a browser", _glances())
    chromium = shutil.which("chromium")
    if chromium is None and case not in ("sql", "memory_client"):
        raise ValueError("bench dashboard needs `chromium` on the path (Debian: apt install chromium)")
    if chromium and case in (None, "memory_browser"):
        with _browser(chromium) as browser:
            yield from _memory("memory_browser", "a browser", lambda url: _visit(browser, url))
    if chromium and case in (None, "large"):
        yield from _large(chromium)
    if chromium and case in (None, "viewer"):
        yield from _viewer(chromium)
    if case in (None, "clients"):
        yield from _clients()


def _sql() -> Iterator[Figure]:
    """A plain statement in the process of the page's statements, against one in the server's own; then the hostile ones."""
    from tests.views.hostile_sql import STATEMENTS, limited, taken
    from workbench.store import Store
    from workbench.store.sample import sample_folder
    from workbench.views.data.sql import ask

    limits = Limits(2.0, 512 << 20)
    source, plain = limited(str(sample_folder()), limits), "SELECT step, avg(reward) FROM rollouts GROUP BY step"
    began = time.perf_counter()
    ask(source, plain)
    yield Figure("sql", "first", time.perf_counter() - began, "s", note="no process is warm yet")
    with Store.sample() as store:
        ours, inside = (
            float(np.median([_milliseconds(act) for _ in range(200)]))
            for act in (lambda: ask(source, plain), lambda: store.sql(plain))
        )
    yield Figure("sql", "plain", ours, "ms", "store.sql in the server", ours / inside, "warm; median of 200")
    found = {name: taken(source, statement) for name, statement in STATEMENTS.items()}
    source.workers.close()
    note = f"{len(found)} statements, limits {limits.seconds:g} s and {limits.memory >> 20} MiB"
    late = max(found, key=lambda name: found[name].seconds)
    large = max(found, key=lambda name: found[name].memory)
    yield Figure("sql", "ended_after", found[late].seconds, "s", note=f"{note}; the latest: {late}")
    share = found[large].memory / limits.memory
    yield Figure("sql", "memory", share, "of the limit", note=f"{note}; the largest: {large}")
    killed = sum(bool(t.problem) for t in found.values())
    yield Figure("sql", "ended", killed, "statements", note=f"{note}; the others were answered")


def _glances() -> Callable[[str], None]:
    import asyncio

    from tests.benchmarks.dashboard_viewers import glance

    return lambda url: asyncio.run(glance(url, 0.5))


def _visit(browser: Any, url: str) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(url)
    page.get_by_role("tab").first.wait_for(timeout=120_000)
    page.wait_for_function("window.Bokeh && Bokeh.documents.length && Bokeh.documents.every(d => d.is_idle)")
    page.close()


def _memory(case: str, who: str, visit: Callable[[str], None]) -> Iterator[Figure]:
    """Resident memory of a dashboard's process after WARM pages were opened, and what each further one adds."""
    import psutil

    from workbench.views.pages import PAGES

    command = [sys.executable, "-m", "workbench", "dashboard", "--sample", "--port", "0", "--no-browser", "--no-token"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        process, held = psutil.Process(server.pid), {}
        for i in range(1, OPENED + 1):
            visit(f"{url}?page={list(PAGES)[i % len(PAGES)]}")
            if i in (WARM, OPENED):
                time.sleep(FORGOTTEN)
                held[i] = process.memory_info().rss
    finally:
        server.terminate()
        server.wait(120)
    note = f"the sample store, {who}; all pages in turns, each closed before the next; the dashboard's process"
    yield Figure(case, "resident", held[WARM] / 2**20, "MiB", note=f"{note}; after {WARM}")
    yield Figure(case, "resident", held[OPENED] / 2**20, "MiB", note=f"{note}; after {OPENED}")
    each = (held[OPENED] - held[WARM]) / (OPENED - WARM) / 1024
    yield Figure(case, "a_page", each, "KiB", note=f"{note}; added by each from {WARM} to {OPENED}")


def _milliseconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1e3 * (time.perf_counter() - began)


@contextmanager
def _running(experiment: Experiment, folder: str) -> Iterator[tuple[Remote, int]]:
    """A run in a process of its own, with its first steps made, and the id of that process."""
    toml = Path(folder) / "experiment.toml"
    toml.write_text(experiment.with_(store=f"{folder}/store").to_toml(), encoding="utf-8")
    process = subprocess.Popen([sys.executable, "-m", "workbench", "run", str(toml)], stdout=subprocess.DEVNULL)
    try:
        yield _reached(f"{folder}/store", process), process.pid
    finally:
        process.terminate()
        process.wait(60)


def _reached(store: str, process: subprocess.Popen, seconds: float = 120) -> Remote:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            remote = Remote(store, who="bench")
            if remote.n_steps:
                return remote
        except Exception:  # not there yet
            pass
        time.sleep(0.2)
    raise RuntimeError(f"the run to be watched made no step within {seconds:.0f} s")


def _until(remote: Remote, step: int, seconds: float = 900) -> None:
    end = time.monotonic() + seconds
    while remote.n_steps < step:
        if time.monotonic() > end:
            raise TimeoutError(f"step {step} was not recorded within {seconds:.0f} s")
        time.sleep(0.05)


@contextmanager
def _browser(chromium: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def _opened(browser: Any, url: str) -> tuple[Any, float, float, list[int]]:
    """The page, the seconds to its shell and to its data, and the sizes of what comes over its socket from now on."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    sizes: list[int] = []
    page.on("websocket", lambda s: s.on("framereceived", lambda data: sizes.append(len(data))))
    began = time.perf_counter()
    page.goto(url)
    page.get_by_role("tab", name="Live", exact=True).wait_for(timeout=120_000)
    shell = time.perf_counter() - began
    page.get_by_text("Nothing to tell").or_(page.locator("text=Notes")).first.wait_for(timeout=120_000)
    page.locator("canvas").first.wait_for(timeout=120_000)
    return page, shell, time.perf_counter() - began, sizes


def _large(chromium: str) -> Iterator[Figure]:
    from workbench.views.shell.dashboard import Dashboard
    from workbench.views.shell.server import serve

    experiment = Experiment(
        model="sim",
        steps=100_000,
        eval_every=100,
        checkpoint_every=0,
        budget=Budget(64, 512),
        world={"n_prompts": PROMPTS},
    )
    taken: list[float] = []
    look = Dashboard.update

    def timed(self: Dashboard, force: bool = False) -> None:
        seen, began = self._seen, time.perf_counter()
        look(self, force)
        if self._seen != seen:
            taken.append(1e3 * (time.perf_counter() - began))

    with tempfile.TemporaryDirectory() as folder, _running(experiment, folder) as (remote, _):
        _until(remote, STEPS)
        remote.pause().wait()
        note = f"{PROMPTS} prompts, {remote.n_steps} steps of 512 rollouts, live page"
        server, url = serve(remote.store_url, remote.run_id, open=False, token=False)
        Dashboard.update = timed  # type: ignore[method-assign]
        try:
            with _browser(chromium) as browser:
                for who in ("first viewer", "second viewer"):
                    page, shell, data, sizes = _opened(browser, url)
                    yield Figure("large", "shell", shell, "s", note=f"{note}; {who} of the server")
                    yield Figure("large", "data", data, "s", note=f"{note}; {who} of the server")
                page.wait_for_timeout(3000)
                taken.clear()
                sizes.clear()
                for _ in range(LOOKS):
                    remote.step().wait()
                    page.wait_for_timeout(1000)
                looks = len(taken) / 2  # two pages are open
                yield Figure("large", "refresh", float(np.median(taken)), "ms", note=f"{note}; median of {len(taken)}")
                yield Figure(
                    "large", "refresh_p95", float(np.quantile(taken, 0.95)), "ms", note=f"{note}; {len(taken)} looks"
                )
                wire = sum(sizes) / max(looks, 1) / 1024
                yield Figure(
                    "large",
                    "wire",
                    wire,
                    "KiB",
                    note=f"{note}; received by one browser a refresh, {looks:.0f} refreshes",
                )
        finally:
            Dashboard.update = look  # type: ignore[method-assign]
            server.stop()


def _viewer(chromium: str) -> Iterator[Figure]:
    """One page in a browser."""
    with _browser(chromium) as browser:

        @contextmanager
        def watching(url: str) -> Iterator[None]:
            page = _opened(browser, url)[0]
            yield
            page.close()

        yield from _watched("viewer", "one browser", watching)


def _clients() -> Iterator[Figure]:
    """Five sessions that take what a browser would be sent, and draw nothing."""

    @contextmanager
    def watching(url: str) -> Iterator[None]:
        command = [sys.executable, "-m", "tests.benchmarks.dashboard_viewers", url, str(CLIENTS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as viewers:
            assert viewers.stdin is not None and viewers.stdout is not None
            for _ in range(CLIENTS):
                if not viewers.stdout.readline():
                    raise RuntimeError("a viewer ended by itself")
            yield
            viewers.stdin.close()

    yield from _watched("clients", f"{CLIENTS} protocol clients", watching)


def _watched(case: str, who: str, watching: Callable[[str], AbstractContextManager[None]]) -> Iterator[Figure]:
    """What a step of the tiny model takes, alone and watched, in turns; and what the server takes meanwhile."""
    import psutil

    experiment = Experiment(model="tiny", steps=100_000, eval_every=0, checkpoint_every=0)
    with tempfile.TemporaryDirectory() as folder, _running(experiment, folder) as (remote, pid):
        trainer = psutil.Process(pid)
        remote.pause().wait()
        command = [
            sys.executable,
            "-m",
            "workbench",
            "dashboard",
            remote.store_url,
            "--port",
            "0",
            "--no-browser",
            "--no-token",
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        alone, watched, served = [], [], []
        try:
            assert server.stdout is not None
            url = next(word for word in server.stdout.readline().split() if word.startswith("http"))
            for _ in range(TURNS):
                alone.append(_paced(remote, trainer))
                with watching(url):
                    time.sleep(SETTLING)
                    began, cpu = time.perf_counter(), _cpu(psutil.Process(server.pid))
                    watched.append(_paced(remote, trainer))
                    served.append((_cpu(psutil.Process(server.pid)) - cpu) / (time.perf_counter() - began))
        finally:
            server.terminate()
            server.wait(20)
    note = f"tiny, {TURNS} turns of {EACH} steps each way, {who}; trainer, server and viewers share the machine"
    note += f"; load {os.getloadavg()[0]:.1f}"
    for i, metric in enumerate(("seconds_per_step", "cpu_seconds_per_step")):
        base, value = (float(np.median([turn[i] for turn in turns])) for turns in (alone, watched))
        yield Figure(case, metric, value, "s", "nobody watching", value / base, note)
    yield Figure(case, "server_cores", float(np.median(served)), "cores", note=f"{note}; of the dashboard's process")


def _cpu(process: Any) -> float:
    used = process.cpu_times()
    return used.user + used.system


def _paced(remote: Remote, trainer: Any) -> tuple[float, float]:
    """Seconds, and CPU seconds of the training process, per step of those made now."""
    first, cpu = remote.n_steps, _cpu(trainer)
    remote.step(EACH)
    _until(remote, first + EACH)
    found = remote._store.sql("SELECT avg(seconds) AS s FROM steps WHERE run = ? AND step > ?", [remote.run_id, first])
    return float(found["s"][0].as_py()), (_cpu(trainer) - cpu) / EACH
