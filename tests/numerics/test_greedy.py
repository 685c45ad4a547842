import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.numerics.greedy import best_split, spend

gains = st.integers(1, 5).flatmap(
    lambda k: st.lists(st.lists(st.integers(-1, 4), min_size=k, max_size=k), min_size=1, max_size=5)
)


def one_at_a_time(gain: np.ndarray, budget: int) -> list[int]:
    n = [0] * len(gain)
    for _ in range(budget):
        heads = [gain[i][n[i]] if n[i] < len(gain[i]) else -1 for i in range(len(gain))]
        best = int(np.argmax(heads))
        if heads[best] <= 0:
            break
        n[best] += 1
    return n


@given(gains, st.integers(0, 20))
def test_spending_equals_one_unit_at_a_time(table: list, budget: int) -> None:
    """Also where gains rise, and with ties."""
    gain = np.array(table, float)
    assert spend(gain, budget).tolist() == one_at_a_time(gain, budget)


def test_no_gain_is_never_bought() -> None:
    assert spend(np.array([[0.0, 5.0], [1.0, -1.0]]), 4).tolist() == [0, 1]
    assert spend(np.empty((3, 0)), 4).tolist() == [0, 0, 0]


@given(gains, st.integers(0, 12))
def test_the_best_split_is_never_worse_than_greedy(table: list, budget: int) -> None:
    gain = np.array(table, float)
    value = np.concatenate([np.zeros((len(gain), 1)), np.cumsum(gain, axis=1)], axis=1)
    best = best_split(value, budget)
    greedy = value[np.arange(len(gain)), spend(gain, budget)].sum()
    assert best.value >= greedy
    assert best.value == value[np.arange(len(gain)), best.n].sum()
    assert best.spent == best.n.sum() <= budget


def test_equal_splits_favour_low_rows_and_spend_least() -> None:
    value = np.array([[0.0, -np.inf, 1.0], [0.0, -np.inf, 1.0]])
    assert best_split(value, 3).n.tolist() == [2, 0]
    assert best_split(np.zeros((2, 3)), 1).spent == 0
