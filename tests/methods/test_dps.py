import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.estimates import trajectory, transition_update
from workbench.methods.dps import PRIORS, Chains, Dps, discretise, expected_transition, predict
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, pool_of
from workbench.types import Budget, Draft
from workbench.worlds.sim.world import SimWorld

THIRD = [1 / 3, 1 / 3, 1 / 3]


def test_states_of_a_prompt() -> None:
    assert discretise([0, 0.01, 0.99, 1]).tolist() == [0, 1, 1, 2]
    assert discretise([]).tolist() == []


def test_first_observation_spreads_over_the_columns_of_the_observed_row() -> None:
    xi = transition_update(PRIORS["uniform"], THIRD, [1, 0, 0], PRIORS["uniform"], 0.5, True).xi
    assert np.allclose(xi, [[1 / 3] * 3, [0] * 3, [0] * 3])


def test_an_impossible_transition_adds_nothing() -> None:
    made = transition_update(PRIORS["local"], [1, 0, 0], [0, 0, 1], PRIORS["local"], 1.0, True)
    assert made.xi.tolist() == [[0.0] * 3] * 3
    assert made.alpha.tolist() == PRIORS["local"].tolist()


def test_unvisited_prompts_drift_to_uniform() -> None:
    last = trajectory([1.0] + [None] * 60, decay=0.5)[-1]
    assert np.allclose(last.mu_prior, THIRD, atol=1e-6)
    assert np.allclose(last.alpha, 1, atol=1e-6)


def test_a_prompt_that_stays_partly_solved_is_expected_to_stay_so() -> None:
    assert trajectory([0.5] * 10, decay=0.7)[-1].mu_prior[1] > 0.6


def test_an_unknown_prior_is_an_error() -> None:
    with pytest.raises(ValueError, match="no prior 'some'"):
        Dps(prior="some")


positive = st.floats(1e-3, 100)
counts = st.lists(positive, min_size=9, max_size=9).map(lambda v: np.array(v).reshape(3, 3))
states = st.lists(positive, min_size=3, max_size=3).map(lambda v: np.array(v) / sum(v))


@given(counts, states)
def test_predictions_are_distributions(alpha: np.ndarray, mu: np.ndarray) -> None:
    assert np.allclose(expected_transition(alpha).sum(axis=0), 1)
    predicted = predict(alpha, mu)
    assert (predicted >= 0).all()
    assert np.isclose(predicted.sum(), 1)


@given(counts, states, st.integers(0, 2), st.floats(0, 1))
def test_an_observation_adds_one_count(alpha: np.ndarray, before: np.ndarray, seen: int, decay: float) -> None:
    prior = PRIORS["uniform"]
    made = transition_update(alpha, before, np.eye(3)[seen], prior, decay, True)
    assert np.isclose(made.xi.sum(), 1)
    assert np.isclose(made.xi[seen].sum(), 1)
    assert np.allclose(made.alpha, decay * alpha + (1 - decay) * prior + made.xi)


@pytest.mark.parametrize("prior", list(PRIORS))
def test_all_prompts_at_once_are_each_prompt_alone(prior: str) -> None:
    world = ScriptedWorld(12)
    done = [step for _, step in run(Pipeline(Grpo()), world, Budget(4, 16), steps=9)]
    method = Dps(decay=0.6, prior=prior)
    state, seen = method.init(world.pool), [[] for _ in range(12)]
    for step in done:
        state = method.observe(state, step)
        rows, solved, tried = step.evidence(12)
        rates = {int(r): s / t for r, s, t in zip(rows, solved, tried, strict=True) if t > 1}
        for i, history in enumerate(seen):
            history.append(rates.get(i))
    for i, history in enumerate(seen):
        alone = trajectory(history, PRIORS[prior], THIRD, 0.6)[-1]
        assert np.allclose(state.alpha[:, :, i], alone.alpha)
        assert np.allclose(state.mu_prior[:, i], alone.mu_prior)
        assert np.allclose(state.mu_post[:, i], alone.mu_post)
    assert state.times_sampled.tolist() == [sum(r is not None for r in h) for h in seen]


def test_a_group_of_one_is_no_observation() -> None:
    world = ScriptedWorld(4, null=0)
    step = next(run(Pipeline(Grpo()), world, Budget(4, 4), steps=1))[1]
    assert Dps().observe(Dps().init(world.pool), step).times_sampled.tolist() == [0] * 4
    assert Dps(singles=True).observe(Dps().init(world.pool), step).times_sampled.tolist() == [1] * 4


def test_the_surest_partly_solved_are_taken() -> None:
    n = 100
    partly = np.linspace(0, 0.9, n)
    mu = np.stack([(1 - partly) / 2, partly, (1 - partly) / 2])
    state = Chains(np.ones((3, 3, n)), mu, mu, np.zeros(n, np.int64))
    draft = Draft(1, Budget(5, 20), np.ones(n, bool), np.empty(0, np.int64), wanted=5)
    assert Dps().select(state, draft, np.random.default_rng(0)).rows.tolist() == [99, 98, 97, 96, 95]


def test_ties_are_broken_by_luck() -> None:
    draft = Draft(1, Budget(5, 20), np.ones(50, bool), np.empty(0, np.int64), wanted=5)
    state = Dps().init(pool_of(50))
    taken = {tuple(Dps().select(state, draft, np.random.default_rng(s)).rows) for s in range(3)}
    assert len(taken) == 3


def test_a_simulated_run_finds_mixed_groups() -> None:
    def mixed(pipeline: Pipeline) -> float:
        world = SimWorld(n_prompts=200, seed=1)
        steps = [step for _, step in run(pipeline, world, Budget(16, 128), steps=30)]
        shares = []
        for step in steps[10:]:
            _, solved, tried = step.evidence(200)
            shares.append(((solved > 0) & (solved < tried)).mean())
        return float(np.mean(shares))

    assert mixed(Pipeline(Grpo(), Dps())) > mixed(Pipeline(Grpo())) + 0.1
