"""Two processes take the step that one would have taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.timing import patience
from workbench.parallel import processes
from workbench.worlds.training import data_parallel

from .conftest import toy_model
from .run_rank import facts, lived

SCRIPT = Path(__file__).with_name("run_rank.py")


def test_a_single_process_has_all_the_work() -> None:
    assert processes.ranks() == 1
    assert data_parallel.mine([1, 2, 3]) == [1, 2, 3]


def test_a_process_with_fewer_micro_batches_gets_one_that_does_not_count(monkeypatch) -> None:
    assert data_parallel.dealt([1, 2, 3]) == [(1, False), (2, False), (3, False)]
    monkeypatch.setattr(processes, "ranks", lambda: 2)
    for rank, even, plain in ((0, [(1, False), (3, False)], [(1, False), (3, False)]),
                              (1, [(2, False), (1, True)], [(2, False)])):  # fmt: skip
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        assert data_parallel.dealt([1, 2, 3], even=True) == even
        assert data_parallel.dealt([1, 2, 3]) == plain
        assert data_parallel.dealt([], even=True) == []


def together(tmp_path, *how: str) -> list[dict]:
    """What two processes found."""
    out = [tmp_path / f"{rank}.pt" for rank in range(2)]
    running = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(rank), "2", str(tmp_path / "meet"), str(out[rank]), *how])
        for rank in range(2)
    ]
    assert [one.wait(patience(240)) for one in running] == [0, 0]
    return [torch.load(path, weights_only=False) for path in out]


def agree(first: dict, second: dict, alone: dict, exact: bool = True, scale: float = 1.0) -> None:
    """Two processes hold the same, and what one process alone would hold up to rounding."""
    names = (
        "gradient",
        "scalars",
        "rows",
        "weights",
        "logp",
        "several",
        "before",
        *(["norms"] if "norms" in first else []),
    )
    for name in names:
        a, b = first[name].nan_to_num(-9), second[name].nan_to_num(-9)
        assert torch.equal(a, b) if exact else torch.allclose(a, b, atol=1e-6), name
    # Adam's first steps divide a gradient by its own size: a weight whose gradient is rounding noise may go either way
    tolerances = {"gradient": 2e-6, "scalars": 1e-5, "rows": 1e-5, "norms": 1e-5, "logp": 1e-3, "before": 1e-4}
    for name, tolerance in tolerances.items():
        if name in first:
            a, b = first[name].nan_to_num(-9), alone[name].nan_to_num(-9)
            assert torch.allclose(a, b, atol=scale * tolerance, rtol=scale * 1e-4), name
    assert float((first["several"] - alone["several"]).abs().mean()) < scale * 1e-4
    assert first["version"] == second["version"] == alone["version"] == 2
    assert {first["skipped"], second["skipped"], alone["skipped"]} == {"non-finite loss"}


gloo = pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch has no gloo")


@pytest.mark.slow
@gloo
def test_two_processes_take_the_step_of_one(tmp_path) -> None:
    agree(*together(tmp_path), facts())


@pytest.fixture(scope="module")
def divided(tmp_path_factory) -> tuple[Path, list[dict]]:
    """A folder saved by two processes that hold half of the weights each, and what they found."""
    folder = tmp_path_factory.mktemp("divided")
    return folder / "meet-saved", together(folder, "shard")


@pytest.mark.slow
@gloo
def test_two_processes_with_half_the_weights_each_take_the_step_of_one(divided) -> None:
    _, (first, second) = divided
    alone = facts()
    agree(first, second, alone)
    assert first["held"] + second["held"] == alone["held"]
    assert abs(first["held"] - second["held"]) < 0.1 * alone["held"]
    assert first["moments"] < 0.6 * alone["moments"]
    for one in (first, second):  # saved by both, loaded into other weights: the same again
        assert torch.equal(*one["logp"])
        assert one["after"] == first["after"]
    assert first["after"] == pytest.approx(alone["after"], abs=1e-3)


@pytest.mark.slow
@gloo
def test_a_folder_saved_from_divided_weights_is_an_ordinary_one(divided) -> None:
    from workbench.worlds.training.policy import Policy

    folder, (first, _) = divided
    policy = Policy(toy_model(seed=9))
    policy.load(folder)
    assert policy.version == 2
    assert torch.equal(torch.cat([p.detach().flatten() for p in policy.parameters]), first["weights"])
    assert all(s["exp_avg"].shape == p.shape for p, s in policy.optimizer.state.items())


@pytest.mark.slow
@gloo
@pytest.mark.parametrize("how", [[], ["shard"]], ids=["parallel", "sharded"])
def test_two_processes_live_the_run_of_one(tmp_path, how) -> None:
    first, second = together(tmp_path, "world", *how)
    assert first == second
    alone = lived()
    for name in ("id", "tokens", "grown", "reward", "prefilled"):
        assert first[name] == alone[name], name
    assert first["loss"] == pytest.approx(alone["loss"], abs=1e-5)
    assert max(first["logp_gap"]) < 1e-4  # each step was sampled from the weights that it trained
    if how:
        assert first["files"] == ["world"]
        assert (tmp_path / "meet-saved" / "world" / "model.safetensors").exists()


def test_what_cannot_be_divided_is_named() -> None:
    from workbench.worlds.training.packing import StreamPolicy
    from workbench.worlds.training.policy import Policy

    with pytest.raises(ValueError, match="start them with torchrun"):
        Policy(toy_model(), shard=True)
    with pytest.raises(ValueError, match="neither row_norms nor LoRA"):
        Policy(toy_model(), shard=True, row_norms=True)
    with pytest.raises(ValueError, match="sharding needs Policy"):
        StreamPolicy(toy_model(), shard=True)


two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


@pytest.mark.gpu
@two
@pytest.mark.parametrize("how", [["cuda"], ["cuda", "shard"]], ids=["data parallel", "sharded"])
def test_two_gpus_take_the_step_of_one(tmp_path, how) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    first, second = together(tmp_path, *how)
    agree(first, second, facts(device="cuda"), scale=10.0)
