"""Small predictors of success: they begin undecided, climb the likelihood, and learn what a line cannot tell."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.methods.arrol.heads import Head, learned, logit, sigmoid


def likelihood(head, x, y):
    p = sigmoid(logit(head, x))
    return float((y * np.log(p) + (1 - y) * np.log(1 - p)).mean())


def test_a_new_head_answers_a_half_and_is_the_same_for_the_same_sizes():
    x = np.random.default_rng(0).standard_normal((5, 3))
    one, two = Head.of_width(3, 8), Head.of_width(3, 8)
    assert logit(one, x).tolist() == [0.0] * 5
    assert np.array_equal(one.inner, two.inner)
    assert (one.inner.shape, one.outer.shape) == ((3, 8), (9,))


@pytest.mark.parametrize("layer", [False, True])
def test_a_step_goes_along_the_gradient(layer):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((6, 3)), np.array([1.0, 0, 1, 1, 0, 0.5])
    head = Head(rng.standard_normal(5), rng.standard_normal((3, 4))) if layer else Head(rng.standard_normal(3))
    stepped = learned(head, x, y, rate=1.0, passes=1)
    for k, column in enumerate(head):
        for at in np.ndindex(column.shape):
            moved = column.copy()
            moved[at] += 1e-6
            slope = (likelihood(head._replace(**{head._fields[k]: moved}), x, y) - likelihood(head, x, y)) / 1e-6
            assert stepped[k][at] - column[at] == pytest.approx(slope, abs=1e-5)


def test_a_layer_learns_what_a_line_cannot():
    rng = np.random.default_rng(2)
    points = rng.standard_normal((200, 2))
    x, y = np.column_stack([np.ones(200), points]), (points[:, 0] * points[:, 1] > 0).astype(float)
    line = learned(Head(np.zeros(3)), x, y, rate=1.0, passes=500)
    layer = learned(Head.of_width(3, 64), x, y, rate=2.0, passes=500)
    assert ((logit(line, x) > 0) == (y > 0.5)).mean() < 0.7
    assert ((logit(layer, x) > 0) == (y > 0.5)).mean() > 0.9


def test_the_chance_of_far_scores_is_finite():
    assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]
