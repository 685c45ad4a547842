import numpy as np
import pytest

from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, draft_of, rollouts_of
from workbench.types import Advantage, Batch, Budget

torch = pytest.importorskip("torch")


def test_groups_of_any_size_and_null_rewards() -> None:
    rollouts = rollouts_of([[1, 0, None], [0.7], [1, 1]])
    got = Grpo(eps=0.0).estimate((), Advantage.start(rollouts), draft_of(rollouts), np.random.default_rng(0))
    assert np.allclose(got.value, [np.sqrt(0.5), -np.sqrt(0.5), 0, 0, 0, 0])
    assert got.keep.tolist() == [True, True, False, True, True, True]
    assert np.allclose(got.baseline, [0.5, 0.5, np.nan, 0.7, 1, 1], equal_nan=True)


def test_rollouts_that_others_took_out_are_in_no_mean() -> None:
    rollouts = rollouts_of([[1, 0, 0, 0]])
    start = Advantage.start(rollouts).drop(np.array([False, False, True, True]), "stale")
    got = Grpo(estimator="dr_grpo").estimate((), start, draft_of(rollouts), np.random.default_rng(0))
    assert got.value.tolist() == [0.5, -0.5, 0, 0]
    assert got.reason.tolist() == ["", "", "stale", "stale"]


def torch_batch(seed: int, b: int = 4, t: int = 6) -> tuple[Batch, np.ndarray]:
    rng = np.random.default_rng(seed)
    mask = np.arange(t) < rng.integers(0, t + 1, (b, 1))
    tensors = [torch.tensor(-2 * rng.random((b, t))) for _ in range(3)]
    advantage = torch.tensor(rng.normal(size=(b, 1))).expand(b, t)
    logp = tensors[0].requires_grad_()
    return Batch(logp, tensors[1], tensors[2], advantage, torch.tensor(mask), torch.zeros(b, t), torch.arange(b)), mask


def test_the_importance_weight_is_truncated_and_carries_no_gradient() -> None:
    logp = torch.tensor([[-1.0, -1.0]], requires_grad=True)
    behaviour = torch.tensor([[-1.0 - np.log(4.0), -1.0 + np.log(4.0)]], dtype=torch.float32)
    one = torch.ones(1, 2)
    batch = Batch(logp, behaviour, torch.tensor([[-1.0, -1.0]]), one, one.bool(), one, torch.zeros(1))
    loss = Grpo().loss((), batch)
    loss.term.sum().backward()
    assert torch.allclose(loss.term, torch.tensor([[-2.0, -0.25]]))
    assert torch.allclose(logp.grad, torch.tensor([[-2.0, -0.25]]))
    assert torch.allclose(Grpo(truncation=None).loss((), batch).term, torch.tensor([[-1.0, -1.0]]))


def test_runs_alone() -> None:
    steps = [step for _, step in run(Pipeline(Grpo()), ScriptedWorld(), Budget(prompts=4, rollouts=16), steps=2)]
    assert [len(s.rollouts) for s in steps] == [16, 16]
