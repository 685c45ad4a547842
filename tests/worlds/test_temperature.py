"""At which temperature a rollout was sampled is recorded with it, through changes, trees and later steps."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.runs.steering.changes import restore
from workbench.store import Store
from workbench.types import Plan
from workbench.worlds.live.starts import Starts
from workbench.worlds.live.world import LiveWorld

from .conftest import toy_model, toy_tokenizer
from .test_growing import BUDGET, Forker
from .test_resuming import after, finish_step, resumed


def world_of(task) -> LiveWorld:
    return LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=1e-2, temperature=0.7, max_tokens=8)


@pytest.mark.parametrize("grown", [False, True])
def test_each_step_has_the_temperature_of_its_sampler(task, tmp_path, grown):
    experiment = Experiment(
        pipeline="grpo", budget=BUDGET, steps=2, store=str(tmp_path), eval_every=2, checkpoint_every=0
    )
    with Run(experiment, world=world_of(task)) as made:
        made.state.pipeline = Pipeline(Grpo(), Forker()) if grown else made.pipeline
        made.state.states = made.pipeline.init(made.world.pool)
        made.step()
        restore(made.state, "set", {"to": {"temperature": 1.25}})
        made.step()
    with Store.open(tmp_path) as store:
        asked = "SELECT DISTINCT step, purpose, temperature FROM rollouts ORDER BY ALL"
        seen = [tuple(r.values()) for r in store.sql(asked).to_pylist()]
        assert seen == [(0, "eval", 0.7), (1, "train", 0.7), (2, "eval", 0.7), (2, "train", 1.25)]
        asked = (
            "SELECT DISTINCT step, kind, temperature FROM {} WHERE step > 0 AND tree_id NOT LIKE '%eval' ORDER BY ALL"
        )
        at = [(1, "model", 0.7), (1, "prompt", None), (2, "model", 1.25), (2, "prompt", None)]
        assert [tuple(r.values()) for r in store.sql(asked.format("trees")).to_pylist()] == at
        assert [tuple(r.values()) for r in store.sql(asked.format("nodes")).to_pylist()] == (at if grown else [])
        one, two = store.steps(pool=made.world.pool)
    assert set(one.rollouts.temperature) == {0.7}
    assert set(two.rollouts.temperature) == {1.25}


def test_what_goes_on_in_a_later_step_has_that_of_its_last_token(task, tmp_path):
    world = world_of(task)
    rows = world.sample(Plan(np.array([0, 3, 11]), np.array([4, 2, 3]), step=1), None, after(3))
    ended = rows.finish == "stop"
    assert 0 < ended.sum() < len(rows)
    finish_step(world, rows, trained=False)
    world._starts.save(tmp_path)
    again = Starts()
    again.load(tmp_path)
    assert {u.temperature for u in again.unfinished.values()} == {0.7}
    world.temperature = world.policy.temperature = 1.25
    again = world.sample(resumed(rows, 2))
    assert again.temperature.tolist() == np.where(ended, 0.7, 1.25).tolist()
