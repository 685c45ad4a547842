"""Two processes take the step that one would have taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from workbench.worlds import distributed

from .run_rank import facts

SCRIPT = Path(__file__).with_name("run_rank.py")


def test_a_single_process_has_all_the_work() -> None:
    assert distributed.ranks() == 1
    assert distributed.mine([1, 2, 3]) == [1, 2, 3]


@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch has no gloo")
def test_two_processes_take_the_step_of_one(tmp_path) -> None:
    out = [tmp_path / f"{rank}.pt" for rank in range(2)]
    running = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(rank), "2", str(tmp_path / "meet"), str(out[rank])])
        for rank in range(2)
    ]
    assert [one.wait(timeout=120) for one in running] == [0, 0]
    alone, (first, second) = facts(), (torch.load(path, weights_only=False) for path in out)
    for name in ("gradient", "scalars", "rows", "norms", "weights"):
        assert torch.equal(first[name].nan_to_num(-9), second[name].nan_to_num(-9)), name
    for name, tolerance in (("gradient", 2e-6), ("scalars", 1e-5), ("rows", 1e-5), ("norms", 1e-5)):
        a, b = first[name].nan_to_num(-9), alone[name].nan_to_num(-9)
        assert torch.allclose(a, b, atol=tolerance, rtol=1e-4), name
    assert first["version"] == second["version"] == alone["version"] == 2
    assert {first["skipped"], second["skipped"], alone["skipped"]} == {"non-finite loss"}
