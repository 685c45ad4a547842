"""Every objective shows its ratio, weight, clipped tokens and the push on each token."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workbench.analysis import objective
from workbench.methods.async_staleness import AsyncStaleness
from workbench.methods.cispo import Cispo
from workbench.methods.grpo import Grpo
from workbench.methods.mopps import Mopps
from workbench.methods.nudgerl import Nudgerl
from workbench.pipeline import catalog
from workbench.testing.scripted import pool_of
from workbench.types import Batch

rng = np.random.default_rng(0)
LOGP, OLD, SEEN = (-2 * rng.random((4, 6)) for _ in range(3))
A, MASK = np.repeat(rng.standard_normal((4, 1)), 6, 1), (rng.random((4, 6)) < 0.8).astype(float)
TOP = torch.tensor(-3 * rng.random((4, 6, 3)))
EXTRA = {
    "teacher_logp": torch.tensor(OLD - 0.1),
    "student_topk_logp": TOP,
    "teacher_topk_logp": TOP - 0.1,
    "plain_logp": torch.tensor(LOGP - 0.1),
}


def batch() -> Batch:
    columns = [torch.tensor(c) for c in (LOGP, SEEN, OLD, A, MASK)]
    return Batch(*columns, torch.tensor(-LOGP), torch.arange(4), EXTRA)


def test_the_push_is_minus_the_gradient_of_the_unreduced_loss() -> None:
    made = objective.tokens(Grpo(truncation=None, reduction="token_mean"), (), batch())
    ratio = np.exp(LOGP - OLD)
    clipped = ((ratio > 1.2) & (A > 0)) | ((ratio < 0.8) & (A < 0))
    assert np.allclose(made.coefficient, np.where(clipped, 0.0, A * ratio) * MASK)
    assert np.allclose(made.ratio, ratio * MASK)
    assert (made.clipped.numpy() == clipped * MASK).all()
    assert (made.coefficient[made.clipped] == 0).all()


def test_a_clipped_weight_leaves_a_push() -> None:
    made = objective.tokens(Cispo(eps_high=1.1, truncation=None), (), batch())
    assert made.clipped.any()
    assert torch.allclose(made.coefficient[made.clipped], 1.1 * batch().advantage[made.clipped])


def test_a_distillation_pushes_behind_the_plain_prompt() -> None:
    made = objective.tokens(Nudgerl(distill=0.5), Nudgerl().init(pool_of(4)), batch(), "penalty")
    assert np.allclose(made.coefficient, 0.5 * A * MASK)


def test_weights_that_filter_are_shown() -> None:
    made = objective.tokens(AsyncStaleness(upper=1.2), (), batch())
    filtered = torch.tensor((np.log(1.2) < OLD - SEEN) & (MASK > 0))
    assert made.clipped[filtered].all()
    assert not made.coefficient[filtered].any()
    assert not made.weight[filtered].any()


@pytest.mark.parametrize(
    ("slug", "verb"), [(slug, verb) for verb in ("loss", "penalty") for slug in catalog.find(verb)]
)
def test_every_objective_can_be_looked_at(slug: str, verb: str) -> None:
    method = catalog.make(slug)
    made = objective.tokens(method, method.init(pool_of(24)), batch(), verb)
    for column in made:
        assert column.shape == (4, 6)
        assert torch.isfinite(column).all()
        assert not column.requires_grad
        assert not column[torch.tensor(MASK) == 0].any()


def test_a_method_without_an_objective_is_refused() -> None:
    with pytest.raises(ValueError, match="no 'loss' to look at"):
        objective.tokens(Mopps(), (), batch())
