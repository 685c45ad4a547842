import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.methods.cures import (
    Cures,
    align_to_workers,
    grad_sigma,
    rollout_quota,
    sampling_probs,
    sampling_probs_code,
    success_posterior_mean,
)
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, pool_of
from workbench.types import Budget
from workbench.worlds.sim.world import SimWorld


def test_edges() -> None:
    assert success_posterior_mean([0], [0]).tolist() == [0.5]
    assert sampling_probs([], 1.0).tolist() == []
    assert rollout_quota([0.0, 0.0, 0.0], 8).rounded_exact.tolist() == [3, 3, 2]
    assert rollout_quota([], 0).rounded_exact.tolist() == []
    assert rollout_quota([1e-311, 1e-311], 4).raw.tolist() == [2.0, 2.0]
    assert align_to_workers([], 4).tolist() == []
    assert align_to_workers([4, 4], 4).tolist() == [4, 4]
    assert align_to_workers([1], 8).tolist() == [8]
    assert grad_sigma(0, 0) == 0.0
    assert grad_sigma(4, 4, [1.0, 2.0, 3.0, 4.0]) == 0.0
    assert grad_sigma(2, 4) == 0.5


def test_rounding_half_to_even_drifts_and_largest_remainders_do_not() -> None:
    got = rollout_quota([1.0, 1.0], 5)
    assert got.raw.tolist() == [2.5, 2.5]
    assert got.rounded_code.tolist() == [2, 2]
    assert got.rounded_exact.tolist() == [3, 2]


def test_errors() -> None:
    with pytest.raises(ValueError, match="5 successes of 4"):
        success_posterior_mean([5], [4])
    with pytest.raises(ValueError, match="must be positive, got tau=0"):
        sampling_probs([0.5], 0)
    with pytest.raises(ValueError, match="n_probe must be 1 or more, got 0"):
        Cures(n_probe=0)
    with pytest.raises(ValueError, match=r"got tau=-1\.0"):
        Cures(tau=-1.0)


norms = st.lists(st.floats(0, 10), min_size=1, max_size=6)


@given(norms, norms)
def test_sigma_is_the_spread_of_reward_times_norm(right: list[float], wrong: list[float]) -> None:
    n = len(right) + len(wrong)
    a = len(right) / n
    x = np.concatenate([(1 - a) * np.array(right), -a * np.array(wrong)])
    got = grad_sigma(len(right), n, right, wrong)
    assert got >= 0
    assert np.isclose(got**2, (x**2).mean() - x.mean() ** 2, atol=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.05, 5))
def test_chances_are_symmetric_about_one_half(p: list[float], tau: float) -> None:
    got = sampling_probs(p, tau)
    assert np.isclose(got.sum(), 1)
    assert np.allclose(got, sampling_probs(1 - np.array(p), tau))


@given(st.lists(st.integers(0, 8), min_size=1, max_size=8))
def test_the_released_temperature_is_all_but_uniform(accepted: list[int]) -> None:
    got = sampling_probs_code(np.full(len(accepted), 0.5), accepted)
    assert np.allclose(got.probs, 1 / len(accepted), rtol=0.006)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=9), st.integers(0, 200))
def test_exact_quotas_meet_the_total(sigma: list[float], total: int) -> None:
    got = rollout_quota(sigma, total)
    assert got.rounded_exact.sum() == total
    assert (np.abs(got.rounded_exact - got.raw) < 1 + 1e-6).all()


@given(st.lists(st.integers(0, 20), min_size=1, max_size=9), st.integers(1, 8))
def test_aligned_sizes_divide_among_workers(sizes: list[int], workers: int) -> None:
    got = align_to_workers(sizes, workers)
    assert got.sum() % workers == 0
    assert 0 <= got.sum() - sum(sizes) < workers
    assert (got >= sizes).all()


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
        assert (states["cures"].looks.tried == 4).all()
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
