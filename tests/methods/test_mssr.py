import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.estimates import mssr_advantages, tracker_step
from workbench.methods.grpo import Grpo
from workbench.methods.mssr import Mssr, adaptive_rho, folded, tracker_init, tracker_value, whitened
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import draft_of, pool_of, rollouts_of
from workbench.types import Advantage, Budget, Ragged
from workbench.worlds.sim.world import SimWorld

RNG = np.random.default_rng(0)


def test_the_author_rule_jumps_and_the_other_falls() -> None:
    assert np.isclose(adaptive_rho([0.01]), 0.96)
    assert adaptive_rho([0.0101]) == 0.875
    assert np.isclose(adaptive_rho([0.0], rule="monotone"), 0.96)
    assert np.isclose(adaptive_rho([0.5], rule="monotone"), 0.875)
    assert np.isclose(adaptive_rho([9.0, 0.005, 0.005], window=2), 0.9175)
    with pytest.raises(ValueError, match="no rule 'mine'"):
        adaptive_rho([], rule="mine")  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=12), st.floats(0.5, 1))
def test_outcomes_of_one_prompt_count_in_order(outcomes: list, rho: float) -> None:
    alpha, beta = np.array([4.0, 8.0, 0.0]), np.array([4.0, 0.0, 8.0])
    got = folded(
        alpha, beta, np.array([p for p, _ in outcomes], np.int64), np.array([y for _, y in outcomes], float), rho
    )
    for prompt, y in outcomes:
        alpha[prompt], beta[prompt] = rho * alpha[prompt] + y, rho * beta[prompt] + 1 - y
    assert np.allclose(got[0], alpha)
    assert np.allclose(got[1], beta)


def test_nulls_and_one_rho_per_prompt() -> None:
    got = tracker_step([4, 4], [4, 4], [None, 1], [0.5, 0.5])
    assert got.alpha.tolist() == [4, 3]
    assert got.beta.tolist() == [4, 2]
    assert tracker_value([0.0], [0.0], 0.3).tolist() == [0.3]
    assert tracker_init([[None], []], v_init=0.25).alpha.tolist() == [2, 2]


def test_batches_of_one_and_settled_batches() -> None:
    assert whitened([1.0], [0.25]).tolist() == [0.75]
    assert whitened([0.1, 0.1, None], [0.5, 0.5, 0.5]).tolist() == [0, 0, 0]
    got = mssr_advantages([1, 1], [0.5, 0.5], [[1.0], [2.0]], [[1], [1]])
    assert got.psi.tolist() == [[0], [0]]


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1, allow_subnormal=False), st.floats(0, 5)),
        min_size=1,
        max_size=8,
    ),
    st.floats(1.01, 5),
)
def test_the_bonus_is_never_negative_and_turns_no_sign(rows: list, gamma: float) -> None:
    reward, value, entropy = (np.array(c) for c in zip(*rows, strict=True))
    got = mssr_advantages(reward, value, entropy[:, None], np.ones((len(rows), 1)), gamma=gamma)
    assert (got.psi >= 0).all()
    assert (np.sign(got.advantages[:, 0]) == np.sign(got.sequence_advantages)).all()


def test_the_method_is_the_function() -> None:
    rollouts = rollouts_of([[1], [0], [None], [1]])
    entropy = Ragged.of([[0.3, 2.0]] * 4, float)
    rollouts = rollouts.with_(entropy=entropy, length=np.full(4, 2))
    state = Mssr().init(pool_of(4))._replace(alpha=np.array([2.0, 7, 1, 5]))
    got = Mssr().estimate(state, Advantage.start(rollouts), draft_of(rollouts), RNG)
    v = state.alpha / (state.alpha + state.beta)
    want = mssr_advantages(rollouts.reward, v, np.full((4, 2), [0.3, 2.0]), np.ones((4, 2)))
    assert got.tokens is not None
    assert np.allclose(got.tokens.values.reshape(4, 2)[[0, 1, 3]], want.advantages[[0, 1, 3]])
    assert got.tokens.row(2).tolist() == [0, 0]
    assert np.allclose(got.baseline, [v[0], v[1], np.nan, v[3]], equal_nan=True)


def test_it_selects_only_with_the_curriculum() -> None:
    assert Mssr().verbs == ("estimate",)
    assert Mssr(curriculum=True).verbs == ("select", "estimate")


@pytest.mark.parametrize("curriculum", [False, True])
def test_thirty_steps_of_a_simulation(curriculum: bool) -> None:
    method, world = Mssr(curriculum=curriculum), SimWorld(n_prompts=40, n_eval=8)
    steps = list(run(Pipeline(Grpo(), method), world, Budget(16, 16), steps=30))
    state = steps[-1][0]["mssr"]
    assert state.visits.sum() == 30 * 16
    belief = method.reveal(state)["mean"]
    assert np.corrcoef(belief, world.pass_rate())[0, 1] > 0.3
