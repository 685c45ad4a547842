import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vectors.losses import minpro_loss, prefix_weights
from workbench.methods.grpo import Grpo
from workbench.methods.minpro import Minpro
from workbench.pipeline import Pipeline, run
from workbench.types import Budget
from workbench.worlds.sim.world import SimWorld

ratio = st.lists(st.floats(-3, 3), min_size=1, max_size=8)


def test_the_minimum_goes_on_across_a_gap() -> None:
    got = prefix_weights(np.log([[9.0, 0.5, 7.0, 2.0]]), [[0, 1, 0, 1]])
    assert got["token"].tolist() == [[0, 0.5, 0, 2]]
    assert np.allclose(got["min_prefix"], [[0, 1, 0, 0.5]])
    assert np.allclose(got["minpro"], [[0, 0.5, 0, 1]])
    assert np.allclose(got["prefix_product"], [[0, 0.5, 0, 1]])


def test_empty_masks_and_huge_ratios() -> None:
    got = minpro_loss([[-1.0]], [[-2.0]], [1.0], [[0]])
    assert (got["loss"], got["cap_frac"], got["grad_logp"].tolist()) == (0, 0, [[0]])
    assert np.isfinite(prefix_weights([[900.0, -900.0] * 60], np.ones((1, 120)))["minpro"]).all()
    assert minpro_loss([[0.0]], [[-30.0]], [1.0], [[1]])["cap_frac"] == 1


@settings(deadline=None)
@given(ratio)
def test_the_weight_is_the_minimum_of_a_loop(x: list) -> None:
    got = prefix_weights([x], np.ones((1, len(x))))
    for t, value in enumerate(x):
        assert np.isclose(got["minpro"][0, t], np.exp(min(x[:t], default=0.0) + value))


def test_thirty_steps_of_a_simulation() -> None:
    world = SimWorld(n_prompts=40, n_eval=8)
    pipeline = Pipeline(Grpo(), Minpro())
    assert pipeline.decider("loss").name == "minpro"
    assert len(list(run(pipeline, world, Budget(8, 64), steps=30))) == 30
