"""Where one more rollout may turn out otherwise (TRACE): roots by the chance of a mixed group, prefixes by that of a flip,
and the values of the trees that come of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics import greedy
from workbench.numerics.picks import largest

_CELLS = 4_000_000


def root_value(v: ArrayLike, m: ArrayLike) -> np.ndarray:
    """1 - v^m - (1 - v)^m: the chance that m rollouts of success rate v do not all end alike; 0 for m <= 1."""
    v, m = np.asarray(v, float), np.asarray(m, float)
    return np.where(m > 1, np.maximum(1 - v**m - (1 - v) ** m, 0.0), 0.0)


class RootAllocation(NamedTuple):
    """m (P,) int64 rollouts, 0 = the prompt is dropped; objective = summed value; spent rollouts."""

    m: np.ndarray
    objective: float
    spent: int


def root_allocation(v: ArrayLike, budget: int, m_min: int = 2, m_max: int = 8) -> RootAllocation:
    """The m, each 0 or in m_min..m_max and together at most budget, that make most groups mixed.

    v (P,) predicted success rates. Exact by dynamic programming; of equally good answers the one that spends least and
    favours low indices. Large pools are filled greedily: every rollout of a group up to the third is worth v (1 - v),
    and those behind it less, so only the last prompt served can be short of m_min."""
    v = np.asarray(v, float)
    if not ((v >= 0) & (v <= 1)).all() or not 1 <= m_min <= m_max:
        raise ValueError(f"rates must lie in 0..1 and 1 <= m_min <= m_max, got {v[:3]}, {m_min}, {m_max}")
    budget = max(budget, 0)
    width = min(m_max, budget)
    if len(v) * (width + 1) * (budget + 1) > _CELLS:
        return _greedy_roots(v, budget, m_min, max(min(width, _CELLS // len(v)), m_min))
    m = np.arange(width + 1)
    value = root_value(v[:, None], m)
    value[:, (m > 0) & (m < m_min)] = -np.inf
    made = greedy.best_split(value, budget)
    return RootAllocation(made.n, made.value, made.spent)


def _greedy_roots(v: np.ndarray, budget: int, m_min: int, m_max: int) -> RootAllocation:
    # a table that no prompt reaches the end of answers as the full one would: few prompts get far above the mean
    width = min(m_max, max(4 * -(-budget // len(v)), m_min))
    while True:
        value = root_value(v[:, None], np.arange(width + 1))
        gain = np.diff(value, axis=1)
        gain[:, :m_min] = value[:, [m_min]] / m_min
        m = greedy.spend(gain, budget)
        if width == m_max or m.max() < width:
            break
        width = min(2 * width, m_max)
    short = np.flatnonzero((m > 0) & (m < m_min))  # groups that the budget did not reach
    m[short] = 0
    room = np.where(m > 0, np.append(gain, np.zeros((len(v), 1)), axis=1)[np.arange(len(v)), m], 0.0)
    left = budget - int(m.sum())
    m[largest(room, min(left, int((room > 0).sum())))] += 1
    return RootAllocation(m, float(value[np.arange(len(v)), m].sum()), int(m.sum()))


class PrefixValue(NamedTuple):
    """Columns (n,): flip = chance that one continuation ends differently; gain = that one of k does."""

    flip: np.ndarray
    gain: np.ndarray


def prefix_value(reward: ArrayLike, value: ArrayLike, k: ArrayLike, success: float = 0.5) -> PrefixValue:
    """f = r (1 - p) + (1 - r) p and 1 - (1 - f)^k, for rollouts of outcome r through prefixes of predicted value p.

    Graded rewards count as 1 from `success` on."""
    r, p = (np.asarray(reward, float) >= success).astype(float), np.asarray(value, float)
    flip = r * (1 - p) + (1 - r) * p
    return PrefixValue(flip, 1 - (1 - flip) ** np.asarray(k, float))


class PrefixAllocation(NamedTuple):
    """Columns (n,): flip, k int64 continuations; objective = summed gain; unspent continuations."""

    flip: np.ndarray
    k: np.ndarray
    objective: float
    unspent: int


def prefix_allocation(nodes: Sequence[Mapping], budget: int, k_max: int = 4, success: float = 0.5) -> PrefixAllocation:
    """Continuations one at a time to the largest f (1 - f)^k: optimal, since the gain is concave in k.

    nodes: visited prefixes {rollout, turn, reward, value}; ties go to the smallest (rollout, turn). What has nothing
    left to gain stays unspent."""
    column = {name: np.array([node[name] for node in nodes]) for name in ("rollout", "turn", "reward", "value")}
    flip = prefix_value(column["reward"], column["value"], np.ones(len(nodes)), success).flip
    order = np.lexsort((column["turn"], column["rollout"]))
    gain = (flip * (1 - flip) ** np.arange(k_max)[:, None]).T
    k = np.zeros(len(nodes), np.int64)
    k[order] = greedy.spend(gain[order], budget)
    return PrefixAllocation(flip, k, float((1 - (1 - flip) ** k).sum()), budget - int(k.sum()))


class TreeValues(NamedTuple):
    """Columns (n,): n_leaves int64 scored leaves at or below a node; value their mean reward, NaN without one;
    bernoulli_variance = value (1 - value)."""

    n_leaves: np.ndarray
    value: np.ndarray
    bernoulli_variance: np.ndarray


def tree_values(parent: ArrayLike, reward: Sequence[float | None] | np.ndarray) -> TreeValues:
    """Targets from the leaves up. parent (n,) int, -1 = root; reward (n,), None or NaN = not a leaf, or not scored.

    Raises ValueError where a parent does not stand before its children."""
    parent, reward = np.asarray(parent, np.int64), np.asarray(reward, float)
    if (parent >= np.arange(len(parent))).any():
        row = int(np.flatnonzero(parent >= np.arange(len(parent)))[0])
        raise ValueError(f"the parent of node {row} is {parent[row]}; parents must stand before their children")
    inner = np.isin(np.arange(len(parent)), parent)
    scored = np.isfinite(reward) & ~inner
    count, total = scored.astype(np.int64), np.where(scored, reward, 0.0)
    for node in range(len(parent) - 1, -1, -1):
        if parent[node] >= 0:
            count[parent[node]] += count[node]
            total[parent[node]] += total[node]
    value = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return TreeValues(count, value, value * (1 - value))


class TreeAdvantages(NamedTuple):
    """Columns (n,): node_advantage, edge_contrast = value minus that of the parent, 0 at a root; mixed: leaves differ."""

    node_advantage: np.ndarray
    edge_contrast: np.ndarray
    mixed: bool


def tree_advantages(
    parent: ArrayLike, reward: Sequence[float | None] | np.ndarray, eps: float = 1e-6
) -> TreeAdvantages:
    """(value - mu) / (sigma + eps) with mu, sigma (population) over all scored leaves: each node's tokens are used once,
    with the mean advantage of its leaves. Zeros where all leaves are alike, and for nodes without a scored leaf."""
    parent, reward = np.asarray(parent, np.int64), np.asarray(reward, float)
    values = tree_values(parent, reward)
    inner = np.isin(np.arange(len(parent)), parent)
    leaf = reward[np.isfinite(reward) & ~inner]
    mixed = bool(len(leaf) and leaf.max() > leaf.min())
    value = np.nan_to_num(values.value, nan=leaf.mean() if len(leaf) else 0.0)
    node = (value - leaf.mean()) / (leaf.std() + eps) if mixed else np.zeros(len(parent))
    above = value[np.maximum(parent, 0)]
    return TreeAdvantages(node, np.where(parent >= 0, value - above, 0.0), mixed)
