"""Paired intervals, by hand and by their laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis.intervals import Interval, paired, ratio


def test_a_difference_is_taken_pair_by_pair() -> None:
    got = paired([1.0, 2.0, 4.0], [0.0, 1.0, 2.0])  # 1, 1, 2: mean 4/3, sd 0.57735, half 4.302653 / 3
    assert got.mean == pytest.approx(4 / 3)
    assert (got.low, got.high) == pytest.approx((4 / 3 - 4.302653 / 3, 4 / 3 + 4.302653 / 3), abs=1e-6)
    assert (got.n, got.sign) == (3, 0)


def test_few_pairs_have_no_interval() -> None:
    assert np.isnan(paired([], []).mean)
    one = paired([1.0, np.nan], [0.5, 1.0])
    assert (one.mean, one.n) == (0.5, 1)
    assert np.isnan(one.low)
    assert one.sign == 0


def test_ratios_are_geometric() -> None:
    got = ratio([2.0, 8.0], [1.0, 1.0])
    assert got.mean == pytest.approx(4.0)
    assert got.low * got.high == pytest.approx(16.0)


def test_signs() -> None:
    assert [Interval(1, 0.5, 2, 5).sign, Interval(-1, -2, -0.5, 5).sign, Interval(0, -1, 1, 5).sign] == [1, -1, 0]


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=2, max_size=12))
def test_exchanging_the_sides_turns_the_interval_round(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    one, other = paired(a, b), paired(b, a)
    assert (one.mean, one.low, one.high) == pytest.approx((-other.mean, -other.high, -other.low), abs=1e-9)
