"""Figures of speed and learning, appended as JSON lines: `workbench bench demo | import | start | dashboard | store | lake | peers | engine | loop | methods | replay | report | study | trees | all`.

One object a figure: bench, case, metric, value, unit, peer, ratio (ours / peer, measured in the same run), machine,
card, date, versions. Wall seconds stand beside CPU seconds, since two busy cores can slow a step twofold.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.analysis.summary import by_prompt
from workbench.experiment import Experiment
from workbench.running import Run


class Figure(NamedTuple):
    """One measured figure; peer and ratio where something was measured beside it."""

    case: str
    metric: str
    value: float
    unit: str
    peer: str = ""
    ratio: float | None = None
    note: str = ""


DEMO_CASES = {
    "smollm2-five": Experiment(model="smollm2", tasks="five", steps=60, eval_every=60, checkpoint_every=0),
    "smollm2-default": Experiment(model="smollm2", tasks="default", steps=60, eval_every=60, checkpoint_every=0),
    "tiny": Experiment(model="tiny", tasks="default", steps=120, eval_every=120, checkpoint_every=0),
}
SEEDS = (0, 1, 2)


def bench_demo(case: str | None) -> Iterator[Figure]:
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


def bench_import(case: str | None) -> Iterator[Figure]:
    """`import workbench` in a fresh interpreter, against starting Python and doing nothing."""
    code = {"import": "import workbench", "numpy": "import numpy", "nothing": "pass"}
    taken = {name: min(_seconds([sys.executable, "-c", line]) for _ in range(5)) for name, line in code.items()}
    own = taken["import"] - taken["nothing"]
    yield Figure("workbench", "import", own, "s", "numpy", own / max(taken["numpy"] - taken["nothing"], 1e-9))


def bench_start(case: str | None) -> Iterator[Figure]:
    """Warm demo to its first recorded step, in a fresh process, from the shell's point of view."""
    for model in ("smollm2", "tiny"):
        if case in (None, model):
            with tempfile.TemporaryDirectory() as store:
                command = [sys.executable, "-m", "workbench.cli", "demo", "--model", model, "--steps", "1"]
                began = time.perf_counter()
                process = subprocess.Popen([*command, "--store", store, "--no-dashboard"], stdout=subprocess.DEVNULL)
                while process.poll() is None and not _recorded(Path(store)):
                    time.sleep(0.05)
                yield Figure(model, "first_recorded_step", time.perf_counter() - began, "s")
                process.wait()


def _recorded(store: Path) -> bool:
    """Whether a training step is committed in a store."""
    from workbench.store import bundle

    there = [p for p in store.glob(f"commits/*/*/*/{bundle.NAME}") if p.parent.name.isdigit()]
    return any("steps" in bundle.read(path) for path in there)


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began


def _bench_dashboard(case: str | None) -> Iterator[Figure]:
    from workbench.bench_dashboard import bench_dashboard

    yield from bench_dashboard(case)


def _bench_store(case: str | None) -> Iterator[Figure]:
    from workbench.bench_store import bench_store

    yield from bench_store(case)


def _bench_lake(case: str | None) -> Iterator[Figure]:
    from workbench.bench_lake import bench_lake

    yield from bench_lake(case)


def _bench_engine(case: str | None) -> Iterator[Figure]:
    from workbench.bench_engine import bench_engine

    yield from bench_engine(case)


def _bench_loop(case: str | None) -> Iterator[Figure]:
    from workbench.bench_loop import bench_loop

    yield from bench_loop(case)


def _bench_methods(case: str | None) -> Iterator[Figure]:
    from workbench.bench_methods import bench_methods

    yield from bench_methods(case)


def _bench_study(case: str | None) -> Iterator[Figure]:
    from workbench.bench_study import bench_study

    yield from bench_study(case)


def _bench_replay(case: str | None) -> Iterator[Figure]:
    from workbench.bench_replay import bench_replay

    yield from bench_replay(case)


def _bench_trees(case: str | None) -> Iterator[Figure]:
    from workbench.bench_trees import bench_trees

    yield from bench_trees(case)


def _bench_report(case: str | None) -> Iterator[Figure]:
    from workbench.bench_report import bench_report

    yield from bench_report(case)


def _bench_peers(case: str | None) -> Iterator[Figure]:
    from workbench.bench_peers import bench_peers

    yield from bench_peers(case)


BENCHES: dict[str, Callable[[str | None], Iterator[Figure]]] = {
    "demo": bench_demo,
    "import": bench_import,
    "start": bench_start,
    "dashboard": _bench_dashboard,
    "store": _bench_store,
    "lake": _bench_lake,
    "peers": _bench_peers,
    "replay": _bench_replay,
    "report": _bench_report,
    "engine": _bench_engine,
    "loop": _bench_loop,
    "methods": _bench_methods,
    "study": _bench_study,
    "trees": _bench_trees,
}


def machine() -> str:
    """Processor, cores and memory in a few words."""
    import psutil

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB"


def card() -> str:
    """The GPU's name, or "" without one (asked only where torch is loaded already)."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else ""


def versions() -> dict[str, str]:
    """Versions of what decides speed, of what is installed."""
    found = {"python": platform.python_version()}
    for name in ("rollout-workbench", "torch", "transformers", "duckdb", "numpy", "panel", "triton", "trl", "vllm"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def run(name: str, *, case: str | None, out: Path) -> int:
    """Run one bench, or all; print each figure and append it to <out>/<bench>.jsonl."""
    chosen = BENCHES if name == "all" else {name: BENCHES[name]} if name in BENCHES else {}
    if not chosen:
        raise ValueError(f"no bench {name!r}; there are {', '.join(BENCHES)} and all")
    out.mkdir(parents=True, exist_ok=True)
    for bench, figures in chosen.items():
        for figure in figures(case):
            row = {
                "bench": bench, **figure._asdict(), "machine": machine(), "card": card(),
                "date": datetime.date.today().isoformat(), "versions": versions(),
            }  # fmt: skip
            print(f"{bench} {figure.case} {figure.metric}: {figure.value:.4g} {figure.unit} {figure.note}", flush=True)
            with (out / f"{bench}.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
    return 0
