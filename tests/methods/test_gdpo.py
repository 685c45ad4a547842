import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.estimates import grpo_sum_advantages
from workbench.methods.gdpo import Gdpo, gdpo_advantages
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import draft_of, rollouts_of
from workbench.types import Advantage, Budget
from workbench.worlds.sim.world import SimWorld

RNG = np.random.default_rng(0)
part = st.sampled_from([0.0, 0.5, 1.0])
matrix = st.lists(st.tuples(part, part), min_size=1, max_size=12)


def test_a_part_with_one_value_says_nothing() -> None:
    got = gdpo_advantages([[1, 0.1], [0, 0.1], [1, 0.1]], [0, 0, 0], [1, 1], whiten="none")
    assert got.per_reward[:, 1].tolist() == [0, 0, 0]


def test_a_null_is_left_out_or_counts_as_a_bad_score() -> None:
    rewards = [[1, None], [1, 1], [1, 0]]
    skip = gdpo_advantages(rewards, [0, 0, 0], [1, 1], eps=0.0, whiten="none")
    assert np.allclose(skip.pre_whiten, [0, 0.5**0.5, -(0.5**0.5)])
    zero = gdpo_advantages(rewards, [0, 0, 0], [1, 1], eps=0.0, whiten="none", missing="zero")
    assert zero.pre_whiten[0] == zero.pre_whiten[2] < 0


def test_one_reward_is_grpo() -> None:
    rewards, groups = [[1.0], [0.0], [0.0], [1.0]], [0, 0, 0, 1]
    want = grpo_sum_advantages(rewards, groups, [1])
    assert gdpo_advantages(rewards, groups, [1]).advantages.tolist() == want.tolist()
    assert want[3] == 0


def test_nothing_and_settled_batches() -> None:
    assert len(gdpo_advantages([], [], [1, 1]).advantages) == 0
    assert gdpo_advantages([[0.1, 0.1]] * 3, [0, 0, 0], [1, 1]).advantages.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="no whiten='row'"):
        gdpo_advantages([[1, 1]], [0], [1, 1], whiten="row")  # type: ignore[arg-type]


@given(matrix, st.floats(0.5, 4), st.floats(-3, 3))
def test_parts_may_be_shifted_and_scaled(rows: list, scale: float, shift: float) -> None:
    groups = np.arange(len(rows)) // 4
    one = gdpo_advantages(rows, groups, [1, 2], eps=0.0, whiten="none")
    moved = np.array(rows) * [scale, 1] + [shift, 0]
    two = gdpo_advantages(moved, groups, [1, 2], eps=0.0, whiten="none")
    assert np.allclose(one.advantages, two.advantages, atol=1e-6)


@given(matrix)
def test_a_whitened_batch_has_mean_zero(rows: list) -> None:
    groups = np.arange(len(rows)) // 4
    for how in ("batch", "token"):
        got = gdpo_advantages(rows, groups, [1, 1], whiten=how).advantages
        assert abs(got.sum()) < 1e-9


@given(matrix)
def test_the_method_is_the_function(rows: list) -> None:
    columns = np.array(rows)
    rollouts = rollouts_of([[float(sum(r)) for r in rows[i : i + 4]] for i in range(0, len(rows), 4)])
    rollouts = rollouts.with_(rewards={"a": columns[:, 0], "b": columns[:, 1]})
    got = Gdpo(weights=(("b", 2.0), ("a", 1.0))).estimate((), Advantage.start(rollouts), draft_of(rollouts), RNG)
    assert np.allclose(got.value, gdpo_advantages(columns, rollouts.group, [1, 2]).advantages)


def test_an_unknown_part_is_named() -> None:
    rollouts = rollouts_of([[1, 0]])
    with pytest.raises(ValueError, match="'style'"):
        Gdpo(weights=(("style", 1.0),)).estimate((), Advantage.start(rollouts), draft_of(rollouts), RNG)


def test_thirty_steps_of_a_simulation() -> None:
    world = SimWorld(n_prompts=40, n_eval=8)
    steps = list(run(Pipeline(Grpo(), Gdpo()), world, Budget(8, 64), steps=30))
    assert len(steps) == 30
    assert any((done.advantage.value != 0).any() for _, done in steps)
