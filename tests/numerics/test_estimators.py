import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.numerics.estimators import group_advantages

NAMES = ("grpo", "dr_grpo", "rloo", "batch_std", "rpp_baseline")
rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.25, 1.0, 2.0, None])), min_size=1, max_size=24)


def test_null_is_left_out_and_is_not_zero() -> None:
    got = group_advantages([1, None, 0, 1], [0, 0, 0, 0], "dr_grpo")
    assert np.allclose(got.advantages, [1 / 3, 0, -2 / 3, 1 / 3])
    with_zero = group_advantages([1, 0, 0, 1], [0, 0, 0, 0], "dr_grpo")
    assert with_zero.advantages.tolist() == [0.5, -0.5, -0.5, 0.5]


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "batch_std"])
def test_a_group_of_one_gets_zero_or_its_raw_reward(name: str) -> None:
    rewards, groups = [0.7, 1, 0, 0.4, None], ["x", "y", "y", "z", "z"]
    assert group_advantages(rewards, groups, name).advantages[[0, 3, 4]].tolist() == [0, 0, 0]
    assert group_advantages(rewards, groups, name, g1="raw").advantages[[0, 3, 4]].tolist() == [0.7, 0.4, 0]


def test_zero_std_by_range() -> None:
    got = group_advantages([0.1, 0.1, 0.1, 1, 0, None], ["a", "a", "a", "b", "b", "c"], "grpo")
    assert got.zero_std == {"a": True, "b": False, "c": True}
    assert got.advantages[:3].tolist() == [0, 0, 0]


def test_leave_one_out_baseline() -> None:
    got = group_advantages([3, 0, 0], [7, 7, 7], "rloo")
    assert got.baseline.tolist() == [0.0, 1.5, 1.5]
    assert got.advantages.tolist() == [3.0, -1.5, -1.5]


def test_batch_std_scales_by_all_rewards() -> None:
    rewards = np.array([1, 0, 0.5, 0.5])
    got = group_advantages(rewards, [0, 0, 1, 1], "batch_std", eps=0.0)
    assert np.allclose(got.advantages, np.array([0.5, -0.5, 0, 0]) / rewards.std(ddof=1))


def test_token_whitening_may_change_a_sign() -> None:
    got = group_advantages([1, 0, 0.5, 0.5], [0, 0, 1, 1], "rpp_baseline", lengths=[1, 9, 1, 1])
    assert got.advantages[2] > 0


def test_default_eps_is_the_whitening_one_for_token_statistics() -> None:
    assert group_advantages([1, 0], [0, 0]).advantages[0] == 0.5 / (np.sqrt(0.5) + 1e-4)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(ValueError, match="no estimator 'ppo'"):
        group_advantages([1], [0], "ppo")
    with pytest.raises(ValueError, match="g1 must be"):
        group_advantages([1], [0], "grpo", g1="skip")


@given(rows, st.sampled_from(NAMES))
def test_permuting_rows_permutes_advantages(table: list, name: str) -> None:
    rewards = np.array([r for _, r in table], float)
    groups = np.array([g for g, _ in table])
    order = np.random.default_rng(len(table)).permutation(len(table))
    one = group_advantages(rewards, groups, name, lengths=1 + np.arange(len(table))).advantages
    two = group_advantages(rewards[order], groups[order], name, lengths=1 + order).advantages
    assert np.allclose(one[order], two, atol=1e-9)


@given(rows)
def test_grpo_dr_grpo_and_rloo_agree_in_sign(table: list) -> None:
    rewards = [r for _, r in table]
    groups = [g for g, _ in table]
    signs = [np.sign(np.round(group_advantages(rewards, groups, n).advantages, 9)) for n in NAMES[:3]]
    assert (signs[0] == signs[1]).all()
    assert (signs[1] == signs[2]).all()


@given(rows, st.floats(-3, 3))
def test_a_shift_of_all_rewards_changes_nothing(table: list, shift: float) -> None:
    rewards = np.array([r for _, r in table], float)
    groups = [g for g, _ in table]
    for name in NAMES[:4]:
        one, two = group_advantages(rewards, groups, name), group_advantages(rewards + shift, groups, name)
        assert np.allclose(one.advantages, two.advantages, atol=1e-6)
