import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench.numerics.beliefs import Belief, DecayedCounts, check_counts, draw, set_rows


def test_mean_of_a_belief() -> None:
    assert Belief(3.0, 1.0).mean == 0.75


def test_counts_outside_their_range_are_named() -> None:
    with pytest.raises(ValueError, match="9 successes of 8 rollouts"):
        check_counts(9, 8)
    with pytest.raises(ValueError, match="-1 successes of 8"):
        check_counts(np.array([1, -1]), np.array([8, 8]))
    with pytest.raises(ValueError, match="successes must lie"):
        check_counts(np.nan, 8)
    check_counts(0, 0)


def test_set_rows_leaves_the_old_column_alone() -> None:
    old = np.zeros(3)
    assert set_rows(old, np.array([1]), np.array([5.0])).tolist() == [0, 5, 0]
    assert old.tolist() == [0, 0, 0]


def test_fading_is_applied_on_reading() -> None:
    counts = DecayedCounts(np.array([8.0, 8.0]), np.array([4.0, 0.0]), np.array([3, 1]), 3)
    assert counts.read(0.5).alpha.tolist() == [8.0, 2.0]
    assert counts.read(0.5, at_most=1).alpha.tolist() == [8.0, 4.0]


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.3, 0.4), (0.5, 6.0), (2.5, 1.0), (40.0, 90.0), (1e4, 3.0)])
def test_draws_follow_the_law(a: float, b: float) -> None:
    got = draw(np.full(20_000, a), np.full(20_000, b), np.random.default_rng(4))
    assert stats.kstest(got, stats.beta(a, b).cdf).pvalue > 1e-3


@given(st.integers(1, 50), st.integers(0, 49), st.integers(0, 2**31))
def test_one_changed_belief_moves_one_draw(m: int, i: int, seed: int) -> None:
    i %= m
    shapes = np.random.default_rng(seed).uniform(0.2, 30, (2, m))
    other = shapes.copy()
    other[:, i] = 7.0
    one, two = draw(*shapes, np.random.default_rng(seed)), draw(*other, np.random.default_rng(seed))
    rest = np.arange(m) != i
    assert (one[rest] == two[rest]).all()


def test_tiny_parameters_stay_inside_the_unit_interval() -> None:
    got = draw(np.full(1000, 1e-4), np.full(1000, 1e-4), np.random.default_rng(0))
    assert np.isfinite(got).all()
    assert ((got >= 0) & (got <= 1)).all()


def test_a_parameter_of_zero_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"Beta\(0, 1\) at row 1"):
        draw(np.array([1.0, 0.0]), np.ones(2), np.random.default_rng(0))
