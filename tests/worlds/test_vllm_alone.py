"""What needs a vLLM of its own: starting, sleeping, a whole run. See `test_vllm`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest
import torch

from tests.families import random_model
from workbench import models
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.types import Budget
from workbench.worlds.engines import Request
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.forward import answer_statistics, pack
from workbench.worlds.engines.server_engine import ServerEngine
from workbench.worlds.engines.vllm_engine import VllmEngine, obstacle

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "vllm runs here")

PREFIX = np.random.default_rng(0).integers(3, 500, 40).tolist()


def trained():
    return models.load("tiny")[0].to("cuda" if torch.cuda.is_available() else "cpu", torch.float32).eval()


def sample(engine):
    made = engine.generate(Request.of_groups([PREFIX], np.array([8]), np.array([20]), streams(0, map(str, range(8)))))
    return made.tokens.values.tolist()


def test_starting_leaves_the_random_numbers_of_the_process():
    torch.manual_seed(5)
    want = torch.rand(3).tolist()
    torch.manual_seed(5)
    VllmEngine(trained(), "float32", eager=True, max_rows=8).close()
    assert torch.rand(3).tolist() == want


@pytest.mark.gpu
def test_a_sleeping_engine_gives_its_memory_back_and_wakes_with_the_weights():
    engine = VllmEngine(trained(), "bfloat16", eager=True, max_rows=64, sleep=True)
    before = sample(engine)
    free = torch.cuda.mem_get_info()[0]
    engine.rest()
    assert torch.cuda.mem_get_info()[0] - free > 2**30
    assert sample(engine) == before
    engine.close()


def test_an_experiment_runs_on_it(tmp_path):
    world = {
        "engine": {"name": "vllm", "eager": True, "max_rows": 32},
        "max_tokens": 8,
        "sampling": "float32",
        "lr": 1e-6,
    }
    experiment = Experiment(
        model="tiny", pipeline="grpo", budget=Budget(rollouts=64), steps=2, eval_every=0, store=tmp_path, world=world
    )
    with Run(experiment) as run:
        run.begin()
        first = run.step()
        version = run.world.version
        second = run.step()
        assert run.world.describe()["engine"] == "VllmEngine"
        assert "hidden" not in run.world.offers
        assert "token_entropy" in run.world.offers
        logp = run.world.score(second.rollouts, frozenset({"current"}))
        run.world.engine.close()
    assert len(first.rollouts) == len(second.rollouts) == 64
    assert version == 1
    assert set(second.rollouts.version.tolist()) == {1}
    behaviour, current = second.rollouts.logp, logp.current  # one tiny update apart
    assert np.abs(behaviour.values - current.values).mean() < 0.01


@pytest.fixture(params=["tiny", "qwen3"])
def served(request, tmp_path):
    """The address of a vLLM that takes weights, and the model that it serves."""
    if request.param == "tiny":
        model, folder = trained(), models.TINY
    else:
        model, folder = random_model("qwen3", spread=2.0).to(trained().device).eval(), tmp_path / "qwen3"
        model.save_pretrained(folder)
        models.load("tiny")[1].save_pretrained(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = shutil.which("vllm") or str(Path(sys.executable).with_name("vllm"))
    command = [
        program, "serve", str(folder), "--dtype", "bfloat16", "--enforce-eager", "--max-num-seqs", "32",
        "--host", "127.0.0.1", "--port", str(port), "--logprobs-mode", "processed_logprobs",
        "--enable-prompt-tokens-details", "--worker-extension-cls", "workbench.worlds.engines.vllm_worker.PatchedWeights",
    ]  # fmt: skip
    env = {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    env |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    running = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):  # five minutes: it compiles, and the machine may be busy
        try:
            urlopen(f"{url}/health", timeout=1).close()
            break
        except (URLError, OSError):
            assert running.poll() is None, "vllm serve ended by itself"
            time.sleep(0.5)
    yield url, model
    running.terminate()
    try:
        running.wait(60)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()


@pytest.mark.slow
def test_a_real_server_takes_patches_and_samples_from_them(served):
    url, model = served
    engine = ServerEngine(url, model)
    for bump in (0.0, 0.3):
        with torch.no_grad():
            model.model.layers[0].mlp.up_proj.weight[:3] += bump
        engine.sync()
        made = engine.generate(
            Request.of_groups([PREFIX], np.array([6]), np.array([20]), streams(0, map(str, range(6))), temperature=0.7)
        )
        with torch.no_grad():
            tokens = [t.tolist() for t in made.tokens.rows()]
            logp, _, mask = answer_statistics(model, pack([PREFIX], [tokens], model.device), 0.7)
        wanted = np.concatenate([row[m].float().cpu().numpy() for row, m in zip(logp, mask, strict=True)])
        assert np.abs(made.logp.values - wanted).mean() < 0.02
    assert engine.synced["sync_share"] < 0.001
    assert engine.synced["sync_bytes"] < 10_000
