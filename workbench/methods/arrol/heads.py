"""Predictors of success small enough to live in a method's state: logistic regression, or one layer of tanh before it.

Learned online by a few steps of gradient ascent on each batch's mean log-likelihood; nothing is kept but the weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Head(NamedTuple):
    """outer (k,) weights of the features; inner (d, k - 1) of the layer that makes them of d inputs, (0, 0) for none."""

    outer: np.ndarray
    inner: np.ndarray = np.empty((0, 0))

    @classmethod
    def of_width(cls, inputs: int, width: int) -> Head:
        """A random layer below weights of 0: it answers a half to everything. The same for the same sizes."""
        inner = np.random.default_rng([inputs, width]).standard_normal((inputs, width))
        return cls(np.zeros(width + 1), inner)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _features(head: Head, x: np.ndarray) -> np.ndarray:
    """(n, k) of inputs x (n, d): x itself, or tanh(x inner) of unit size in all, and a one."""
    if not head.inner.size:
        return x
    width = head.inner.shape[1]
    return np.column_stack([np.tanh(x @ head.inner) / np.sqrt(width), np.ones(len(x))])


def logit(head: Head, x: np.ndarray) -> np.ndarray:
    """(n,) log odds of success for inputs x (n, d)."""
    return _features(head, x) @ head.outer


def learned(head: Head, x: np.ndarray, y: np.ndarray, rate: float, passes: int) -> Head:
    """The head after `passes` steps of length rate along the gradient of the mean log-likelihood of y (n,) in 0..1."""
    outer, inner = head
    for _ in range(passes):
        phi = _features(Head(outer, inner), x)
        error = (y - sigmoid(phi @ outer)) / len(x)
        if inner.size:
            width = inner.shape[1]
            slope = 1 / np.sqrt(width) - phi[:, :-1] ** 2 * np.sqrt(width)  # d tanh(z) / sqrt(width)
            inner = inner + rate * x.T @ (error[:, None] * outer[:-1] * slope)
        outer = outer + rate * phi.T @ error
    return Head(outer, inner)
