"""D3S: of a batch keep the rollouts whose advantages vary most, and of them the tokens of large |advantage| x entropy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.picks import largest
from workbench.stages import Card, Method, State
from workbench.types import Advantage, Draft, Ragged, Rollouts

CARD = Card(
    slug="d3s",
    title="D3S: learning more with less, a dynamic dual-level down-sampling framework",
    arxiv="2509.22115",
    source="notes",
    deviations=(
        "one selection over all rollouts of the batch; the paper selects inside groups first, with counts it does not give",
        "shares of a batch (n_init, n_final) in the place of counts; all four ends of the schedule are set here, the "
        "paper's are not known",
        "masked tokens get advantage 0 and the others are scaled by valid / kept, which makes a mean over tokens one over "
        "kept tokens",
        "rollouts without recorded entropies (simulation) keep all their tokens",
        "ties between rollouts go by id",
    ),
    watch="kept share of rollouts and tokens, variance of the advantages before and after, difficulty of what is kept",
)


class MaxVariance(NamedTuple):
    """indices (k,) ascending; variance of the chosen advantages, 0 where none; n_top = how many come from the top."""

    indices: np.ndarray
    variance: float
    n_top: int


def select_max_variance(advantages: ArrayLike, n: int) -> MaxVariance:
    """The n advantages (N,) of largest population variance: the j largest and the n - j smallest, for the best j.

    All j are tried from n down in one pass over prefix sums; ties in variance (1e-12) go to the larger j, ties in value
    to the lower index. n >= N keeps all."""
    a = np.asarray(advantages, float)
    n = max(min(n, len(a)), 0)
    down, up = np.argsort(-a, kind="stable"), np.argsort(a, kind="stable")
    if n == 0:
        return MaxVariance(np.empty(0, np.int64), 0.0, 0)
    shifted = a - a.mean()
    j = np.arange(n, -1, -1)

    def sums(order: np.ndarray, power: int) -> np.ndarray:
        return np.concatenate([[0.0], np.cumsum(shifted[order[:n]] ** power)])

    total = sums(down, 1)[j] + sums(up, 1)[n - j]
    square = sums(down, 2)[j] + sums(up, 2)[n - j]
    variance = square / n - (total / n) ** 2
    top = int(j[np.flatnonzero(variance >= variance.max() - 1e-12)[0]])
    chosen = np.zeros(len(a), bool)
    chosen[down[:top]] = True
    low = up[~chosen[up]]  # equal values stand in both lists: the lowest index not yet taken
    chosen[low[: n - top]] = True
    indices = np.flatnonzero(chosen)
    return MaxVariance(indices, float(a[indices].var()), top)


def token_topk(value: np.ndarray, entropy: np.ndarray, keep_fraction: float) -> np.ndarray:
    """Positions of the ceil(keep_fraction x M) tokens of largest |A| H, one at least where there is any; (M,) each.

    Ties go to the earlier token."""
    key = np.abs(value) * entropy
    # 0.6 * 5 is 3.0000000000000004 for some fractions: without the guard one token more
    return largest(key, max(ceil(keep_fraction * len(key) - 1e-9), 1))


class Schedule(NamedTuple):
    """n rollouts and share k of the tokens to keep."""

    n: int
    k: float


def schedule(progress: float, n_init: float, n_final: float, k_init: float, k_final: float) -> Schedule:
    """From few to many: (1 - p) init + p final, n rounded half up. progress is held to 0..1."""
    p = min(max(progress, 0.0), 1.0)
    n = floor((1 - p) * n_init + p * n_final + 0.5)
    return Schedule(n, (1 - p) * k_init + p * k_final)


@dataclass(frozen=True)
class D3s(Method):
    """Train on part of the rollouts and of their tokens, from n_init and k_init of them to n_final and k_final.

    All four are shares; steps: after how many the schedule ends. Selection uses the advantages that stand before it, so
    it goes with any estimator: Pipeline(Grpo(reduction="token_mean"), D3s()).
    """

    n_init: float = 0.25
    n_final: float = 1.0
    k_init: float = 0.2
    k_final: float = 1.0
    steps: int = 100

    card = CARD

    def __post_init__(self) -> None:
        for name in ("n_init", "n_final", "k_init", "k_final"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}: shares lie in 0..1")
        if self.steps < 1:
            raise ValueError(f"steps={self.steps}: the schedule needs one step at least")

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Drop rollouts outside the selection, and set the advantages of tokens outside theirs to 0."""
        r = draft.rollouts
        rows = np.flatnonzero(advantage.keep)
        rows = rows[np.argsort(r.id[rows].astype(str), kind="stable")]
        m = len(rows)
        plan = schedule((draft.step - 1) / self.steps, self.n_init * m, self.n_final * m, self.k_init, self.k_final)
        kept = np.zeros(len(r), bool)
        kept[rows[select_max_variance(advantage.value[rows], max(plan.n, 1)).indices]] = True
        advantage = advantage.drop(~kept, "low_variance")
        return replace(advantage, tokens=_token_advantages(advantage, r, plan.k))


def _token_advantages(advantage: Advantage, rollouts: Rollouts, keep_fraction: float) -> Ragged | None:
    """Per-token advantages with the share of largest |A| H left, or what was there where nothing is masked."""
    entropy = rollouts.entropy
    if entropy is None or keep_fraction >= 1:
        return advantage.tokens
    row = np.repeat(np.arange(len(rollouts)), entropy.lengths)
    value = advantage.value[row] if advantage.tokens is None else advantage.tokens.values
    inside = np.flatnonzero(advantage.keep[row])
    best = inside[token_topk(value[inside], entropy.values[inside], keep_fraction)]
    out = np.zeros(len(row))
    out[best] = value[best] * (len(inside) / max(len(best), 1))
    return Ragged(out, entropy.offsets)
