import numpy as np
import pytest

from tests.vectors.losses import dft_gradient
from workbench.methods.grpo import Grpo
from workbench.methods.otr import Otr
from workbench.pipeline import Pipeline
from workbench.worlds.sim.world import SimWorld

LOGITS, TARGET = np.random.default_rng(0).standard_normal((3, 5)), np.array([0, 4, 2])


@pytest.mark.parametrize("beta", [-0.1, 0.0, 0.3])
def test_it_is_fine_tuning_weighted_by_the_chance_of_the_shown_token(beta: float) -> None:
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    shown, hot = p[np.arange(3), TARGET][:, None], np.eye(5)[TARGET]
    assert np.allclose(dft_gradient(LOGITS, TARGET, 1 - beta), (1 - beta) * shown * (p - hot) / 3)


def test_a_world_without_demonstrations_is_refused() -> None:
    with pytest.raises(ValueError, match="Otr needs demonstration"):
        Pipeline(Grpo(), Otr()).check(SimWorld(n_prompts=8, n_eval=4))
