import numpy as np
import pytest

from workbench.numerics.beliefs import Belief
from workbench.numerics.predictors import Context, Kernel, columns, points_of
from workbench.testing.scripted import pool_of


def context(rows: list[int], solved: list[float]) -> Context:
    return Context.empty().add(np.array(rows), np.array(solved), np.full(len(rows), 4.0), 1, 256)


def test_the_context_keeps_the_latest() -> None:
    c = context([0, 1, 2], [4, 0, 2]).add(np.array([5]), np.array([1.0]), np.array([4.0]), 3, 2)
    assert c.rows.tolist() == [2, 5]
    assert c.age().tolist() == [2, 0]


@pytest.mark.parametrize("features", ["embedding", "family", "prompt"])
def test_a_kernel_leans_to_what_is_alike(features: str) -> None:
    pool = pool_of(9)  # families b a a b a a b a a
    kernel = Kernel(points_of(pool, features)).fit_context(context([0, 1], [4, 0]))
    right, wrong = kernel.predict(np.array([0, 1]))
    assert right > 0.7 > 0.3 > wrong
    far = kernel.predict(np.array([3, 4]))
    if features == "family":
        assert np.allclose(far, [right, wrong], atol=1e-6)
    if features == "prompt":
        assert np.allclose(far, 0.5, atol=1e-6)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(points_of(pool_of(50), "embedding")).fit_context(context([0, 7], [4, 1]))
    whole = kernel.predict(np.arange(50))
    monkeypatch.setattr("workbench.numerics.predictors._CHUNK", 7)
    assert np.allclose(kernel.predict(np.arange(50)), whole)


def test_zero_and_opposite_embeddings_are_no_nan() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], np.float32)
    p = Kernel(points).fit_context(context([1], [4])).predict(np.arange(3))
    assert np.isfinite(p).all()


def test_a_pool_without_embeddings() -> None:
    pool = pool_of(3)
    bare = type(pool)(pool.ids, pool.text, pool.answer, pool.prefix, pool.stratum)
    with pytest.raises(ValueError, match="features='family'"):
        points_of(bare, "embedding")


def test_beliefs_in_one_point_are_drawn() -> None:
    shown = columns(Belief(np.array([0.0, 2.0]), np.array([2.0, 0.0])))
    assert shown["mean"].tolist() == [0.0, 1.0]
    assert np.isfinite(shown["low"]).all()
    assert (shown["low"] <= shown["mean"]).all() & (shown["mean"] <= shown["high"]).all()
