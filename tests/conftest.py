"""The two tiers, one thread for each worker, and a run of another process for the tests that steer one."""

import os
import subprocess
import sys

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # the workers share the cores; their threads would only get in each other's way

import pytest
from hypothesis import settings

from tests.timing import patience, until

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

FAST_NOTEBOOKS = {
    "10_first_run.ipynb",
    "11_difficulty.ipynb",
    "40_combine_and_swap.ipynb",
    "41_your_own_method.ipynb",
    "50_sql.ipynb",
    "51_what_if.ipynb",
}
"""Notebooks of the fast tier, about 10 seconds of a processor each with their kernel; the others are slow."""


def pytest_report_header(config: pytest.Config) -> str:
    """Which tier runs, and how to run the others."""
    chosen = config.getoption("-m")
    if chosen == "not slow":
        return "tier: fast, without the tests marked slow (pytest -m slow runs these, pytest -m '' runs all)"
    return f"tier: {chosen or 'all tests'}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks slow notebooks; tests marked gpu are skipped, with the reason, where torch sees no CUDA device."""
    for item in items:
        if item.path.suffix == ".ipynb" and item.path.name not in FAST_NOTEBOOKS:
            item.add_marker("slow")
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def elsewhere(tmp_path):
    """`workbench run` in another process, with a step or more recorded: the process, and a `Remote` that steers it."""
    from workbench import Budget, Experiment
    from workbench.runs.steering.remote import Remote
    from workbench.store import StoreError

    experiment = Experiment(
        model="sim",
        steps=100_000,
        eval_every=0,
        checkpoint_every=5,
        budget=Budget(prompts=4, rollouts=32),
        world={"n_prompts": 40},
        store=str(tmp_path / "store"),
    )
    (tmp_path / "e.toml").write_text(experiment.to_toml())

    def recorded() -> Remote | None:
        try:
            remote = Remote(experiment.store, who="viewer")
        except (StoreError, ValueError):  # not there yet
            return None
        return remote if remote.n_steps else None

    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-m", "workbench.cli.main", "run", str(tmp_path / "e.toml")]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        yield process, until(recorded, 60, every=0.1, or_say=(tmp_path / "log").read_text)
        process.kill()
        process.wait(patience(20))
