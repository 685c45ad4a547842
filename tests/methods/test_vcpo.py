import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.losses import sequence_weights
from workbench.methods.vcpo import Vcpo, ess, opob, scaled_lr
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import draft_of, rollouts_of
from workbench.types import Advantage, Batch, Budget, Ragged
from workbench.worlds.sim.world import SimWorld

RNG = np.random.default_rng(0)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=12), st.floats(0.1, 10))
def test_ess_lies_between_one_and_all_and_knows_no_scale(w: list, scale: float) -> None:
    got = ess(w)
    assert 0.99 <= got.ess <= len(w) + 1e-9
    assert np.isclose(ess(np.array(w) * scale).ess, got.ess, rtol=1e-2)


def test_ess_at_its_edges() -> None:
    assert ess([]) == (0, 0)
    assert ess([0.0, 0.0]) == (0, 0)
    huge = sequence_weights([[900.0], [0.0]], [[0.0], [0.0]], [[1], [1]])
    assert np.allclose(huge["gradient_weight"], [8, 1])
    assert np.isclose(ess(huge["weight"]).ess, 1)


def test_the_rate_never_rises() -> None:
    assert scaled_lr(1e-3, 0.9, 0.5) == 1e-3
    assert scaled_lr(1e-3, 0.0) == 0
    with pytest.raises(ValueError, match="no rule 'cube'"):
        scaled_lr(1, 1, 1, "cube")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 0"):
        scaled_lr(1, 1, 0)


def test_baselines_at_their_edges() -> None:
    assert opob([1, 1], [1, 1], [0, 0], [0, 0]).baseline.tolist() == [0, 0]
    assert np.abs(opob([1, 1], [1, 1], [1, 1], [0, 0]).coefficient).max() < 1e-8
    null = opob([1, None, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0])
    assert np.isnan(null.baseline[1])
    assert null.coefficient[1] == 0
    whole = opob([1, 0, 1, 1], [1] * 4, [1] * 4, [0, 0, 1, 1], scope="batch", norm_by_std=False)
    assert np.allclose(whole.baseline, 0.75)
    assert np.allclose(whole.coefficient, [0.25, -0.75, 0.25, 0.25])


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0.1, 3), st.floats(0.1, 3)), min_size=2, max_size=8))
def test_no_other_baseline_has_less_variance(rows: list) -> None:
    reward, w, g = (np.array(c) for c in zip(*rows, strict=True))
    b = opob(reward, w, g, np.zeros(len(rows), int)).baseline[0]

    def second_moment(b: float) -> float:
        return ((g * w * (reward - b)) ** 2).sum()

    assert second_moment(b) <= min(second_moment(b + 0.01), second_moment(b - 0.01))


def batch_of(logp: list, old: list, a: list, mask: list) -> tuple:
    torch = pytest.importorskip("torch")
    current = torch.tensor(logp, dtype=torch.float64, requires_grad=True)
    other, valid = torch.tensor(old, dtype=torch.float64), torch.tensor(mask, dtype=torch.float64)
    value = torch.tensor(a, dtype=torch.float64)[:, None].expand(valid.shape)
    return current, Batch(current, other, other, value, valid, valid, torch.arange(len(a)))


def test_the_gradient_is_the_weighted_score() -> None:
    current, batch = batch_of([[-1, -1, -1], [-2, -0.5, -3], [-9, -9, -9]], [[-1.5, -1.2, -4], [-1, -1, 0], [0, 0, 0]],
                              [2.0, -1.0, 5.0], [[1, 1, 1], [1, 1, 0], [0, 0, 0]])  # fmt: skip
    made = Vcpo().loss((), batch)
    (made.term * batch.mask).sum().backward()
    w = [np.exp(0.5 + 0.2 + 3), np.exp(-0.5)]
    assert np.allclose(current.grad[0].numpy(), -2 * 8)
    assert np.allclose(current.grad[1].numpy(), [w[1], w[1], 0])
    assert (current.grad[2] == 0).all()
    assert np.isclose(made.lr_scale, np.sqrt(ess(w).ess_ratio))


def test_weights_come_from_the_current_policy_where_it_was_asked() -> None:
    rollouts = rollouts_of([[1, 0, 0]])
    old = Ragged.of([[-1.0, -1.0]] * 3, float)
    new = Ragged.of([[-1.0, -1.0 + np.log(2)], [-1.0, -1.0], [-1.0, -1.0]], float)
    got = Vcpo().estimate((), Advantage.start(rollouts), draft_of(rollouts.with_(logp=old, current=new)), RNG)
    assert np.allclose(got.baseline, 4 / 6)
    plain = Vcpo().estimate((), Advantage.start(rollouts), draft_of(rollouts), RNG)
    assert np.allclose(plain.baseline, 1 / 3)


def test_thirty_steps_of_a_simulation() -> None:
    world = SimWorld(n_prompts=40, n_eval=8)
    for scope in ("group", "batch"):
        assert len(list(run(Pipeline(Vcpo(scope=scope)), world, Budget(8, 64), steps=30))) == 30
