import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vectors.losses import kl_k3, policy_loss
from workbench.methods.grpo import Grpo

KINDS = ("ppo", "gspo", "cispo_trl", "cispo_verl")


def batch(seed: int, b: int = 3, t: int = 5) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    mask = (np.arange(t) < rng.integers(0, t + 1, (b, 1))).astype(float)
    return -rng.random((b, t)) * 2, -rng.random((b, t)) * 2, rng.normal(size=(b, t)), mask


def test_dual_clip_caps_the_ratio_where_the_advantage_is_negative() -> None:
    logp, old, mask = [[np.log(0.9)]], [[np.log(0.1)]], [[1]]
    plain = policy_loss(logp, old, [-1.0], mask)
    capped = policy_loss(logp, old, [-1.0], mask, delta=3.0)
    assert np.isclose(plain["loss"], 9.0)
    assert np.isclose(plain["grad_logp"][0, 0], 9.0)
    assert np.isclose(capped["loss"], 3.0)
    assert capped["grad_logp"][0, 0] == 0.0
    assert capped["clip_frac"] == 0.0
    assert np.isclose(policy_loss(logp, old, [1.0], mask, delta=3.0)["loss"], -1.2)


def test_constant_length() -> None:
    got = policy_loss(
        [[0.0, 0.0], [0.0, 0.0]], [[0, 0], [0, 0]], [1.0, 2.0], [[1, 1], [1, 0]], agg="const_len", max_len=10
    )
    assert np.isclose(got["loss"], -4 / 20)
    with pytest.raises(ValueError, match="max_len"):
        policy_loss([[0.0]], [[0.0]], [1.0], [[1]], agg="const_len")


def test_a_masked_row_counts_in_the_mean_of_rows() -> None:
    one = policy_loss([[0.0]], [[0.0]], [1.0], [[1]])
    two = policy_loss([[0.0], [0.0]], [[0.0], [0.0]], [1.0, 1.0], [[1], [0]])
    assert (one["loss"], two["loss"]) == (-1.0, -0.5)
    assert two["grad_logp"][1, 0] == 0


def test_nothing_valid_is_no_loss() -> None:
    for kind in KINDS:
        got = policy_loss([[-np.inf]], [[-np.inf]], [1.0], [[0]], kind=kind, agg="token_mean")
        assert (got["loss"], got["clip_frac"], got["grad_logp"][0, 0]) == (0.0, 0.0, 0.0)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(ValueError, match="no kind 'sgd'"):
        Grpo(kind="sgd")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no reduction 'sum'"):
        Grpo(reduction="sum")  # type: ignore[arg-type]


def test_k3() -> None:
    assert np.allclose(kl_k3([0.0, -1.0], [0.0, -2.0]), [0, np.exp(-1)])


@settings(deadline=None)
@given(st.floats(-5, 0), st.floats(-5, 0))
def test_k3_is_never_negative(logp: float, ref: float) -> None:
    assert kl_k3(logp, ref) >= -1e-15  # rounding


@given(st.integers(0, 10_000), st.sampled_from(["ppo"]), st.sampled_from(["seq_mean", "token_mean", "const_len"]))
@settings(max_examples=40, deadline=None)
def test_the_gradient_is_that_of_the_loss(seed: int, kind: str, agg: str) -> None:
    logp, old, a, mask = batch(seed)
    at = lambda x: policy_loss(x, old, a, mask, kind, agg=agg, max_len=8)["loss"]  # noqa: E731
    grad = policy_loss(logp, old, a, mask, kind, agg=agg, max_len=8)["grad_logp"]
    step, h = np.random.default_rng(seed + 1).normal(size=logp.shape), 1e-6
    assert np.isclose((at(logp + h * step) - at(logp - h * step)) / (2 * h), (grad * step).sum(), atol=1e-4)


@given(st.integers(0, 10_000), st.sampled_from(KINDS))
@settings(max_examples=40, deadline=None)
def test_on_policy_every_kind_has_the_policy_gradient(seed: int, kind: str) -> None:
    logp, _, a, mask = batch(seed)
    grad = policy_loss(logp, logp, a, mask, kind, eps_high=5.0, agg="token_mean")["grad_logp"]
    assert np.allclose(grad, -a * mask / max(mask.sum(), 1))
