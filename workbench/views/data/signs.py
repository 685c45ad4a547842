"""Sign flips of advantages against a better reference: rates by step, group size and difficulty, and one group.

Two references, never mixed in one figure. pool: the mean over the rollouts of the same policy version; with fewer than 64
of them it is the group itself, mostly, and cannot contradict it. posterior: the Beta belief of a prompt from the rewards of
its earlier steps, older ones fading; it gives chances, and counts only where a prompt was asked before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.numerics import beta
from workbench.numerics.flips import TAU, posterior_flip, sign_flips
from workbench.views.data.groups import GroupFacts, shared
from workbench.views.data.records import column
from workbench.views.data.tokens import Sibling

if TYPE_CHECKING:
    from workbench.views.data.run import RunData

POOL = 64
"""Rollouts of one version that make a pool."""

Z = 2.0
"""Standard errors from a pool within which a rollout is ambiguous."""

KEEP = 0.9
"""Weight that what a posterior knows keeps from group to group."""

BINS = 5
"""Difficulty bins, of equal width over the range of rewards."""

COUNTS = ("n", "hard", "vanish", "signed", "spurious", "zero", "unclear")
"""hard and vanish are shares of signed, spurious of zero; see `numerics.flips`. Under a posterior hard is a sum of chances."""

RATES = {"hard": "signed", "vanish": "signed", "spurious": "zero"}
"""Rate -> what it is a share of."""


class Rates(NamedTuple):
    """Counts by step, estimator, kind of reference, group size and difficulty bin (0 = hardest), (K,) each; counts
    (K, 7) in the order of COUNTS."""

    step: np.ndarray
    estimator: np.ndarray
    kind: np.ndarray
    size: np.ndarray
    bin: np.ndarray
    counts: np.ndarray

    def take(self, rows: np.ndarray) -> Rates:
        """The rows of a mask or index."""
        return Rates(*(values[rows] for values in self))

    def by(self, *names: str) -> tuple[list[tuple], np.ndarray]:
        """(keys, sums (len(keys), 7)) over the columns named, ascending."""
        keys = list(zip(*(getattr(self, n).tolist() for n in names), strict=True))
        known = sorted(set(keys))
        at = {k: i for i, k in enumerate(known)}
        sums = np.zeros((len(known), len(COUNTS)))
        np.add.at(sums, [at[k] for k in keys], self.counts)
        return known, sums


NONE = Rates(
    np.empty(0, np.int64), np.empty(0, object), np.empty(0, object), np.empty(0, np.int64), np.empty(0, np.int64),
    np.zeros((0, len(COUNTS))),
)  # fmt: skip


class Span(NamedTuple):
    """The rewards of a run: how many levels, from where to where; step of the newest."""

    levels: int
    low: float
    high: float
    step: int


class GroupReference(NamedTuple):
    """A reference of one group. low, high: its interval; n: rollouts it was made from; labels, chance: of every rollout
    given, chance that its advantage points the wrong way, NaN where unclear."""

    kind: str
    value: float
    low: float
    high: float
    n: float
    labels: tuple[str, ...]
    chance: tuple[float, ...]


def rate(sums: np.ndarray, name: str) -> np.ndarray:
    """(...,) a rate from (..., 7) counts; NaN where nothing is below the line."""
    top, bottom = sums[..., COUNTS.index(name)], sums[..., COUNTS.index(RATES[name])]
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), np.nan)


class _Signs:
    """The rates of a run, kept up to date by `extend`."""

    def __init__(self) -> None:
        self.rates, self.step = NONE, 0
        self.span = Span(0, 0.0, 0.0, 0)
        self.alpha = self.beta = self.groups = np.empty(0)

    def extend(self, data: RunData) -> None:
        """Take in the steps after the last one. A reward outside the range so far starts anew: beliefs live on it."""
        if self.step == data.step:
            return
        found = data.ask("page_reward_span").to_pylist()
        if not found:
            self.step = data.step
            return
        r = found[0]
        span = Span(r["levels"], min(r["low"], 0.0), max(r["high"], 0.0), r["step"])
        if (span.low, span.high) != (self.span.low, self.span.high) or len(self.alpha) != len(data.prompts):
            n = len(data.prompts)
            self.rates, self.step, self.alpha, self.beta, self.groups = NONE, 0, np.ones(n), np.ones(n), np.zeros(n)
        self.span = span
        pooled = _pooled(data.ask("page_signs", since=self.step, bins=BINS))
        believed = self._believed(data.ask("page_sign_rows", since=self.step))
        self.rates = Rates(*(np.concatenate(c) for c in zip(self.rates, pooled, believed, strict=True)))
        self.step = data.step

    def _believed(self, table: Any) -> Rates:
        """Counts against what each prompt's earlier steps say; the beliefs move on with every step.

        Only rollouts in the loss are counted. A belief learns from all: what leaves the loss is no chance sample."""
        columns = {c: np.asarray(table[c].to_numpy(zero_copy_only=False)) for c in table.column_names}
        made = [self._step({k: v[i:j] for k, v in columns.items()}) for i, j in _runs(columns["step"])]
        return Rates(*(np.concatenate(c) for c in zip(*made, strict=True))) if made else NONE

    def _step(self, c: dict[str, np.ndarray]) -> Rates:
        at, width = c["position"].astype(np.int64), max(self.span.high - self.span.low, 1e-12)
        share = np.clip((c["reward"].astype(float) - self.span.low) / width, 0, 1)
        a, b, known, kept = self.alpha[at], self.beta[at], self.groups[at] > 0, c["kept"].astype(bool)
        self._learn(at, share)
        if not kept.any():
            return NONE
        a, b, known, share = a[kept], b[kept], known[kept], share[kept]
        c = {name: values[kept] for name, values in c.items()}
        advantage, n = c["advantage"].astype(float), int(kept.sum())
        below = beta.cdf(share, a, b)
        wrong = np.where(advantage > TAU, 1 - below, np.where(advantage < -TAU, below, 0.0))
        counts = np.column_stack([
            np.ones(n), known * wrong, known & (np.abs(advantage) <= TAU), known, np.zeros(n), np.zeros(n), ~known,
        ]).astype(float)  # fmt: skip
        bins = np.minimum((BINS * a / (a + b)).astype(np.int64), BINS - 1)
        kind, step = np.full(n, "posterior", object), c["step"].astype(np.int64)
        rows = Rates(step, c["estimator"].astype(object), kind, c["size"].astype(np.int64), bins, counts)
        keys, sums = rows.by("estimator", "size", "bin")
        columns = [np.array(list(values), object) for values in zip(*keys, strict=True)]
        return Rates(np.full(len(keys), c["step"][0], np.int64), columns[0], np.full(len(keys), "posterior", object),
                     columns[1].astype(np.int64), columns[2].astype(np.int64), sums)  # fmt: skip

    def _learn(self, at: np.ndarray, share: np.ndarray) -> None:
        touched, where = np.unique(at, return_inverse=True)
        self.alpha[touched] = 1 + KEEP * (self.alpha[touched] - 1) + np.bincount(where, share)
        self.beta[touched] = 1 + KEEP * (self.beta[touched] - 1) + np.bincount(where, 1 - share)
        self.groups[touched] += 1


def rates(data: RunData) -> tuple[Rates, Span]:
    """The counts of a run up to its newest step, and the rewards they are over; shared by all viewers."""
    with data.source.lock:
        data.refresh()  # what is asked for below reaches to the newest step of the store
        signs = data.kept.setdefault(_Signs, _Signs())
        signs.extend(data)
        return signs.rates, signs.span


def _pooled(table: Any) -> Rates:
    step, size, bins = (column(table, c, np.int64) for c in ("step", "size", "bin"))
    estimator, kind = (column(table, c, object) for c in ("estimator", "kind"))
    return Rates(step, estimator, kind, size, bins, np.column_stack([column(table, c) for c in COUNTS]))


def _runs(steps: np.ndarray) -> list[tuple[int, int]]:
    """(first, after last) of every stretch of equal values."""
    if not len(steps):
        return []
    edges = np.flatnonzero(np.diff(steps)) + 1
    return list(zip([0, *edges.tolist()], [*edges.tolist(), len(steps)], strict=True))


def against(data: RunData, g: GroupFacts, rows: Sequence[Sibling]) -> tuple[GroupReference, ...]:
    """The references of a group, best first: a pool, the posterior from earlier steps, the small pool of its version."""
    span = rates(data)[1]

    def ask() -> tuple[GroupReference, ...]:
        past = data.ask("page_reference", prompt=g.prompt, step=g.step).to_pylist()
        return references(past, g.step, rows, span)

    return shared(data, ("against", g.step, g.rank, g.group, span.low, span.high), ask)


def references(
    past: Sequence[dict[str, Any]], step: int, rows: Sequence[Sibling], span: Span
) -> tuple[GroupReference, ...]:
    """`against` from the rewards of a prompt by step and version, up to the group's own step."""
    reward = np.array([np.nan if s.reward is None else s.reward for s in rows], float)
    advantage = np.array([0.0 if s.advantage is None else s.advantage for s in rows], float)
    out = np.array([s.fate not in ("trained", "carried") for s in rows], bool)
    version = max((s.version for s in rows), default=0)
    mine = [r for r in past if r["version"] == version]
    found = []
    if mine:
        n = sum(r["n"] for r in mine)
        mean = sum(r["n"] * r["mean"] for r in mine) / n
        square = sum((r["n"] - 1) * r["std"] ** 2 + r["n"] * (r["mean"] - mean) ** 2 for r in mine)
        se = float(np.sqrt(square / max(n - 1, 1) / n))
        labels = sign_flips(reward, advantage, mean, reference_se=se, z=Z).labels
        chance = np.where(labels == "ambiguous", np.nan, (labels == "hard").astype(float))
        kind = "pool" if n >= POOL else "small pool"
        found.append(_against(kind, mean, mean - Z * se, mean + Z * se, n, labels, chance, out))
    if (belief := _belief(past, step, span)) is not None:
        found.append(_believed(belief, reward, advantage, out, span))
    return tuple(sorted(found, key=lambda a: ("pool", "posterior", "small pool").index(a.kind)))


