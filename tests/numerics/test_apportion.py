import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.numerics.apportion import apportion


def test_literal_shares() -> None:
    assert apportion(np.array([1.0, 0.5]), 10).tolist() == [7, 3]
    assert apportion(np.array([1.0, 0.0]), 10, floor=2).tolist() == [8, 2]
    assert apportion(np.array([1.0, 1.0, 1.0]), 10).tolist() == [4, 3, 3]
    assert apportion(np.array([0.0, 0.0]), 5).tolist() == [3, 2]
    assert apportion(np.array([9.0, 1.0, 1.0]), 9, cap=4).tolist() == [4, 3, 2]


def test_errors_name_the_numbers() -> None:
    with pytest.raises(ValueError, match="3 rollouts cannot give 2 prompts 2 each"):
        apportion(np.ones(2), 3, floor=2)
    with pytest.raises(ValueError, match="9 rollouts exceed 4 for each of 2 prompts"):
        apportion(np.ones(2), 9, cap=4)
    with pytest.raises(ValueError, match="finite and not negative"):
        apportion(np.array([1.0, -1.0]), 3)
    with pytest.raises(ValueError, match="finite and not negative"):
        apportion(np.array([1.0, np.nan]), 3)


weights = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=12)


@given(weights, st.integers(0, 3), st.integers(0, 60), st.one_of(st.none(), st.integers(0, 20)))
def test_sums_exactly_within_floor_and_cap(weight: list[float], floor: int, extra: int, room: int | None) -> None:
    m = len(weight)
    cap = None if room is None else floor + room
    total = floor * m + (extra if cap is None else min(extra, room * m))
    n = apportion(np.array(weight), total, floor, cap)
    assert n.sum() == total
    assert (n >= floor).all()
    assert cap is None or (n <= cap).all()


@given(weights, st.integers(0, 100))
def test_a_heavier_prompt_never_gets_less(weight: list[float], total: int) -> None:
    weight = np.array(weight)
    n = apportion(weight, total)
    order = np.argsort(weight, kind="stable")
    heavier = weight[order][1:] > weight[order][:-1]
    assert (np.diff(n[order])[heavier] >= 0).all()


@given(weights, st.integers(0, 100))
def test_within_one_of_the_exact_share(weight: list[float], total: int) -> None:
    weight = np.array(weight)
    share = weight if weight.sum() else np.ones(len(weight))
    assert (np.abs(apportion(weight, total) - total * share / share.sum()) < 1 + 1e-6).all()


@given(st.integers(1, 10), st.integers(0, 50))
def test_equal_weights_differ_by_one_at_most_and_lowest_first(m: int, total: int) -> None:
    n = apportion(np.ones(m), total)
    assert n.max() - n.min() <= 1
    assert (np.diff(n) <= 0).all()
