"""The bench of selection and allocation measures what it names, for every method that acts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from tests.benchmarks import methods
from workbench.pipeline import catalog
from workbench.worlds.sim.world import SimWorld


class Kept(NamedTuple):
    a: np.ndarray
    nested: dict
    shared: np.ndarray


def test_a_state_counts_every_array_once_and_none_of_the_pools() -> None:
    column, pools = np.zeros(10), np.zeros((10, 4), np.float32)
    state = Kept(column, {"again": column, "other": np.zeros(3, np.int32)}, pools[:5])
    assert methods.state_bytes(state, [pools]) == 80 + 12
    assert methods.state_bytes(state) == 80 + 12 + 80


@pytest.mark.parametrize("verb", ["select", "allocate"])
def test_every_method_of_the_simulation_that_acts_is_measured(verb: str) -> None:
    there = methods.acting(verb)
    made = {slug: catalog.make(slug) for slug in catalog.find(verb)}
    assert {slug for slug, m in made.items() if verb in m.verbs and m.needs <= SimWorld.offers} <= set(there)
    assert {"select": "mssr", "allocate": "gdro"}[verb] in there  # off by default


def test_figures_have_values_and_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "POOL", 600)
    monkeypatch.setattr(methods, "BATCH", 24)
    figures = list(methods.bench("trace"))
    assert [f.metric for f in figures] == [
        "select", "select_cpu", "observe", "observe_cpu", "state",
        "allocate", "allocate_cpu", "allocate_again", "allocate_again_cpu",
    ]  # fmt: skip
    state = next(f for f in figures if f.metric == "state")
    assert state.value * 1e6 == 2 * 600 * 8 + 4 * 4 * 8 + 4 * 8  # counts of right and wrong; what the predictor learned
    assert state.ratio == state.value / 200
