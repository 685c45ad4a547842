import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.numerics.picks import largest, smallest


def test_ties_go_to_the_lowest_index() -> None:
    assert smallest(np.array([1.0, 0.0, 1.0, 0.0, 1.0]), 3).tolist() == [1, 3, 0]
    assert largest(np.array([1.0, 0.0, 1.0, 0.0, 1.0]), 2).tolist() == [0, 2]


def test_k_beyond_the_ends() -> None:
    assert smallest(np.array([2.0, 1.0]), 5).tolist() == [1, 0]
    assert smallest(np.array([2.0, 1.0]), 0).tolist() == []
    assert smallest(np.empty(0), 3).tolist() == []


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(0, 45))
def test_equals_a_stable_sort(score: list[int], k: int) -> None:
    score = np.array(score, float)
    assert smallest(score, k).tolist() == np.argsort(score, kind="stable")[:k].tolist()
    assert largest(score, k).tolist() == np.argsort(-score, kind="stable")[:k].tolist()
