"""ARRoL, early stopping of rollouts: a small head predicts success midway, and who is kept leaves the group mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.methods.arrol.heads import Head, learned, logit
from workbench.methods.arrol.pruning import bin_index, posterior, survival
from workbench.numerics.predictors import unit
from workbench.stages import Card, Checkpoint, Method
from workbench.types import Cut, Frontier, Pool, Ragged, Rollouts, Step

CARD = Card(
    slug="arrol",
    title="ARRoL: prune as you generate",
    arxiv="2603.24840",
    source="notes",
    deviations=(
        "features='hidden' is the paper's head, a layer of tanh on the hidden state at the look; its width, rate and scaling "
        "are ours, and it is learned by itself and not in the policy's loss. The default is a logistic regression on the mean "
        "and the least log-probability and the mean entropy of the first l_detect tokens, which every engine tells",
        "successes are answers that are correct, and two survivors of a group are protected; the propensity is the chance of the "
        "draw and leaves protection out, so it is no exact weight",
        "pruning is off until both outcomes were seen; the advantages are those of the estimator, over the survivors",
    ),
    watch="share of successes before and after pruning, reliability of q, tokens saved",
)

PASSES = 8
"""Gradient steps of the head for each step of the run."""

HIDDEN = "arrol.hidden"
"""What the hidden state is called under which a rollout was judged, in its scratch and in its row."""

Features: TypeAlias = Literal["logp", "hidden"]


class Quality(NamedTuple):
    """The head; pos, neg (B,) finished successes and failures by bin of their score when it was new; buffer of recent q;
    steps seen."""

    head: Head
    pos: np.ndarray
    neg: np.ndarray
    buffer: np.ndarray
    step: int


def logp_features(logp: Ragged, entropy: Ragged, l_detect: int) -> np.ndarray:
    """(B, 4) of the first l_detect tokens: one, mean and least log-probability, mean entropy; shorter rows use all."""
    out = np.ones((logp.n_rows, 4))
    for k in range(logp.n_rows):
        lp, h = logp.row(k)[:l_detect], entropy.row(k)[:l_detect]
        out[k, 1:] = (lp.mean(), lp.min(), h.mean()) if len(lp) else 0.0
    return out


def hidden_features(hidden: ArrayLike) -> np.ndarray:
    """(B, d + 1) one, and hidden states (B, d) scaled to length one: models differ in the size of theirs."""
    state = unit(np.asarray(hidden, float))
    return np.column_stack([np.ones(len(state)), state])


@dataclass(frozen=True)
class Arrol(Method):
    """A rollout of l_detect tokens goes on with a chance that leaves the survivors near rho successes.

    kappa: share that goes on; warmup: steps in which nothing is cut. features: what the head sees, "logp" or "hidden", the
    model's state where a rollout is judged; width of the layer above it. rate: of its gradient steps, None = 0.5, and 2
    above hidden states. Stands behind an estimator.
    """

    l_detect: int = 512
    kappa: float = 0.5
    rho: float = 0.5
    lambda_: float = 0.5
    p_min: float = 0.1
    p_max: float = 0.9
    n_bins: int = 128
    alpha: float = 1.0
    warmup: int = 20
    protect: int = 2
    rate: float | None = None
    features: Features = "logp"
    width: int = 128

    card = CARD

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """What the head sees."""
        return frozenset({"hidden"} if self.features == "hidden" else {"behaviour", "token_entropy"})

    def __post_init__(self) -> None:
        if not self.p_min <= self.kappa <= self.p_max or self.p_min <= 0:
            raise ValueError(f"kappa={self.kappa} must lie in p_min={self.p_min}..p_max={self.p_max}, p_min above 0")
        if self.features not in get_args(Features):
            raise ValueError(f"features={self.features!r}: the head sees {' or '.join(get_args(Features))}")

    @property
    def checkpoint(self) -> Checkpoint:
        """After l_detect tokens: a rollout is judged once."""
        hidden = self.features == "hidden"
        return Checkpoint(every=0, at=(self.l_detect,), hidden=hidden, keeps=(HIDDEN,) if hidden else ())

    def init(self, pool: Pool) -> Quality:
        """A head that knows nothing."""
        none = np.zeros(self.n_bins, np.int64)
        return Quality(Head(np.zeros(4)), none, none.copy(), np.empty(0), 0)

    def observe(self, state: Quality, step: Step) -> Quality:
        """Survivors teach the histogram, the buffer and the head: first how their scores came true, then the head itself, so
        that no outcome stands behind its own score."""
        rows, x = self._judged(step.rollouts)
        if not len(rows):
            return state._replace(step=step.step)
        y, head = (step.rollouts.correct[rows] > 0.5).astype(float), self._head(state, x)
        bins = bin_index(logit(head, x), self.n_bins)
        pos = state.pos + np.bincount(bins, y > 0, minlength=self.n_bins).astype(np.int64)
        neg = state.neg + np.bincount(bins, y == 0, minlength=self.n_bins).astype(np.int64)
        q = posterior(pos, neg, self.alpha, bins).q
        rate = (2.0 if self.features == "hidden" else 0.5) if self.rate is None else self.rate
        return Quality(learned(head, x, y, rate, PASSES), pos, neg, np.concatenate([state.buffer, q])[-512:], step.step)

    def _head(self, state: Quality, x: np.ndarray) -> Head:
        """The head, or a new one where it has not seen a hidden state before."""
        if self.features == "logp" or state.head.inner.size:
            return state.head
        return Head.of_width(x.shape[1], self.width)

    def _judged(self, r: Rollouts) -> tuple[np.ndarray, np.ndarray]:
        """Survivors with an outcome, rows (n,), and what the head saw of them (n, d)."""
        survived = r.plain & (r.finish != "pruned")
        nothing = np.empty(0, np.int64), np.empty((0, 0))
        if self.features == "hidden":
            state = r.extra.get(HIDDEN)
            if not isinstance(state, Ragged):
                return nothing
            known = np.array([len(h) > 0 and bool(np.isfinite(h).all()) for h in state.rows()], bool)
            rows = np.flatnonzero(survived & known)
            return (rows, hidden_features(np.stack([state.row(int(i)) for i in rows]))) if len(rows) else nothing
        if r.logp is None or r.entropy is None:
            return nothing
        rows = np.flatnonzero(survived & (r.length >= self.l_detect))
        return rows, logp_features(r.logp.take(rows), r.entropy.take(rows), self.l_detect)

    def prune(self, state: Quality, frontier: Frontier, rng: np.random.Generator) -> Cut:
        """Cut by chance at l_detect tokens. The propensity is that chance before protection, which revives rows: those go
        on more often than it says."""
        b = len(frontier)
        width, reason, chance = np.ones(b, np.int64), np.full(b, "", dtype=object), np.ones(b)
        uniform = rng.random(b)
        here = np.flatnonzero(frontier.due)
        memory = {HIDDEN: np.asarray(frontier.extra["hidden"], np.float32)} if self.features == "hidden" else {}
        known = state.step >= self.warmup and state.pos.sum() > 0 and state.neg.sum() > 0
        if not known or not len(here):
            return Cut(width, reason, chance, memory)
        if self.features == "hidden":
            x = hidden_features(memory[HIDDEN][here])
        else:
            x = logp_features(frontier.logp.take(here), frontier.entropy.take(here), self.l_detect)
        score = logit(self._head(state, x), x)
        q = posterior(state.pos, state.neg, self.alpha, bin_index(score, self.n_bins)).q
        keep = survival(state.buffer, q, self.kappa, self.rho, self.lambda_, self.p_min, self.p_max).keep_prob
        chance[here] = keep
        stop = uniform[here] >= keep
        for p in np.unique(frontier.prompt[here]):
            mine = np.flatnonzero(frontier.prompt[here] == p)
            alive = int((frontier.prompt == p).sum()) - int(stop[mine].sum())
            for k in mine[np.argsort(-keep[mine], kind="stable")]:
                if alive >= self.protect:
                    break
                if stop[k]:
                    stop[k], alive = False, alive + 1
        width[here[stop]], reason[here[stop]] = 0, "quality_head"
        figures = np.full(b, np.nan)
        figures[here] = q
        return Cut(width, reason, chance, memory, why={"q": figures})
