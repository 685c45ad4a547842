"""Sparse differences of weights: exact, and no larger than they have to be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.vectors.searches import diff_indices, to_bf16_bits
from workbench.numerics import sparse_sync as s

WORDS = arrays(np.uint16, st.integers(0, 60))


@given(WORDS, st.data())
@settings(max_examples=200, deadline=None)
def test_applying_the_difference_gives_the_other_version_bit_for_bit(old, data):
    new = data.draw(arrays(np.uint16, len(old)))
    indices, share = s.changed(new, old)
    assert s.apply_update(old, indices, new[indices]).tolist() == new.tolist()
    assert share == (0.0 if not len(old) else len(indices) / len(old))


@given(st.sets(st.integers(0, 10_000)))
@settings(max_examples=100, deadline=None)
def test_gaps_are_decoded_to_the_indices(indices):
    indices = sorted(indices)
    deltas = s.delta_encode(indices)
    assert deltas is not None
    assert s.delta_decode(deltas).tolist() == indices


@given(st.lists(WORDS, min_size=2, max_size=5))
@settings(max_examples=100, deadline=None)
def test_a_union_brings_a_receiver_that_missed_steps_up_to_date(versions):
    size = min(map(len, versions))
    versions = [v[:size] for v in versions]
    steps = [s.changed(b, a).indices for a, b in pairwise(versions)]
    union = s.union_indices(steps)
    assert s.apply_update(versions[0], union, versions[-1][union]).tolist() == versions[-1].tolist()


def test_signed_zeros_differ_in_bits_and_not_in_value():
    assert diff_indices([0.0, 1.0], [-0.0, 1.0]).indices.tolist() == [0]
    assert diff_indices([0.0, 1.0], [-0.0, 1.0], compare="value").indices.tolist() == []


def test_a_gap_too_wide_is_not_encoded():
    assert s.delta_encode([0, 65537]) is None
    assert s.delta_encode([0, 65536]).tolist() == [0, 65535]
    assert s.delta_encode([]).tolist() == []


def test_equality_goes_dense():
    assert (s.route(1 / 3), s.route(0.33), s.route(0.0)) == ("dense", "sparse", "sparse")
    assert s.route(0.2, margin=2) == "dense"


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="1 weights are NaN"):
        to_bf16_bits([1.0, np.nan])
    with pytest.raises(ValueError, match="indices 0 to 3 do not lie in 3 elements"):
        s.apply_update([1, 2, 3], [0, 3], [9, 9])
    with pytest.raises(ValueError, match="2 indices for 1 values"):
        s.apply_update([1, 2, 3], [0, 1], [9])
    with pytest.raises(ValueError, match="ascending"):
        s.delta_encode([3, 3])
    with pytest.raises(ValueError, match="no comparison 'close'"):
        diff_indices([1.0], [1.0], compare="close")
    with pytest.raises(ValueError, match="cannot be compared"):
        s.changed(np.zeros(2, np.uint16), np.zeros(3, np.uint16))
