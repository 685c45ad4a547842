from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.numerics.apportion import apportion, choose


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


def test_floors_caps_and_steps_of_their_own() -> None:
    assert apportion(np.array([5.0, 3, 1]), 9, floor=np.array([0, 4, 1]), cap=np.array([2, 9, 9])).tolist() == [2, 5, 2]
    assert apportion(np.array([3.0, 2, 1]), 4, cap=np.array([1, 3, 0])).tolist() == [1, 3, 0]
    assert apportion(np.ones(3), 8, step=2).tolist() == [4, 2, 2]
    assert apportion(np.array([5.0, 1, 1]), 16, floor=4, step=4).tolist() == [8, 4, 4]
    assert apportion(np.ones(0), 0, floor=2, cap=3).tolist() == []


def test_errors_of_floors_caps_and_steps() -> None:
    with pytest.raises(ValueError, match="3 rollouts cannot give 2 prompts 1 to 4 each"):
        apportion(np.ones(2), 3, floor=np.array([1, 4]))
    with pytest.raises(ValueError, match="prompt 1 must get 3 at least and 2 at most"):
        apportion(np.ones(2), 8, floor=3, cap=np.array([9, 2]))
    with pytest.raises(ValueError, match="9 is no multiple of the step 4"):
        apportion(np.ones(2), 9, step=4)


@given(weights, st.integers(1, 5), st.data())
def test_caps_of_each_prompt_are_kept(weight: list[float], step: int, data: st.DataObject) -> None:
    cap = step * np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(weight), max_size=len(weight))))
    total = step * data.draw(st.integers(0, int(cap.sum()) // step))
    n = apportion(np.array(weight), total, cap=cap, step=step)
    assert n.sum() == total
    assert (n <= cap).all()
    assert (n % step == 0).all()


def taken(*arguments: object) -> tuple:
    got = choose(*arguments)
    return got.chosen.tolist(), got.sum


def test_arms_meet_the_total_where_they_can() -> None:
    value = np.log([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]])
    assert taken(value, [2, 2], [2, 4, 6], 16) == ([2, 0], 16)
    assert taken(value, [2, 2], [2, 4, 6], 24) == ([2, 2], 24)
    assert taken(value, [2, 2], [2, 4, 6], 99) == ([2, 2], 24)
    assert taken(value, [2, 2], [2, 4, 6], 0) == ([0, 0], 8)
    assert taken(np.zeros((1, 2)), [3], [2, 4], 9) == ([0], 6)  # 6 and 12 are equally near
    assert taken([[0.0, 1.0]], [3], [2, 4], 9) == ([1], 12)
    assert taken(np.zeros((0, 2)), [], [2, 4], 9) == ([], 0)


def test_arms_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"\(1, 2\) values for 2 classes and 2 arms"):
        choose(np.zeros((1, 2)), [1, 2], [2, 4], 9)
    with pytest.raises(ValueError, match="must not be negative"):
        choose(np.zeros((1, 2)), [-1], [2, 4], 9)


@given(st.data())
def test_no_other_arms_do_better(data: st.DataObject) -> None:
    b, a = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    size = data.draw(st.lists(st.integers(0, 4), min_size=b, max_size=b))
    arms = sorted(data.draw(st.sets(st.integers(0, 9), min_size=a, max_size=a)))
    flat = data.draw(st.lists(st.floats(-5, 0), min_size=a * b, max_size=a * b))
    value, total = np.array(flat).reshape(b, a), data.draw(st.integers(0, 60))
    got = choose(value, size, arms, total)
    assert got.sum == sum(s * arms[c] for s, c in zip(size, got.chosen, strict=True))

    def rank(choice: tuple) -> tuple:
        spent = sum(s * arms[c] for s, c in zip(size, choice, strict=True))
        return abs(spent - total), -sum(value[i, c] for i, c in enumerate(choice))

    best = min(rank(choice) for choice in product(range(a), repeat=b))
    assert np.allclose(rank(tuple(got.chosen)), best)
