import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.methods.grpo import Grpo
from workbench.methods.minpro import Minpro, minpro_loss, prefix_weights
from workbench.pipeline import Pipeline, run
from workbench.types import Batch, Budget
from workbench.worlds.sim.world import SimWorld

ratio = st.lists(st.floats(-3, 3), min_size=1, max_size=8)


def test_the_minimum_goes_on_across_a_gap() -> None:
    got = prefix_weights(np.log([[9.0, 0.5, 7.0, 2.0]]), [[0, 1, 0, 1]])
    assert got.token.tolist() == [[0, 0.5, 0, 2]]
    assert np.allclose(got.min_prefix, [[0, 1, 0, 0.5]])
    assert np.allclose(got.minpro, [[0, 0.5, 0, 1]])
    assert np.allclose(got.prefix_product, [[0, 0.5, 0, 1]])


def test_empty_masks_and_huge_ratios() -> None:
    got = minpro_loss([[-1.0]], [[-2.0]], [1.0], [[0]])
    assert (got.loss, got.cap_frac, got.grad_logp.tolist()) == (0, 0, [[0]])
    assert np.isfinite(prefix_weights([[900.0, -900.0] * 60], np.ones((1, 120))).prefix_product).all()
    assert minpro_loss([[0.0]], [[-30.0]], [1.0], [[1]]).cap_frac == 1


@given(ratio)
def test_the_weight_is_the_minimum_of_a_loop(x: list) -> None:
    got = prefix_weights([x], np.ones((1, len(x))))
    for t, value in enumerate(x):
        assert np.isclose(got.minpro[0, t], np.exp(min(x[:t], default=0.0) + value))


@settings(deadline=None)  # torch is imported in the first example
@given(ratio, st.floats(-2, 2))
def test_the_torch_loss_equals_its_twin(x: list, a: float) -> None:
    torch = pytest.importorskip("torch")
    logp = -np.arange(1.0, len(x) + 1)[None]
    mask = (np.arange(len(x)) % 3 != 1)[None]
    current = torch.tensor(logp, requires_grad=True)
    old = torch.tensor(logp - np.array(x))
    valid = torch.tensor(mask, dtype=torch.float64)
    batch = Batch(current, old, old, torch.full_like(old, a), valid, valid, torch.arange(1))
    made = (Minpro().loss((), batch).term * valid).sum() / max(mask.sum(), 1)
    made.backward()
    want = minpro_loss(logp, logp - np.array(x), [a], mask)
    assert np.isclose(made.item(), want.loss)
    assert np.allclose(current.grad.numpy(), want.grad_logp)


def test_thirty_steps_of_a_simulation() -> None:
    world = SimWorld(n_prompts=40, n_eval=8)
    pipeline = Pipeline(Grpo(), Minpro())
    assert pipeline.decider("loss").name == "minpro"
    assert len(list(run(pipeline, world, Budget(8, 64), steps=30))) == 30
