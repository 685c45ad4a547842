"""A probe set is sampled beside the budget and touches neither the loss nor the beliefs."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.methods.grpo import Grpo
from workbench.methods.mopps import Mopps
from workbench.methods.probe_set import ProbeSet
from workbench.pipeline import Pipeline, run
from workbench.types import Budget
from workbench.worlds.sim.world import SimWorld

BUDGET = Budget(prompts=4, rollouts=16)


def test_probes_come_in_the_first_step_and_every_few_after_it() -> None:
    pipeline = Pipeline(Grpo(), ProbeSet(prompts=3, rollouts=8, every=2))
    steps = [s for _, s in run(pipeline, SimWorld(n_prompts=30), BUDGET, steps=4)]
    probes = [s.rollouts.take(s.rollouts.purpose == "probe") for s in steps]
    assert [len(p) for p in probes] == [24, 0, 24, 0]
    assert np.unique(probes[0].prompt).tolist() == [0, 10, 20]
    assert not any(s.advantage.keep[s.rollouts.purpose == "probe"].any() for s in steps)
    assert [int((s.rollouts.purpose == "train").sum()) for s in steps] == [16] * 4


def test_selection_goes_on_as_without_it() -> None:
    made = [Pipeline(Grpo(), Mopps()), Pipeline(Grpo(), Mopps(), ProbeSet(prompts=3, rollouts=8, every=1))]
    asked = [[s.prompts.tolist() for _, s in run(p, SimWorld(n_prompts=30), BUDGET, steps=5)] for p in made]
    assert asked[0] == asked[1]


def test_settings_that_probe_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="probe nothing"):
        ProbeSet(every=0)
