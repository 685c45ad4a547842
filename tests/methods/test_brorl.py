import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.estimates import brorl_advantages as advantages
from workbench.methods.brorl import Brorl, learning_rate
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, draft_of, rollouts_of
from workbench.types import Advantage, Budget
from workbench.worlds.sim.world import SimWorld


def test_errors() -> None:
    with pytest.raises(ValueError, match="got 0 and 8 rollouts"):
        learning_rate(1e-6, 0, 8)


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
