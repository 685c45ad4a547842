"""Does the demo learn, and at what speed: evaluation gain and seconds a step of the bundled models."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from tests.benchmarks.figure import Figure
from workbench.analysis.summary import by_prompt
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run

DEMO_CASES = {
    "smollm2-five": Experiment(model="smollm2", tasks="five", steps=60, eval_every=60, checkpoint_every=0),
    "smollm2-default": Experiment(model="smollm2", tasks="default", steps=60, eval_every=60, checkpoint_every=0),
    "tiny": Experiment(model="tiny", tasks="default", steps=120, eval_every=120, checkpoint_every=0),
}
SEEDS = (0, 1, 2)


def bench(case: str | None) -> Iterator[Figure]:
    """Does the demo learn, and at what speed: eval_gain (sampled `correct`, end minus start) and seconds per step."""
    for name, experiment in DEMO_CASES.items():
        if case in (None, name):
            for seed in SEEDS:
                yield from _one_demo(name, experiment, seed)


def _one_demo(name: str, experiment: Experiment, seed: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as store, Run(experiment.with_(seed=seed, store=store)) as run:
        run.begin()
        wall, cpu = [], []
        while not run.done:
            began, cpu_began = time.perf_counter(), time.process_time()
            done = run.step()
            scored = done.seconds.get("evaluate", 0.0)
            if not scored:  # the step that also scores the evaluation set is another kind of step
                wall.append(time.perf_counter() - began)
                cpu.append(time.process_time() - cpu_began)
            print(f"{name} seed {seed} step {run.n_steps}/{run.target}", end="\r", flush=True)
    first, last = by_prompt(run.evaluations[0][1]), by_prompt(run.evaluations[-1][1])
    note = f"seed {seed}; {len(first)} evaluation prompts"
    yield Figure(name, "eval_start", float(np.nanmean(first)), "pass rate", note=note)
    yield Figure(name, "eval_gain", float(np.nanmean(last) - np.nanmean(first)), "pass rate", note=note)
    yield Figure(name, "seconds_per_step", float(np.median(wall)), "s", note=f"{note}; load {os.getloadavg()[0]:.1f}")
    yield Figure(name, "cpu_seconds_per_step", float(np.median(cpu)), "s", note=note)
