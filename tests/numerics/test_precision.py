"""Laws of the number formats and of mismatch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.methods.jet_rl import (
    block_fake_quant,
    mismatch_metrics,
    quantize_e2m1,
    quantize_e4m3,
    rank_fidelity,
    tis_weights,
)


@given(st.lists(st.floats(-448, 448, width=32), min_size=1, max_size=50))
def test_e4m3_rounds_as_the_reference_type_does(x: list[float]) -> None:
    want = torch.tensor(x, dtype=torch.float32).to(torch.float8_e4m3fn).double().numpy()
    assert np.array_equal(quantize_e4m3(x), want)


def test_e2m1_has_fifteen_values() -> None:
    assert np.unique(quantize_e2m1(np.linspace(-9, 9, 4001))).tolist() == [
        -6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6,
    ]  # fmt: skip


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 4), st.integers(1, 4), st.sampled_from(["e4m3", "e2m1"]))
def test_fake_quantisation_is_idempotent_and_keeps_the_largest(r: int, c: int, br: int, bc: int, fmt: str) -> None:
    x = np.random.default_rng(r * 8 + c).standard_normal((r, c))
    once = block_fake_quant(x, [br, bc], fmt)
    assert once.scales.shape == (-(-r // br), -(-c // bc))
    assert np.allclose(block_fake_quant(once.dequantized, [br, bc], fmt).dequantized, once.dequantized)
    assert np.abs(once.dequantized).max() == pytest.approx(np.abs(x).max())


def test_a_block_of_zeros_has_scale_one() -> None:
    assert block_fake_quant(np.zeros((2, 3)), [2, 2]).scales.tolist() == [[1, 1]]


def test_one_policy_has_no_mismatch_and_far_tokens_are_counted() -> None:
    same = mismatch_metrics([[-1.0, -2.0]], [[-1.0, -2.0]], [[1, 1]])
    assert same == (0, 0, 0, 0, 1, 1, 1, 0, 0)
    assert mismatch_metrics([[-50.0]], [[-1.0]], [[1]]).n_clamped == 1
    assert mismatch_metrics([[-50.0]], [[-1.0]], [[0]]) == same


def test_constant_scores_have_no_rank() -> None:
    assert np.isnan(rank_fidelity([1, 1, 1], [1, 2, 3], 1).kendall)
    with pytest.raises(ValueError, match="cannot be compared"):
        rank_fidelity([1, 2], [1, 2], 3)


def test_masked_weights_are_zero_outside_the_band() -> None:
    assert tis_weights([0.0, 0.0, 0.0], [-2.0, 0.0, 2.0], 2, "mask", 0.5).tolist() == [0, 1, 0]
