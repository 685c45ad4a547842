import numpy as np
import pytest

from workbench.methods.grpo import Grpo
from workbench.methods.missing_old_logits import (
    MissingOldLogits,
    decoupled_loss,
    ewma_update,
    interpolated_bounds,
    ratio_split,
    version_plan,
)
from workbench.pipeline import Pipeline, run
from workbench.types import Batch, Budget
from workbench.worlds.sim.world import SimWorld

DRAWS = -np.random.default_rng(0).random((3, 4, 6)) * 2
A = np.array([1.0, -1.0, 0.5, 0.0])
MASK = (np.arange(24).reshape(4, 6) % 5 != 1).astype(float)


def test_the_parts_multiply_to_the_total() -> None:
    got = ratio_split(*DRAWS)
    assert np.allclose(got.discrepancy * got.staleness, got.total)


def test_nothing_kept_is_no_division_by_zero() -> None:
    got = decoupled_loss([[-1.0]], [[-1.0]], [[-9.0]], [1.0], [[1]], discrepancy_keep=(0.5, 2.0))
    assert (got.loss, got.kept, got.clip_frac, got.grad_logp.tolist()) == (0, 0, 0, [[0]])


def test_versions_and_averages_at_their_edges() -> None:
    assert version_plan([9, 1], [4, 5]).use.tolist() == [5, 4]
    assert version_plan([], [1]).use.tolist() == []
    assert ewma_update([3.0], [7.0], 5.0, 0.0) == ([3.0], 1.0)
    with pytest.raises(ValueError, match="no policy version"):
        version_plan([1], [])
    with pytest.raises(ValueError, match="alpha=0"):
        interpolated_bounds(0, 0.2, 0.2)


@pytest.mark.parametrize("route", ["given", "infer", "interpolated"])
@pytest.mark.parametrize("keep", [None, (0.5, 1.5)])
def test_the_torch_loss_equals_its_twin(route: str, keep: tuple | None) -> None:
    torch = pytest.importorskip("torch")
    logp, prox, infer = DRAWS
    current = torch.tensor(logp, requires_grad=True)
    batch = Batch(
        current, torch.tensor(infer), torch.tensor(prox), torch.tensor(A)[:, None].expand(4, 6), torch.tensor(MASK),
        torch.tensor(MASK), torch.arange(4),
    )  # fmt: skip
    method = MissingOldLogits(route=route, alpha=0.25, discrepancy_keep=keep)
    made = (method.loss((), batch).term * batch.mask).sum()
    made.backward()
    prox = {"given": prox, "infer": infer, "interpolated": 0.25 * infer + 0.75 * logp}[route]
    want = decoupled_loss(logp, prox, infer, A, MASK, discrepancy_keep=keep)
    n = max(want.kept, 1)
    assert np.isclose(made.item() / n, want.loss)
    assert np.allclose(current.grad.numpy() / n, want.grad_logp)


def test_interpolation_clips_the_total_ratio() -> None:
    low, high = interpolated_bounds(0.25, 0.2, 0.2)
    total = np.array([low * 0.99, low * 1.01, high * 0.99, high * 1.01])
    s = total**0.25
    assert (np.clip(s, 0.8, 1.2) != s).tolist() == [True, False, False, True]


def test_thirty_steps_of_a_simulation() -> None:
    pipeline = Pipeline(Grpo(), MissingOldLogits())
    assert pipeline.decider("loss").name == "missing_old_logits"
    assert len(list(run(pipeline, SimWorld(n_prompts=40, n_eval=8), Budget(8, 64), steps=30))) == 30
