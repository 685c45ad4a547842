"""How soon there is something to see: `import workbench`, and the demo's first recorded step, from the shell's point of view."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figure import Figure


def _import() -> Iterator[Figure]:
    """`import workbench` in a fresh interpreter, against starting Python and doing nothing."""
    code = {"import": "import workbench", "numpy": "import numpy", "nothing": "pass"}
    taken = {name: min(_seconds([sys.executable, "-c", line]) for _ in range(5)) for name, line in code.items()}
    own = taken["import"] - taken["nothing"]
    yield Figure("workbench", "import", own, "s", "numpy", own / max(taken["numpy"] - taken["nothing"], 1e-9))


def bench(case: str | None) -> Iterator[Figure]:
    """`import workbench`, and a warm demo to its first recorded step, each in a fresh process."""
    if case in (None, "import"):
        yield from _import()
    for model in ("smollm2", "tiny"):
        if case in (None, model):
            with tempfile.TemporaryDirectory() as store:
                command = [sys.executable, "-m", "workbench", "demo", "--model", model, "--steps", "1"]
                began = time.perf_counter()
                process = subprocess.Popen([*command, "--store", store, "--no-dashboard"], stdout=subprocess.DEVNULL)
                while process.poll() is None and not _recorded(Path(store)):
                    time.sleep(0.05)
                yield Figure(model, "first_recorded_step", time.perf_counter() - began, "s")
                process.wait()


def _recorded(store: Path) -> bool:
    """Whether a training step is committed in a store."""
    from workbench.store.folder import bundle

    there = [p for p in store.glob(f"commits/*/*/*/{bundle.NAME}") if p.parent.name.isdigit()]
    return any("steps" in bundle.read(path) for path in there)


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began
