import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from workbench.numerics import beta

shape = st.floats(0.05, 5000)


def test_log_gamma_of_known_values() -> None:
    assert np.allclose(beta.log_gamma([1, 2, 3, 0.5]), [0, 0, np.log(2), np.log(np.pi) / 2], atol=1e-13)


@given(st.floats(1e-3, 1e6))
def test_log_gamma_agrees_with_scipy(x: float) -> None:
    assert np.isclose(beta.log_gamma(x), special.gammaln(x), rtol=1e-12, atol=1e-12)


@given(st.floats(1e-3, 1e9))
def test_digamma_agrees_with_scipy(x: float) -> None:
    assert np.isclose(beta.digamma(x), special.psi(x), rtol=1e-12, atol=1e-12)


@given(st.floats(0, 1), shape, shape)
def test_cdf_agrees_with_scipy(x: float, a: float, b: float) -> None:
    assert np.isclose(beta.cdf(x, a, b), stats.beta.cdf(x, a, b), rtol=1e-8, atol=1e-10)


@given(st.floats(0.001, 0.999), st.floats(0.3, 2000), st.floats(0.3, 2000))
def test_quantile_agrees_with_scipy(q: float, a: float, b: float) -> None:
    assert np.isclose(beta.quantile(q, a, b), stats.beta.ppf(q, a, b), rtol=1e-7, atol=1e-9)


def test_grid_agrees_with_scipy() -> None:
    a, b, x = np.meshgrid([0.2, 1, 3, 80, 1e4], [0.2, 1, 3, 80, 1e4], np.linspace(0, 1, 41), indexing="ij")
    assert np.abs(beta.cdf(x, a, b) - special.betainc(a, b, x)).max() < 1e-10


def test_ends_and_outside() -> None:
    assert beta.cdf([-1.0, 0.0, 1.0, 2.0], 2.0, 3.0).tolist() == [0, 0, 1, 1]
    assert beta.quantile([0.0, 1.0], 2.0, 3.0).tolist() == [0, 1]
    assert beta.cdf(np.empty(0), np.empty(0), np.empty(0)).shape == (0,)


def test_uniform_belief_has_its_levels_as_quantiles() -> None:
    low, high = beta.interval(np.array([1.0, 1.0]), np.array([1.0, 1.0]), 0.9)
    assert np.allclose(low, 0.05)
    assert np.allclose(high, 0.95)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_interval_holds_its_level(level: float) -> None:
    a, b = np.array([1.0, 5.0, 40.0, 1.0]), np.array([9.0, 5.0, 2.0, 9.0])
    low, high = beta.interval(a, b, level)
    assert np.allclose(stats.beta.cdf(high, a, b) - stats.beta.cdf(low, a, b), level, atol=1e-9)
    assert low[0] == low[3]
