import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.estimates import posterior_sequence
from workbench.methods.grpo import Grpo
from workbench.methods.mc_grpo import McGrpo
from workbench.methods.mopps import (
    Mopps,
    draw,
    expected_sq_distance,
    posterior_update,
    select_threshold_fallback,
    select_topk,
    warm_start,
)
from workbench.numerics.beliefs import Belief
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, pool_of
from workbench.types import Budget, Draft


def test_a_group_of_one_is_ordinary_counting() -> None:
    assert posterior_update(1, 1, 1, 1) == (2.0, 1.0)
    assert posterior_update(1, 1, 0, 1) == (1.0, 2.0)


def test_without_memory_the_belief_is_prior_plus_last_group() -> None:
    assert posterior_update(50, 90, 3, 8, decay=0.0, alpha0=2, beta0=1) == (5.0, 6.0)


def test_counts_outside_their_range() -> None:
    for s, n in [(9, 8), (-1, 8)]:
        with pytest.raises(ValueError, match="successes must lie in"):
            posterior_update(1, 1, s, n)
        with pytest.raises(ValueError, match="successes must lie in"):
            warm_start(s, n)


def test_many_prompts_at_once() -> None:
    got = posterior_update(np.array([1.0, 5.0]), np.array([1.0, 13.0]), np.array([3, 8]), np.array([8, 8]), 0.5)
    assert got.alpha.tolist() == [4.0, 11.0]
    assert got.beta.tolist() == [6.0, 7.0]


@given(st.lists(st.tuples(st.integers(0, 8), st.just(8)), max_size=6), st.sampled_from([0.0, 0.5, 1.0]))
def test_a_sequence_is_its_updates(observations: list, decay: float) -> None:
    belief = Belief(1.0, 1.0)
    for row, (s, n) in zip(posterior_sequence(observations, decay), observations, strict=True):
        belief = posterior_update(*belief, s, n, decay)
        assert tuple(row) == belief


def test_ties_keep_candidate_order_and_a_large_batch_takes_all() -> None:
    assert select_topk([0.4, 0.6, 0.4, 0.6], 3).tolist() == [0, 1, 2]
    assert select_topk([0.9, 0.5], 7).tolist() == [1, 0]
    assert select_threshold_fallback([0.1, 0.9, 0.5, 0.4], 4).tolist() == [2, 3, 0, 1]


def test_expected_distance_is_the_mean_of_the_draws() -> None:
    draws = draw(np.full(200_000, 3.0), np.full(200_000, 5.0), np.random.default_rng(1))
    assert np.isclose(((draws - 0.5) ** 2).mean(), expected_sq_distance(3, 5), rtol=0.02)


NONE = np.empty(0, np.int64)


def state_of(method: Mopps, n: int = 200) -> tuple[Belief, Draft]:
    alpha = np.where(np.arange(n) % 2, 500.0, 5.0)  # odd prompts are surely solved, even ones about half
    beta = np.where(np.arange(n) % 2, 1.0, 5.0)
    return Belief(alpha, beta), Draft(1, Budget(8, 64), np.ones(n, bool), np.empty(0, np.int64), wanted=8)


@pytest.mark.parametrize("strategy", ["topk", "threshold"])
def test_prompts_near_the_target_are_taken(strategy: str) -> None:
    state, draft = state_of(Mopps())
    rows = Mopps(strategy=strategy).select(state, draft, np.random.default_rng(0)).rows
    assert len(rows) == 8
    assert (rows % 2 == 0).all()


def test_the_drawn_rates_are_told() -> None:
    n = 50
    state, draft = Belief(np.full(n, 2.0), np.full(n, 3.0)), Draft(1, Budget(4, 8), np.ones(n, bool), NONE, wanted=4)
    luck = np.random.default_rng(0)
    luck.random(n), luck.random(n)
    drawn = draw(*state, luck)
    rows, why = Mopps(target=0.4, ts_ratio=100).select(state, draft, np.random.default_rng(0))
    assert rows.tolist() == np.argsort((drawn - 0.4) ** 2, kind="stable")[:4].tolist()
    assert why["draw"].tolist() == drawn[rows].tolist()
    assert why["distance"].tolist() == np.abs(drawn[rows] - 0.4).tolist()


def test_threshold_falls_back_to_the_nearest_to_the_band() -> None:
    draft = state_of(Mopps())[1]
    state = Belief(np.linspace(1e5, 9e5, 200), np.full(200, 1e4))  # all above 0.9
    rows = Mopps(strategy="threshold", ts_ratio=100).select(state, draft, np.random.default_rng(0)).rows
    assert rows.max() < 12


def test_uniform_takes_any() -> None:
    state, draft = state_of(Mopps())
    assert len(Mopps(strategy="uniform").select(state, draft, np.random.default_rng(0)).rows) == 8


def test_candidates_are_few_times_the_batch() -> None:
    state, draft = state_of(Mopps())
    one, two = (Mopps(ts_ratio=1).select(state, draft, np.random.default_rng(s)).rows for s in (0, 1))
    assert (one % 2 == 1).any()  # with no choice left, sure prompts come too
    assert set(one) != set(two)


def test_a_prompt_keeps_its_luck_when_another_belief_changes() -> None:
    n = 64
    draft = Draft(1, Budget(1, 8), np.ones(n, bool), np.empty(0, np.int64), wanted=n)
    alpha = np.ones(n)
    alpha[5] = 50.0
    order = [Mopps().select(Belief(a, np.ones(n)), draft, np.random.default_rng(3)).rows for a in (np.ones(n), alpha)]
    assert [i for i in order[0] if i != 5] == [i for i in order[1] if i != 5]


def test_warm_start_from_a_profile() -> None:
    pool = pool_of(2)
    with pytest.raises(ValueError, match="profile_successes, profile_n"):
        Mopps(warm_weight=3).init(pool)
    pool = type(pool)(**{**vars(pool), "extra": {"profile_successes": np.array([2, 0]), "profile_n": np.array([4, 4])}})
    assert Mopps(warm_weight=3).init(pool).alpha.tolist() == [7.0, 1.0]
    assert Mopps().init(pool).alpha.tolist() == [1.0, 1.0]


def test_only_scored_rollouts_of_the_plain_prompt_are_evidence() -> None:
    world = ScriptedWorld(12)
    for states, step in run(Pipeline(Grpo(), Mopps(), McGrpo()), world, Budget(12, 48), steps=1):
        belief = states["mopps"]
        plain = np.isfinite(step.rollouts.correct)
        n = np.bincount(step.rollouts.prompt[plain], minlength=12)
        assert (belief.alpha + belief.beta - 2 == n).all()
        assert n[1] == 0
        assert n.sum() < 60
