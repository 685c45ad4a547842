"""VADE: fading Beta counts per prompt, and the prompts whose drawn information gain p(1-p)^2 is largest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics import beliefs
from workbench.numerics import beta as beta_law
from workbench.numerics.beliefs import Belief, DecayedCounts, check_counts, set_rows
from workbench.numerics.picks import largest
from workbench.stages import Card, Method
from workbench.types import Draft, Picked, Pool, Step

CARD = Card(
    slug="vade",
    title="VADE: variance-aware dynamic sampling via online difficulty estimation",
    arxiv="2511.18902",
    code="https://github.com/FloSophoraeX/VADE",
    source="notes",
    deviations=(
        "where the two decays apply is inferred (decay_placement), and so are their values 0.5 and 0.99: neither the "
        "paper's body nor the code could be read",
        "a prompt whose rollouts all failed to be scored counts as not rolled out",
    ),
    watch="observed success rates left of 0.5; evidence of visited against unvisited prompts; zero-spread groups",
)

Placement: TypeAlias = Literal["others", "all", "epoch"]


class Counts(NamedTuple):
    """Decayed counts of right and wrong rollouts, floats or (M,); the belief is Beta(alpha + 1, beta + 1)."""

    alpha: np.ndarray
    beta: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Mean of the belief."""
        return (self.alpha + 1) / (self.alpha + self.beta + 2)


def sample_update(
    alpha: ArrayLike, beta: ArrayLike, successes: ArrayLike, n: ArrayLike, lambda_sample: float = 0.5
) -> Counts:
    """Fast scale, for prompts just rolled out: alpha' = lambda_s alpha + s, beta' = lambda_s beta + n - s.

    s outside 0..n: ValueError."""
    check_counts(successes, n)
    alpha, beta, s, n = (np.asarray(v, float) for v in (alpha, beta, successes, n))
    return Counts(lambda_sample * alpha + s, lambda_sample * beta + (n - s))


def global_decay(alpha: ArrayLike, beta: ArrayLike, lambda_global: float = 0.99) -> Counts:
    """Slow scale: the counts (M,) relax to nothing, the belief to the uniform one."""
    return Counts(lambda_global * np.asarray(alpha, float), lambda_global * np.asarray(beta, float))


def step(
    alpha: ArrayLike,
    beta: ArrayLike,
    observed: Mapping[int, tuple[float, float]],
    lambda_sample: float = 0.5,
    lambda_global: float = 0.99,
    decay_placement: Placement = "others",
) -> Counts:
    """One step for all prompts (M,); observed maps a row to (successes, n) of the prompts just rolled out.

    decay_placement: others = the slow factor on all that were not rolled out; all = on every prompt, before the
    fast one; epoch = on none within an epoch."""
    rows = np.array([int(r) for r in observed], np.int64)
    s, n = np.array(list(observed.values()), float).reshape(-1, 2).T
    faded = global_decay(alpha, beta, lambda_global)
    plain = Counts(np.asarray(alpha, float), np.asarray(beta, float))
    before = faded if decay_placement == "all" else plain
    rest = plain if decay_placement == "epoch" else faded
    new = sample_update(before.alpha[rows], before.beta[rows], s, n, lambda_sample)
    return Counts(set_rows(rest.alpha, rows, new.alpha), set_rows(rest.beta, rows, new.beta))


def info_gain(p: ArrayLike) -> np.ndarray:
    """p (1 - p)^2, largest at p = 1/3: of two equally uncertain prompts the harder one is worth more."""
    p = np.asarray(p, float)
    return p * (1 - p) ** 2


def expected_info_gain(alpha: ArrayLike, beta: ArrayLike) -> np.ndarray:
    """E p(1-p)^2 under Beta(alpha + 1, beta + 1), exact: a b (b + 1) / ((a+b)(a+b+1)(a+b+2)); 1/12 when unseen."""
    a, b = np.asarray(alpha, float) + 1, np.asarray(beta, float) + 1
    return a * b * (b + 1) / ((a + b) * (a + b + 1) * (a + b + 2))


