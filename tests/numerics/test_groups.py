import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.numerics.groups import describe, first_rows, lower_median, whiten

rewards = st.lists(
    st.tuples(st.integers(0, 4), st.one_of(st.floats(-5, 5), st.just(float("nan")))), min_size=0, max_size=30
)


def columns(rows: list) -> tuple[np.ndarray, np.ndarray]:
    return np.array([v for _, v in rows], float), np.array([g for g, _ in rows], np.int64)


def test_one_group_of_three_and_one_of_one() -> None:
    stats = describe(np.array([1.0, 0.0, 1.0, 0.5]), np.array([0, 0, 0, 2]), 3)
    assert stats.n.tolist() == [3, 0, 1]
    assert stats.mean.tolist()[0] == 2 / 3
    assert np.isnan(stats.mean[1])
    assert np.allclose(stats.std, [np.sqrt(1 / 3), 0, 0])
    assert stats.settled.tolist() == [False, True, True]


def test_a_group_of_tenths_is_settled_although_its_float_std_is_not_zero() -> None:
    value = np.array([0.1, 0.1, 0.1])
    assert np.std(value) > 0
    assert describe(value, np.zeros(3, np.int64), 1).settled.tolist() == [True]


def test_lower_median() -> None:
    value = np.array([3.0, 1.0, 2.0, 0.0, np.nan, 5.0])
    assert lower_median(value, np.array([0, 0, 0, 0, 1, 2]), 4).tolist()[::2] == [1.0, 5.0]
    assert np.isnan(lower_median(value, np.array([0, 0, 0, 0, 1, 2]), 4)[[1, 3]]).all()


def test_first_rows() -> None:
    where = np.array([False, True, True, False, True])
    assert first_rows(where, np.array([0, 0, 0, 1, 2]), 3).tolist() == [1, -1, 4]


@given(rewards)
def test_statistics_are_those_of_each_group_alone(rows: list) -> None:
    value, group = columns(rows)
    stats, median = describe(value, group, 5), lower_median(value, group, 5)
    for g in range(5):
        own = value[(group == g) & np.isfinite(value)]
        assert stats.n[g] == len(own)
        if len(own):
            assert np.isclose(stats.mean[g], own.mean())
            assert np.isclose(stats.std[g], own.std(ddof=1) if len(own) > 1 else 0)
            assert (stats.low[g], stats.high[g]) == (own.min(), own.max())
            assert median[g] == np.sort(own)[(len(own) - 1) // 2]


def test_whitening_counts_a_row_by_its_weight() -> None:
    value, weight = np.array([1.0, 0.0, 9.0]), np.array([3.0, 1.0, 0.0])
    spread = whiten(np.array([1.0, 1.0, 1.0, 0.0]), np.ones(4), 0.0)
    assert np.allclose(whiten(value, weight, 0.0), [spread[0], spread[3], 0.0])
    assert np.isclose(spread.std(ddof=1), 1.0)


def test_whitening_what_does_not_vary_gives_zeros() -> None:
    assert whiten(np.array([0.3, 0.3]), np.array([2.0, 5.0]), 1e-8).tolist() == [0.0, 0.0]
    assert whiten(np.array([0.3]), np.array([1.0]), 1e-8).tolist() == [0.0]
    assert whiten(np.empty(0), np.empty(0), 1e-8).tolist() == []
