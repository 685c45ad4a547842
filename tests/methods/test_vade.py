import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from workbench.methods.grpo import Grpo
from workbench.methods.vade import Vade, expected_info_gain, info_gain, sample_update, select, step
from workbench.numerics import beliefs
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, pool_of
from workbench.types import Budget, Step


def test_the_harder_of_two_equally_uncertain_prompts_wins() -> None:
    assert info_gain(0.3) > info_gain(0.7)
    assert select([0.7, 0.3], 1).tolist() == [1]


def test_unseen_prompt() -> None:
    assert np.isclose(expected_info_gain(0, 0), 1 / 12)


@given(st.floats(0, 40), st.floats(0, 40))
@settings(max_examples=20, deadline=None)
def test_expected_gain_is_the_integral(alpha: float, beta: float) -> None:
    law = stats.beta(alpha + 1, beta + 1)
    value, _ = integrate.quad(lambda p: info_gain(p) * law.pdf(p), 0, 1, limit=200)
    assert np.isclose(expected_info_gain(alpha, beta), value, rtol=1e-6)


def test_more_places_than_candidates_and_ties() -> None:
    with pytest.raises(ValueError, match="3 prompts cannot be chosen from 2"):
        select([0.1, 0.2], 3)
    assert select([0.5, 0.1, 0.5, 0.5], 2).tolist() == [0, 2]


def test_counts_at_their_edges() -> None:
    assert sample_update(4, 2, 1, 1, 1.0) == (5.0, 2.0)
    with pytest.raises(ValueError, match="successes must lie"):
        sample_update(0, 0, 2, 1)
    nothing = step([4.0, 0.0], [2.0, 1.0], {}, 0.5, 0.5)
    assert nothing.alpha.tolist() == [2.0, 0.0]
    plain = step([4.0, 0.0], [2.0, 1.0], {0: (1, 8)}, 1.0, 1.0)
    assert (plain.alpha.tolist(), plain.beta.tolist()) == ([5.0, 0.0], [9.0, 1.0])


def test_placements_of_the_slow_factor() -> None:
    def alpha(placement: str) -> list[float]:
        return step([4.0, 4.0], [0.0, 0.0], {0: (2, 2)}, 0.5, 0.9, placement).alpha.tolist()

    assert alpha("others") == [4.0, 3.6]
    assert alpha("all") == [3.8, 3.6]
    assert alpha("epoch") == [4.0, 4.0]


def recorded(n: int = 30, steps: int = 8) -> list[Step]:
    return [s for _, s in run(Pipeline(Grpo()), ScriptedWorld(n), Budget(5, 20), steps=steps)]


@pytest.mark.parametrize("placement", ["others", "all"])
def test_lazy_fading_equals_fading_every_prompt_at_every_step(placement: str) -> None:
    method = Vade(lambda_sample=0.6, lambda_global=0.9, decay_placement=placement)
    state, alpha, beta = method.init(pool_of(30)), np.zeros(30), np.zeros(30)
    for done in recorded():
        state = method.observe(state, done)
        rows, solved, tried = done.evidence(30)
        observed = dict(zip(rows.tolist(), zip(solved, tried, strict=True), strict=True))
        alpha, beta = step(alpha, beta, observed, 0.6, 0.9, placement)
        belief = method.belief(state)
        assert np.allclose(belief.alpha, alpha + 1)
        assert np.allclose(belief.beta, beta + 1)


def test_an_epoch_fades_what_was_visited_in_it_once() -> None:
    method = Vade(lambda_sample=1.0, lambda_global=0.5, decay_placement="epoch")
    state = method.init(pool_of(5))
    counts = []
    for done in recorded(5, 4):  # every step visits the five prompts, of which prompt 1 is never verified
        state = method.observe(state, done)
        counts.append(method.reveal(state)["evidence"].sum())
    tried = [int(np.isfinite(d.rollouts.correct).sum()) for d in recorded(5, 4)]
    assert counts[0] == tried[0]  # four visits
    assert np.isclose(counts[1], (tried[0] + tried[1]) / 2)  # the fifth visit ended the epoch


def test_unvisited_prompts_relax_to_the_uniform_belief() -> None:
    method = Vade(lambda_global=0.5)
    state = method.init(pool_of(3))._replace(
        counts=beliefs.DecayedCounts(np.array([8.0, 0, 0]), np.zeros(3), np.zeros(3, np.int64), 20)
    )
    shown = method.reveal(state)
    assert np.allclose(shown["mean"], 0.5, atol=1e-5)
    assert np.allclose([shown["low"][0], shown["high"][0]], [0.05, 0.95], atol=1e-5)
    assert np.allclose(shown["gain"], 1 / 12, atol=1e-5)


def test_the_deterministic_variant_takes_the_largest_expected_gain() -> None:
    done = recorded()
    method = Vade(score="expected")
    state = method.init(pool_of(30))
    for d in done:
        state = method.observe(state, d)
    from workbench.types import Draft

    draft = Draft(9, Budget(5, 20), np.ones(30, bool), np.empty(0, np.int64), wanted=5)
    rows = method.select(state, draft, np.random.default_rng(0)).rows
    gain = method.reveal(state)["gain"]
    assert gain[rows].min() >= np.sort(gain)[-5]


def test_unknown_placement() -> None:
    with pytest.raises(ValueError, match="no decay_placement 'some'"):
        Vade(decay_placement="some")