def _belief(past: Sequence[dict[str, Any]], step: int, span: Span) -> tuple[float, float, float] | None:
    """(alpha, beta, rollouts) of the posterior before a step; None where the prompt was not asked before."""
    a = b = 1.0
    n = 0
    for s in sorted({r["step"] for r in past if r["step"] < step and r["trained"]}):
        here = [r for r in past if r["step"] == s]
        tried = sum(r["trained"] for r in here)
        share = (sum(r["earned"] for r in here) - tried * span.low) / max(span.high - span.low, 1e-12)
        a, b, n = 1 + KEEP * (a - 1) + share, 1 + KEEP * (b - 1) + tried - share, n + tried
    return (a, b, n) if n else None


def _believed(
    belief: tuple[float, float, float], reward: np.ndarray, advantage: np.ndarray, out: np.ndarray, span: Span
) -> GroupReference:
    a, b, n = belief
    high = span.high if span.high > span.low else span.low + 1.0
    made = posterior_flip(reward, advantage, a, b, span.low, high)
    low, top = span.low + (high - span.low) * beta.quantile(np.array([0.025, 0.975]), a, b)
    labels = sign_flips(reward, advantage, made.reference_baseline).labels
    chance = np.where(np.isfinite(reward), made.flip_probability, np.nan)
    return _against("posterior", made.reference_baseline, low, top, n, labels, chance, out)


def _against(kind, value, low, high, n, labels, chance, out) -> GroupReference:
    labels, chance = np.where(out, "out of the loss", labels), np.where(out, np.nan, chance)
    return GroupReference(
        kind, float(value), float(low), float(high), float(n), tuple(labels.tolist()), tuple(chance.tolist())
    )
