"""kill -9 in mid-run, then resume: the same plans, the same tokens, losses equal to the last bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.timing import patience
from workbench import Budget, Experiment, Store
from workbench.runs.checkpoints import POSITION
from workbench.runs.run import Run

SCRIPT = Path(__file__).with_name("run_tiny.py")


def process(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, str(SCRIPT), *arguments], stdout=subprocess.PIPE, text=True)


def lines_of(running: subprocess.Popen) -> list[dict]:
    out, _ = running.communicate(timeout=patience(300))
    assert running.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.slow
def test_killed_and_resumed_is_uninterrupted(tmp_path) -> None:
    whole = process(str(tmp_path / "whole"), "6")
    cut = process(str(tmp_path / "cut"), "6")
    head = json.loads(cut.stdout.readline())
    for line in cut.stdout:
        if json.loads(line)["step"] == 3:
            break
    os.kill(cut.pid, signal.SIGKILL)  # somewhere in step 4, one step after the checkpoint
    assert cut.wait() == -signal.SIGKILL
    cut.stdout.close()
    expected = lines_of(whole)
    again = lines_of(process(str(tmp_path / "cut"), "6", head["run"]))
    assert again[0] == {"run": head["run"], "from": 2}
    assert again[1:] == expected[3:]
    assert len({line["loss"] for line in expected[1:]}) > 3
    with Store.open(tmp_path / "cut") as store:
        recorded = store.sql("select step, count(*) as n from steps group by step order by step").to_pylist()
    assert recorded == [{"step": s, "n": 1} for s in range(1, 7)]


SMALL = Experiment(
    model="sim",
    steps=4,
    eval_every=0,
    checkpoint_every=2,
    budget=Budget(prompts=4, rollouts=16),
    world={"n_prompts": 40},
)


def test_prompts_taken_out_stay_out_and_torch_draws_go_on(tmp_path) -> None:
    experiment = SMALL.with_(store=str(tmp_path))
    with Run(experiment) as run:
        run.state.available = np.arange(40) % 2 == 0
        torch.manual_seed(5)
        run.step()
        run.step()
        drawn = torch.rand(3).tolist()
        run.step()
    torch.manual_seed(0)
    with Run(experiment, resume=run.run_id) as again:
        assert again.n_steps == 3
        assert again.state.available.tolist() == (np.arange(40) % 2 == 0).tolist()
        assert (again.step().prompts % 2 == 0).all()
    torch.manual_seed(5)
    assert torch.rand(3).tolist() == drawn


def test_a_checkpoint_cut_short_is_not_taken(tmp_path) -> None:
    experiment = SMALL.with_(store=str(tmp_path))
    with Run(experiment) as run:
        run.step()
        run.step()
        whole = sorted(p.name for p in run.record.checkpoints.iterdir())
        save = run.world.save

        def broken(folder):
            save(folder)
            raise OSError("no space left on device")

        run.world.save = broken
        run.step()
        run.step()
        assert sorted(p.name for p in run.record.checkpoints.iterdir()) == whole == ["step-000002"]
        (run.record.checkpoints / "step-000004.tmp").mkdir()
        run.world.save = save
        run.record.writer.flush()  # its own renames must not meet the broken one
        rename = Path.rename

        def gone(path, target):
            if path.name.startswith("step-"):  # the recorder renames as well, in its own thread
                raise OSError("gone")
            return rename(path, target)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "rename", gone)
            run.record.checkpoint(run.state)
    assert (run.record.checkpoints / "step-000004" / POSITION).exists()
    assert len(list(run.record.checkpoints.iterdir())) == 1
