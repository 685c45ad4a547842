"""pass@k and majority@k from all samples of a prompt, against every subset."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.numerics.pass_at_k import majority_at_k, pass_at_k


def test_pass_at_k_is_the_share_of_subsets_with_a_right_one() -> None:
    # 2 of 5 right: 1 - C(3, 2) / C(5, 2) = 0.7
    assert pass_at_k(np.array([5, 5, 5]), np.array([2, 0, 5]), 2).tolist() == pytest.approx([0.7, 0.0, 1.0])
    assert np.isnan(pass_at_k(np.array([1]), np.array([1]), 2)[0])
    with pytest.raises(ValueError, match="k=0"):
        pass_at_k(np.array([1]), np.array([1]), 0)
    with pytest.raises(ValueError, match="more solved"):
        pass_at_k(np.array([1]), np.array([2]), 1)


@given(st.integers(1, 9), st.data())
def test_pass_at_k_is_unbiased_over_subsets(n: int, data: st.DataObject) -> None:
    solved, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    right = [1] * solved + [0] * (n - solved)
    every = np.mean([max(c) for c in combinations(right, k)])
    assert pass_at_k(np.array([n]), np.array([solved]), k)[0] == pytest.approx(every)


def test_the_majority_of_three_answers() -> None:
    # answers a a b, right is a: of 2 drawn aa wins, ab twice is a tie
    assert majority_at_k([2, 1], [1.0, 0.0], 2) == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert majority_at_k([2, 1], [1.0, 0.0], 3) == 1
    assert majority_at_k([], [], 2, silent=3) == 0
    assert np.isnan(majority_at_k([1], [1.0], 2))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 3), st.data())
def test_the_majority_is_that_of_every_subset(count: list[int], silent: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, sum(count) + silent))
    credit = [data.draw(st.sampled_from([0.0, 0.5, 1.0])) for _ in count]
    samples = [i for i, c in enumerate(count) for _ in range(c)] + [None] * silent
    total, n = 0.0, 0
    for drawn in combinations(samples, k):
        votes = [drawn.count(i) for i in range(len(count))]
        winners = [i for i, v in enumerate(votes) if v == max(votes) and v > 0]
        total += sum(credit[i] for i in winners) / len(winners) if winners else 0.0
        n += 1
    assert majority_at_k(count, credit, k, silent) == pytest.approx(total / n)


def test_one_sample_has_its_own_majority() -> None:
    assert majority_at_k([3, 2, 1], [1.0, 0.0, 0.0], 1, silent=2) == pytest.approx(3 / 8)
    assert pass_at_k(np.array([8]), np.array([3]), 1)[0] == pytest.approx(3 / 8)


def test_a_thousand_samples_have_a_majority() -> None:
    assert majority_at_k([1200, 1200], [1.0, 0.0], 1024) == 0.5
