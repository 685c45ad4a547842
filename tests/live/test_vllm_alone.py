"""What needs a vLLM of its own: starting, sleeping, a whole run. See `test_vllm`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workbench import models
from workbench.experiment import Experiment, Run
from workbench.types import Budget
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.vllm import VllmEngine, obstacle

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "vllm runs here")

PREFIX = np.random.default_rng(0).integers(3, 500, 40).tolist()


def trained():
    return models.load("tiny")[0].to("cuda" if torch.cuda.is_available() else "cpu", torch.float32).eval()


def sample(engine):
    made = engine.generate([PREFIX], np.array([8]), np.array([20]), streams(0, map(str, range(8))))
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
