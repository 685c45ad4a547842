import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.methods.grpo import Grpo
from workbench.methods.insight import (
    Insight,
    beta_binomial_pmf,
    beta_entropy,
    mutual_information,
    posterior_update,
    wmi,
)
from workbench.numerics.beliefs import Belief
from workbench.numerics.beta import digamma
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import pool_of
from workbench.types import Budget, Draft
from workbench.worlds.sim.world import SimWorld


def test_digamma_at_known_points() -> None:
    euler = 0.5772156649015329
    assert np.allclose(digamma([1, 2, 0.5]), [-euler, 1 - euler, -euler - 2 * np.log(2)], atol=1e-13)


def test_information_by_counting() -> None:
    assert np.isclose(mutual_information(1, 1, 1), np.log(2) - 0.5, atol=1e-12)
    assert np.isclose(mutual_information(1, 1, 8), 0.7663902136950795, atol=1e-12)


def test_information_of_much_evidence() -> None:
    told = mutual_information([4e4, 6e4, 5e8, 1e12], [4e4, 6e4, 5e8, 1e12], 8)
    assert (told > 0).all()
    assert (np.diff(told) < 0).all()
    assert np.isclose(told[2], 4e-9, rtol=1e-6)
    assert np.isclose(told[0], 0.5 * np.log1p(8 / 8e4), rtol=1e-4)


def test_no_overflow_and_no_prior() -> None:
    assert wmi(1, 1, 8, 3.0, 3.0).weight < 1e-8
    assert wmi(1, 1, 8, 3.0, 1e6).score == 0
    assert wmi([0.0, 5.0, 0.0], [0.0, 0.0, 5.0], 8).score.tolist() == [0.0, 0.0, 0.0]


def test_errors() -> None:
    with pytest.raises(ValueError, match="9 successes of 8"):
        posterior_update(1, 1, 9, 8)
    with pytest.raises(ValueError, match="no criterion 'luck'"):
        Insight(criterion="luck")


evidence = st.floats(0.1, 1e4)


@given(evidence, evidence, st.integers(1, 16))
def test_information_is_positive_symmetric_and_grows_with_rollouts(a: float, b: float, K: int) -> None:
    told = mutual_information(a, b, K)
    assert told >= 0
    assert np.isclose(told, mutual_information(b, a, K), atol=1e-9)
    assert mutual_information(a, b, K + 1) >= told - 1e-9


@given(evidence, evidence, st.integers(1, 16))
def test_predictive_is_a_distribution_with_the_beliefs_mean(a: float, b: float, K: int) -> None:
    pmf = beta_binomial_pmf(a, b, K)
    assert np.isclose(pmf.sum(), 1)
    assert np.isclose(pmf @ np.arange(K + 1), K * a / (a + b))


def test_entropy_of_the_uniform_law_is_the_largest() -> None:
    assert beta_entropy(1, 1) == pytest.approx(0, abs=1e-12)
    assert beta_entropy(2, 2) < 0


def test_a_fresh_pool_is_swept_first() -> None:
    state = Insight().init(pool_of(40))
    state = Belief(np.where(np.arange(40) < 30, 4.0, state.alpha), np.where(np.arange(40) < 30, 6.0, state.beta))
    draft = Draft(1, Budget(8, 64), np.ones(40, bool), np.empty(0, np.int64), wanted=8)
    assert (Insight().select(state, draft, np.random.default_rng(0)).rows >= 30).all()


def test_simpler_rivals() -> None:
    state = Belief(np.array([1.0, 50, 9, 1]), np.array([1.0, 50, 1, 9]))
    draft = Draft(1, Budget(1, 8), np.ones(4, bool), np.empty(0, np.int64), wanted=1)
    rng = np.random.default_rng
    assert Insight(criterion="evidence").select(state, draft, rng(0)).rows.tolist() == [0]
    assert Insight(criterion="difficulty").select(state, draft, rng(0)).rows[0] in (0, 1)
    draft = draft.with_(wanted=4)
    assert Insight().select(state, draft, rng(0)).rows.tolist() == [0, 3, 1, 2]  # of 9:1 and 1:9 the harder comes first


def test_a_simulated_run_learns_what_it_believes() -> None:
    world = SimWorld(n_prompts=200, seed=1)
    for states, _ in run(Pipeline(Grpo(), Insight()), world, Budget(16, 128), steps=30):
        belief = states["insight"]
    seen = belief.alpha + belief.beta > 2
    assert seen.mean() > 0.9
    assert np.corrcoef(belief.mean[seen], world.pass_rate()[seen])[0, 1] > 0.7
