"""A store with one run of five steps, two evaluations, beliefs, a command and an event."""

from __future__ import annotations

import numpy as np
import pytest
from lake_fixtures import server, url  # noqa: F401
from made_steps import made_beliefs, made_evaluation, made_pool, made_step

from workbench.store import Store, Writer
from workbench.types import Event


class Recorded:
    """What was recorded, and where."""

    def __init__(self, folder):
        rng = np.random.default_rng(0)
        self.folder, self.pool, self.evaluation = folder, made_pool(20), made_pool(6, "e")
        self.steps = [made_step(s, self.pool, rng) for s in range(1, 6)]
        who = {"allocate": ["mopps"], "estimate": ["grpo", "mc_grpo"]}
        experiment = {"name": "Sim World", "seed": 7}
        with Writer(folder, experiment, self.pool, self.evaluation, who=who, world={"model": "m"}) as writer:
            self.run = writer.run
            writer.beliefs(0, made_beliefs(self.pool, rng))
            self.first = made_evaluation(0, self.evaluation, rng)
            writer.evaluation(0, self.first)
            for step in self.steps:
                last = made_evaluation(5, self.evaluation, rng) if step.step == 5 else None
                writer.append(step, made_beliefs(self.pool, rng), last)
            writer.command("pin", {"prompt": "p0003"}, who="test")
            writer.event(Event("note", "test", "<b>bold</b>"))


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    return Recorded(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def store(recorded):
    with Store.open(recorded.folder) as opened:
        yield opened
