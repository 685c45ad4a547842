import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.numerics.flips import (
    binary_vanish,
    flip_prob_exact,
    flip_prob_from_pool,
    posterior_flip,
    sign_flips,
)


def test_labels_of_all_kinds() -> None:
    got = sign_flips([1, 1, 1, 0.5, 0.5, None, 0.6], [1, -1, 0, 1, 0, 1, 1], 0.5, reference_se=0.1, z=1.5)
    assert got.labels.tolist() == ["ok", "hard", "vanish", "ambiguous", "ambiguous", "ambiguous", "ambiguous"]
    got = sign_flips([1, 1, 1, 0.5, 0.5], [1, -1, 0, 1, 0], 0.5)
    assert got.labels.tolist() == ["ok", "hard", "vanish", "spurious", "both_zero"]
    assert got[1:4] == (1 / 3, 1 / 3, 0.5)


def test_no_rollouts_have_no_rates() -> None:
    got = sign_flips([], [], 0.5)
    assert got.labels.tolist() == []
    assert got[1:] == (0.0, 0.0, 0.0, 0.0, 0.0)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=9), st.floats(0.01, 0.99))
def test_binary_rewards_never_flip_hard_around_their_own_mean(rewards: list[float], reference: float) -> None:
    r = np.array(rewards)
    assert sign_flips(r, r - r.mean(), reference).hard_rate == 0


def brute(support: list, probs: list, size: int, estimator: str) -> dict[str, float]:
    mean = np.dot(support, probs)
    out = {"hard": 0.0, "vanish": 0.0, "spurious": 0.0}
    for group in itertools.product(range(len(support)), repeat=size):
        p, r = np.prod([probs[k] for k in group]), np.array([support[k] for k in group])
        baseline = r.mean() if estimator == "mean" else np.sort(r)[(size - 1) // 2]
        seen, true = np.sign(np.round(r[0] - baseline, 9)), np.sign(np.round(r[0] - mean, 9))
        out["hard"] += p * (true != 0 and seen == -true)
        out["vanish"] += p * (true != 0 and seen == 0)
        out["spurious"] += p * (true == 0 and seen != 0)
    return out


@pytest.mark.parametrize("estimator", ["mean", "median"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    ("support", "probs"),
    [([0.0, 1.0], [0.7, 0.3]), ([2.0, 0.0, 1.0], [0.25, 0.25, 0.5]), ([0.0, 0.4, 1.0], [0.0, 0.5, 0.5])],
)
def test_exact_chances_equal_those_of_all_groups(support: list, probs: list, size: int, estimator: str) -> None:
    got, want = flip_prob_exact(support, probs, size, estimator), brute(support, probs, size, estimator)
    for name, value in want.items():
        assert np.isclose(got.overall[name], value), name
        assert np.isclose(np.dot(got.per_value[name], probs), value), name


def test_exact_refuses_what_is_no_law() -> None:
    with pytest.raises(ValueError, match=r"sum to 0\.9"):
        flip_prob_exact([0, 1], [0.4, 0.5], 2)
    with pytest.raises(ValueError, match="mean or median"):
        flip_prob_exact([0, 1], [0.5, 0.5], 2, "mode")


@pytest.mark.parametrize("estimator", ["mean", "median"])
def test_pool_rates_equal_those_of_all_subsets(estimator: str) -> None:
    pool = np.array([0, 0, 0.5, 1.5, 1.0, 2.0, 2.0])  # mean 1.0
    got = flip_prob_from_pool(pool, 3, estimator)
    label = []
    for group in itertools.combinations(pool, 3):
        r = np.array(group)
        a = r - (r.mean() if estimator == "mean" else np.sort(r)[1])
        label += sign_flips(r, a, pool.mean()).labels.tolist()
    label = np.array(label)
    signed, zero = np.isin(label, ["ok", "hard", "vanish"]).sum(), np.isin(label, ["spurious", "both_zero"]).sum()
    assert got.exact
    assert np.isclose(got.hard_rate, (label == "hard").sum() / signed)
    assert np.isclose(got.vanish_rate, (label == "vanish").sum() / signed)
    assert np.isclose(got.spurious_rate, (label == "spurious").sum() / zero)


def test_a_pool_of_many_levels_is_subsampled_reproducibly() -> None:
    pool = np.random.default_rng(0).random(64)
    one, two = flip_prob_from_pool(pool, 8), flip_prob_from_pool(pool, 8)
    assert not one.exact
    assert one == two
    assert 0 < one.hard_rate < 0.5


def test_pool_smaller_than_the_group() -> None:
    with pytest.raises(ValueError, match="pool of 2 scored rollouts has no groups of 3"):
        flip_prob_from_pool([0, 1, None], 3)


@given(st.floats(0, 1), st.integers(1, 9))
@settings(max_examples=50)
def test_binary_vanish_equals_the_exact_chance(p: float, size: int) -> None:
    got = binary_vanish(p, size)
    if 1e-6 < p < 1 - 1e-6:  # else the reference is a reward, and nothing that has no sign can lose it
        for name in ("mean", "median"):
            assert np.isclose(getattr(got, name), flip_prob_exact([0, 1], [1 - p, p], size, name).overall["vanish"])


def test_the_posterior_counts_no_flip_where_nothing_is_pushed() -> None:
    got = posterior_flip([1.0, 0.5, None], [0.0, 0.5, 0.5], 1.0, 1.0)
    assert np.allclose(got.flip_probability, [0.0, 0.5, 0.0])
    assert got.reference_baseline == 0.5
    assert got.hard_at_mean.tolist() == [False, False, False]
    with pytest.raises(ValueError, match="lo=1"):
        posterior_flip([1.0], [1.0], 1, 1, lo=1.0, hi=1.0)
