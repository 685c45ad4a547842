import numpy as np
import pytest

from tests.vectors.estimates import success_posterior_mean
from workbench.methods.cures import Cures
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, pool_of
from workbench.types import Budget
from workbench.worlds.sim.world import SimWorld


def test_edges() -> None:
    assert success_posterior_mean([0], [0]).tolist() == [0.5]


def test_errors() -> None:
    with pytest.raises(ValueError, match="5 successes of 4"):
        success_posterior_mean([5], [4])
    with pytest.raises(ValueError, match="n_probe must be 1 or more, got 0"):
        Cures(n_probe=0)
    with pytest.raises(ValueError, match=r"got tau=-1\.0"):
        Cures(tau=-1.0)


def run_of(world: ScriptedWorld, n_steps: int, budget: Budget, **settings: object) -> list:
    return list(run(Pipeline(Grpo(), Cures(**settings)), world, budget, steps=n_steps))


def test_a_slice_is_looked_at_then_trained_on_then_left() -> None:
    world = ScriptedWorld(48, null=0)
    steps = run_of(world, 18, Budget(4, 32), slices=3, slice_min=16, steps=5)
    purposes = [set(step.rollouts.purpose) for _, step in steps]
    # 16 prompts x 4 rollouts are two looks at 32 each, in two rounds of four prompts
    assert purposes == ([{"probe"}] * 2 + [{"train"}] * 5) * 2 + [{"probe"}] * 2 + [{"train"}] * 2
    part = steps[0][0]["cures"].part
    for i, (_, step) in enumerate(steps):
        assert (part[step.prompts] == (i // 7) % 3).all()
        assert step.plan.n_rollouts == 32
        if purposes[i] == {"probe"}:
            assert (step.plan.n == 4).all()
            assert not step.advantage.keep.any()


def test_a_prompt_that_cannot_be_verified_holds_nothing_up() -> None:
    world = ScriptedWorld(24)
    steps = run_of(world, 4, Budget(6, 48))
    assert [set(s.rollouts.purpose) for _, s in steps][2:] == [{"train"}] * 2


def test_rollouts_follow_the_first_look() -> None:
    world = ScriptedWorld(24, null=0)
    steps = run_of(world, 6, Budget(6, 24))
    first = steps[3][0]["cures"]
    for states, step in steps[4:]:
        sigma = first.sigma(step.prompts)
        assert (states["cures"].profile.tried == 4).all()
        order = np.argsort(sigma, kind="stable")
        assert (np.diff(step.plan.n[order]) >= -1).all()
        assert (step.plan.n[sigma == 0] == 0).all() or not sigma.any()
    floored = run_of(ScriptedWorld(24, null=0), 6, Budget(6, 24), n_min=2)[5][1]
    assert floored.plan.n.min() == 2


def test_slices_are_disjoint_and_of_like_size() -> None:
    part = Cures(slice_min=10).init(pool_of(100)).part
    assert np.bincount(part).tolist() == [10] * 10
    assert np.bincount(Cures().init(pool_of(10)).part).tolist() == [10]


@pytest.mark.parametrize("mode", ["paper", "code"])
def test_a_simulated_run_mixes_more_groups_than_uniform(mode: str) -> None:
    def mixed(pipeline: Pipeline) -> float:
        world, shares = SimWorld(n_prompts=300, seed=1), []
        for _, step in run(pipeline, world, Budget(16, 128), steps=30):
            _, solved, tried = step.evidence(300)
            shares += [((solved > 0) & (solved < tried)).mean()] if len(tried) else []
        return float(np.mean(shares))

    assert mixed(Pipeline(Grpo(), Cures(mode=mode, slices=5))) > mixed(Pipeline(Grpo()))
