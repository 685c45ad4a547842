import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.methods.brorl import Brorl, advantages, learning_rate, mass_balance, unsampled_second_moment
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, draft_of, rollouts_of
from workbench.types import Advantage, Budget
from workbench.worlds.sim.world import SimWorld

distribution = st.lists(st.floats(0.01, 1), min_size=2, max_size=8).map(lambda v: np.array(v) / sum(v))


@given(distribution, st.data(), st.sampled_from([(1.0, -1.0), (1.0, 0.0), (0.5, -2.0)]))
def test_the_balance_is_the_slope_of_the_right_mass(p: np.ndarray, data: st.DataObject, rewards: tuple) -> None:
    flags = st.lists(st.booleans(), min_size=len(p), max_size=len(p)).map(np.array)
    correct, sampled = data.draw(flags), data.draw(flags)
    r_c, r_w = rewards
    got = mass_balance(p, correct, sampled, r_c, r_w, 1.0, 4)
    step = 1e-6 / 4 * p * (np.where(correct, r_c, r_w) * sampled - got.S_R)
    moved = p * np.exp(step)
    moved /= moved.sum()
    slope = (moved[correct].sum() - p[correct].sum()) / 1e-6
    assert np.isclose(slope, got.delta_Q_pos, atol=1e-6)


@given(distribution, st.data())
def test_sampled_parts_are_never_negative(p: np.ndarray, data: st.DataObject) -> None:
    flags = st.lists(st.booleans(), min_size=len(p), max_size=len(p)).map(np.array)
    got = mass_balance(p, data.draw(flags), data.draw(flags))
    assert got.sampled_correct >= -1e-12
    assert got.sampled_incorrect >= -1e-12


def test_nothing_right_sampled_and_wrong_worth_nothing() -> None:
    assert mass_balance([0.5, 0.5], [True, False], [False, True], 1.0, 0.0).delta_Q_pos == 0


@given(distribution, st.integers(1, 500))
def test_breadth_shrinks_what_stays_unsampled(p: np.ndarray, n: int) -> None:
    assert unsampled_second_moment(p, n + 1).total <= unsampled_second_moment(p, n).total


def test_certain_tokens() -> None:
    assert unsampled_second_moment([0.0, 1.0], 512).per_token.tolist() == [0.0, 0.0]


def test_errors() -> None:
    with pytest.raises(ValueError, match="got 0 and 8 rollouts"):
        learning_rate(1e-6, 0, 8)
    with pytest.raises(ValueError, match="got N=0"):
        mass_balance([1.0], [True], [True], N=0)


def test_groups_that_cannot_inform() -> None:
    assert advantages([[1, 1], [0]]).advantage == []
    assert advantages([]).kept.tolist() == []
    got = advantages([[1], [1, 0, None]], 0.0)
    assert got.kept.tolist() == [False, True]
    assert got.advantage[0].tolist() == [1.0, -1.0, 0.0]


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=1, max_size=6))
def test_the_batch_has_mean_zero_and_std_one(groups: list) -> None:
    got = advantages(groups, 0.0)
    assert got.kept.tolist() == [0 < sum(g) < len(g) for g in groups]
    if got.advantage:
        value = np.concatenate(got.advantage)
        assert np.isclose(value.mean(), 0, atol=1e-12)
        assert np.isclose(value.std(), 1)


def test_settled_groups_leave_the_batch() -> None:
    rollouts = rollouts_of([[1, 0], [1, 1], [None, 1]])
    got = Brorl().estimate(0, Advantage.start(rollouts), draft_of(rollouts), np.random.default_rng(0))
    assert got.reason.tolist() == ["", "", "zero_variance", "zero_variance", "null_reward", "zero_variance"]


def test_breadth_is_bought_with_prompts() -> None:
    for n, groups in [(None, [8] * 8), (16, [16] * 4), (64, [64]), (500, [64])]:
        world = ScriptedWorld(24, null=0)
        step = next(run(Pipeline(Grpo(), Brorl(n=n)), world, Budget(8, 64), steps=1))[1]
        assert sorted(step.plan.n[step.plan.n > 0].tolist()) == groups


def test_the_rate_follows_the_last_batch() -> None:
    torch = pytest.importorskip("torch")
    from workbench.types import Batch

    column = torch.zeros(2, 3)
    batch = Batch(column, column, column, column, torch.ones(2, 3), column, torch.arange(2))
    assert Brorl(batch0=64).loss(0, batch).lr_scale == 1.0
    assert Brorl(batch0=64).loss(256, batch).lr_scale == 2.0
    assert Brorl().loss(256, batch).lr_scale == 1.0


def test_a_simulated_run_keeps_more_groups_when_they_are_broad() -> None:
    def kept(pipeline: Pipeline) -> float:
        world = SimWorld(n_prompts=200, seed=1)
        steps = [step for _, step in run(pipeline, world, Budget(16, 128), steps=30)]
        return float(np.mean([step.advantage.keep.mean() for step in steps]))

    assert kept(Pipeline(Grpo(), Brorl(n=64))) > kept(Pipeline(Grpo(), Brorl())) + 0.02
