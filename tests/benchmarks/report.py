"""What a report of a long run costs: megabytes and seconds of every form, for 1,000 steps of a simulated world."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figure import Figure
from workbench import report
from workbench.report.browser import NoBrowser
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.store import Store
from workbench.types import Budget

EXPERIMENT = Experiment(
    model="sim", pipeline="grpo + mopps", steps=1000, budget=Budget(16, 128), eval_every=20, eval_samples=8,
    checkpoint_every=0, world={"n_prompts": 1000},
)  # fmt: skip


def bench(case: str | None) -> Iterator[Figure]:
    """HTML, PDF and Markdown with its figures; case: one of html, pdf, md."""
    with tempfile.TemporaryDirectory() as folder:
        with Run(EXPERIMENT.with_(store=f"{folder}/store")) as run:
            while not run.done:
                run.step()
        note = f"{EXPERIMENT.steps} steps of {EXPERIMENT.budget.rollouts} rollouts, 1,000 prompts, 51 evaluations"
        for form in ("html", "pdf", "md"):
            if case in (None, form):
                yield from _one(Path(folder), form, note)


def _one(folder: Path, form: str, note: str) -> Iterator[Figure]:
    began = time.perf_counter()
    try:
        with Store.open(folder / "store") as store:
            files = report.write(store, None, folder / f"report.{form}")
    except NoBrowser as error:
        print(f"report {form}: {error}")
        return
    size = sum(f.stat().st_size for f in files) / 1e6
    yield Figure(form, "size", size, "MB", note=f"{note}; {len(files)} files")
    yield Figure(form, "seconds", time.perf_counter() - began, "s", note=note)
