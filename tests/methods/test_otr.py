import numpy as np
import pytest

from workbench.methods.grpo import Grpo
from workbench.methods.otr import Otr, dft_gradient, otr_expected, otr_loss
from workbench.pipeline import Pipeline
from workbench.types import Batch
from workbench.worlds.sim.world import SimWorld

LOGITS, TARGET = np.random.default_rng(0).standard_normal((3, 5)), np.array([0, 4, 2])


@pytest.mark.parametrize("beta", [-0.1, 0.0, 0.3])
def test_at_temperature_one_it_is_weighted_fine_tuning(beta: float) -> None:
    assert np.allclose(otr_expected(LOGITS, TARGET, beta).grad, dft_gradient(LOGITS, TARGET, 1 - beta))


def test_the_gradient_is_that_of_finite_differences() -> None:
    sampled, step = np.array([[0, 1], [4, 4], [1, 1]]), 1e-6
    grad = otr_loss(LOGITS, sampled, TARGET).grad
    for t, v in np.ndindex(LOGITS.shape):
        up, down = LOGITS.copy(), LOGITS.copy()
        up[t, v] += step
        down[t, v] -= step
        slope = (otr_loss(up, sampled, TARGET).loss - otr_loss(down, sampled, TARGET).loss) / (2 * step)
        assert abs(slope - grad[t, v]) < 1e-8


def test_the_torch_loss_has_the_expected_gradient() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(LOGITS, requires_grad=True)
    logp = x.log_softmax(-1)[torch.arange(3), torch.tensor(TARGET)][None]
    ones = torch.ones(1, 3, dtype=torch.float64)
    made = Otr().loss((), Batch(logp, logp.detach(), logp.detach(), ones, ones, ones, torch.arange(1)))
    made.term.mean().backward()
    assert np.allclose(x.grad.numpy(), otr_expected(LOGITS, TARGET).grad)


def test_a_world_without_demonstrations_is_refused() -> None:
    with pytest.raises(ValueError, match="Otr needs demonstration"):
        Pipeline(Grpo(), Otr()).check(SimWorld(n_prompts=8, n_eval=4))
