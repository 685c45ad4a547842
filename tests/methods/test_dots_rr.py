import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vectors.calls import batch_of
from tests.vectors.counts import replay_buffer
from tests.vectors.estimates import attention_predict
from tests.vectors.losses import off_policy_loss, policy_loss
from workbench.methods.dots_rr import DotsRr, linear_calibrate
from workbench.methods.grpo import Grpo
from workbench.methods.uniform import Uniform
from workbench.pipeline import Pipeline, run
from workbench.stages import Only
from workbench.testing.scripted import pool_of
from workbench.types import Budget, Draft
from workbench.worlds.sim.world import SimWorld

floats = st.lists(st.floats(0, 1), min_size=2, max_size=8)


@given(floats)
def test_attention_stays_within_the_references(values: list[float]) -> None:
    rng = np.random.default_rng(len(values))
    made = attention_predict(rng.standard_normal((3, 4)), rng.standard_normal((len(values), 4)), values, 0.3, 2)
    assert np.allclose(made.weights.sum(axis=1), 1)
    assert ((made.weights > 0).sum(axis=1) <= 2).all()
    assert (made.pred >= min(values) - 1e-9).all() & (made.pred <= max(values) + 1e-9).all()


@given(floats)
def test_the_line_keeps_the_mean(label: list[float]) -> None:
    x = np.linspace(0.2, 0.7, len(label))
    made = linear_calibrate(x, label, x)
    assert np.isclose(made.calibrated.mean(), np.mean(label))


def test_references_all_alike() -> None:
    assert linear_calibrate([0.1, 0.5], [0.3, 0.3], [0.9])[:2] == (0.0, 0.3)
    assert linear_calibrate([0.4, 0.4], [0.0, 1.0], [0.9])[:2] == (0.0, 0.5)


def test_buffers_at_their_edges() -> None:
    groups = [("a", [0, 1]), ("b", [0, 1]), ("a", [1, 1])]
    assert replay_buffer(groups, 9, 1).eligible.tolist() == [1]  # the latest group of a is settled
    assert replay_buffer(groups, 1, 1).kept_before_append.tolist() == []
    assert replay_buffer([("a", [0.5, 0.5]), ("b", [None, 1])], 9, 0).eligible.tolist() == []
    assert replay_buffer([], 4, 2).eligible.tolist() == []


@settings(deadline=None)
@given(st.integers(0, 50))
def test_the_loss_is_center_times_ppo_around_the_old_policy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    new, mu, old = -rng.random((3, 1, 6)) * 2
    a, ones = rng.standard_normal(6), np.ones(6)
    made = off_policy_loss(new[0], mu[0], old[0], a, ones)
    for t in range(6):
        ppo = policy_loss(new[:, [t]], old[:, [t]], a[None, [t]], [[1]])["loss"]
        assert np.isclose(made["token_loss"][t], made["center"][t] * ppo)


def test_the_weight_of_stale_tokens_may_be_capped() -> None:
    batch = batch_of([[-1.0, -2.0]], 1.0, proximal=[[-1.0, -1.0]], behaviour=[[-3.0, -1.0]])
    assert DotsRr(center_cap=1.0).loss((), batch).stats["center"].tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("features", ["embedding", "family"])
def test_thirty_steps_of_a_simulation(features: str) -> None:
    method, world = DotsRr(features=features, capacity=20), SimWorld(n_prompts=200, n_eval=4)
    steps = list(run(Pipeline(Grpo(), method), world, Budget(8, 64), steps=30))
    fresh = [len(done.prompts) for _, done in steps]
    assert fresh == [8, 8] + [4] * 28
    again = [len(np.unique(done.rollouts.group[done.rollouts.ask < 0])) for _, done in steps]
    assert again[:2] == [0, 0]
    assert max(again) == 4
    for states, done in steps:
        old = done.rollouts.ask < 0
        assert (done.rollouts.step[old] < done.step).all()
        assert (done.rollouts.step[~old] == done.step).all()
        buffer = states["dots_rr"].buffer
        assert len(np.unique(buffer.group)) <= 20
    for (_, one), (_, two) in zip(steps[2::2], steps[3::2], strict=True):
        assert not set(one.prompts) & set(two.prompts)
    shown = method.reveal(steps[-1][0]["dots_rr"])
    assert ((shown["mean"] >= 0) & (shown["mean"] <= 1)).all()


def test_a_full_share_of_fresh_prompts_replays_nothing() -> None:
    steps = list(run(Pipeline(Grpo(), DotsRr(sigma=1.0)), SimWorld(n_prompts=60, n_eval=4), Budget(4, 16), steps=5))
    assert all((done.rollouts.ask >= 0).all() for _, done in steps)
    assert steps[-1][0]["dots_rr"].buffer is None
    with pytest.raises(ValueError, match="sigma=0"):
        DotsRr(sigma=0.0)


def test_a_million_prompts() -> None:
    method = DotsRr(features="prompt")
    state = method.init(pool_of(10))._replace(d_hat=np.random.default_rng(0).random(10**6), taken=np.zeros(10**6, bool))
    draft = Draft(1, Budget(16, 128), np.ones(10**6, bool), np.empty(0, np.int64), wanted=16)
    rows = method.select(state, draft, np.random.default_rng(1)).rows
    assert np.abs(state.d_hat[rows] - 0.5).max() < 0.02


def test_it_only_selects_where_told_to() -> None:
    pipeline = Pipeline(Grpo(), Only(DotsRr(), "select"))
    done = [d for _, d in run(pipeline, SimWorld(n_prompts=60, n_eval=4), Budget(4, 16), steps=4)]
    assert isinstance(pipeline.decider("allocate"), Uniform)
    assert (done[-1].rollouts.ask >= 0).all()