def select(draws: ArrayLike, batch_size: int) -> np.ndarray:
    """Positions of the batch_size largest gains of the drawn rates (M,); ties in candidate order.

    Raises ValueError where there are fewer candidates than places."""
    draws = np.asarray(draws, float)
    if batch_size > len(draws):
        raise ValueError(f"{batch_size} prompts cannot be chosen from {len(draws)} candidates")
    return largest(info_gain(draws), batch_size)


class Memory(NamedTuple):
    """counts of every prompt; visits = prompts rolled out since the last epoch end (decay_placement "epoch")."""

    counts: DecayedCounts
    visits: int


@dataclass(frozen=True)
class Vade(Method):
    """Beliefs forgotten on two time scales; the prompts with the largest drawn information gain are rolled out.

    lambda_sample fades the counts of a prompt when it is rolled out, lambda_global those of the others at every step.
    decay_placement: others; all = the slow factor on every prompt; epoch = the slow factor at the end of an epoch
    (as many visits as the pool has prompts), on the prompts visited in it. score: drawn (Thompson) or expected.
    """

    lambda_sample: float = 0.5
    lambda_global: float = 0.99
    decay_placement: Placement = "others"
    score: Literal["drawn", "expected"] = "drawn"

    card = CARD

    def __post_init__(self) -> None:
        if self.decay_placement not in get_args(Placement):
            raise ValueError(f"no decay_placement {self.decay_placement!r}; there are {', '.join(get_args(Placement))}")

    def init(self, pool: Pool) -> Memory:
        """No evidence on any prompt."""
        return Memory(DecayedCounts.empty(len(pool)), 0)

    def observe(self, state: Memory, step: Step) -> Memory:
        """Count the outcomes of the prompts rolled out; the fading of all others costs nothing, it is done on reading."""
        old = state.counts
        rows, solved, tried = step.evidence(len(old.alpha))
        visits = state.visits + len(rows)
        epoch = self.decay_placement == "epoch"
        tick = 0 if epoch else 1
        # "others": the step that rolls a prompt out does not also fade it
        skip = 1 if self.decay_placement == "others" else 0
        ticks = old.clock + tick - skip - old.touched[rows]
        fade = self.lambda_global ** (np.minimum(ticks, 1) if epoch else ticks).astype(float)
        new = sample_update(old.alpha[rows] * fade, old.beta[rows] * fade, solved, tried, self.lambda_sample)
        clock = old.clock + tick
        touched = set_rows(old.touched, rows, np.full(len(rows), clock, np.int64))
        if epoch and visits >= len(old.alpha):
            clock, visits = clock + 1, visits - len(old.alpha)
        counts = DecayedCounts(set_rows(old.alpha, rows, new.alpha), set_rows(old.beta, rows, new.beta), touched, clock)
        return Memory(counts, visits)

    def belief(self, state: Memory) -> Belief:
        """Beta(alpha + 1, beta + 1) of every prompt, faded to now."""
        at_most = 1 if self.decay_placement == "epoch" else None
        now = state.counts.read(self.lambda_global, at_most)
        return Belief(now.alpha + 1, now.beta + 1)

    def reveal(self, state: Memory) -> Mapping[str, np.ndarray]:
        """mean with its central 90 % interval, the belief's alpha and beta, evidence = faded rollouts counted, gain =
        expected information gain."""
        belief = self.belief(state)
        low, high = beta_law.interval(*belief)
        return {
            "mean": belief.mean,
            "low": low,
            "high": high,
            "alpha": belief.alpha,
            "beta": belief.beta,
            "evidence": belief.alpha + belief.beta - 2,
            "gain": expected_info_gain(belief.alpha - 1, belief.beta - 1),
        }

    def select(self, state: Memory, draft: Draft, rng: np.random.Generator) -> Picked:
        """The candidates with the largest gain, drawn over the whole pool so that every prompt keeps its own draw."""
        rows = draft.candidates()
        belief = self.belief(state)
        if self.score == "expected":
            gain = expected_info_gain(belief.alpha - 1, belief.beta - 1)
            return Picked.among(rows, largest(gain[rows], draft.wanted), gain=gain[rows])
        draws = beliefs.draw(*belief, rng)[rows]
        best = select(draws, min(draft.wanted, len(rows)))
        return Picked.among(rows, best, draw=draws, gain=info_gain(draws))
