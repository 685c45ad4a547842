"""Puts this folder on the path, so that tests find the support files of other folders; skips what needs a GPU without one."""

import subprocess
import sys
import time

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked gpu are skipped, with the reason, where torch sees no CUDA device."""
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
    from workbench.runs.steering.commands import Remote
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
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-m", "workbench", "run", str(tmp_path / "e.toml")]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        remote, end = None, time.monotonic() + 60
        while remote is None or not remote.n_steps:
            assert time.monotonic() < end, (tmp_path / "log").read_text()
            time.sleep(0.1)
            try:
                remote = remote or Remote(experiment.store, who="viewer")
            except (StoreError, ValueError):  # not there yet
                continue
        yield process, remote
        process.kill()
        process.wait(20)
