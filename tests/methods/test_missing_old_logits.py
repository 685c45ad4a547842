import numpy as np
import pytest

from tests.vectors.losses import missing_decoupled_loss, ratio_split
from workbench.methods.grpo import Grpo
from workbench.methods.missing_old_logits import (
    MissingOldLogits,
    interpolated_bounds,
)
from workbench.pipeline import Pipeline, run
from workbench.types import Budget
from workbench.worlds.sim.world import SimWorld

DRAWS = -np.random.default_rng(0).random((3, 4, 6)) * 2
A = np.array([1.0, -1.0, 0.5, 0.0])
MASK = (np.arange(24).reshape(4, 6) % 5 != 1).astype(float)


def test_the_parts_multiply_to_the_total() -> None:
    got = ratio_split(*DRAWS)
    assert np.allclose(got["discrepancy"] * got["staleness"], got["total"])


def test_nothing_kept_is_no_division_by_zero() -> None:
    got = missing_decoupled_loss([[-1.0]], [[-1.0]], [[-9.0]], [1.0], [[1]], discrepancy_keep=(0.5, 2.0))
    assert (got["loss"], got["kept"], got["clip_frac"], got["grad_logp"].tolist()) == (0, 0, 0, [[0]])


def test_an_interpolation_that_never_clips_is_an_error() -> None:
    with pytest.raises(ValueError, match="alpha=0"):
        interpolated_bounds(0, 0.2, 0.2)


def test_interpolation_clips_the_total_ratio() -> None:
    low, high = interpolated_bounds(0.25, 0.2, 0.2)
    total = np.array([low * 0.99, low * 1.01, high * 0.99, high * 1.01])
    s = total**0.25
    assert (np.clip(s, 0.8, 1.2) != s).tolist() == [True, False, False, True]


def test_thirty_steps_of_a_simulation() -> None:
    pipeline = Pipeline(Grpo(), MissingOldLogits())
    assert pipeline.decider("loss").name == "missing_old_logits"
    assert len(list(run(pipeline, SimWorld(n_prompts=40, n_eval=8), Budget(8, 64), steps=30))) == 30
