"""GDRO: prompts in bins by how often they were solved of late; gradient weight or rollouts go where an adversary wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.apportion import apportion, choose
from workbench.numerics.beliefs import set_rows
from workbench.stages import Card, Method
from workbench.types import Advantage, Draft, Plan, Pool, Step

CARD = Card(
    slug="gdro",
    title="GDRO: group distributionally robust optimization-driven RL for LLM reasoning",
    arxiv="2601.19280",
    code="https://github.com/kishanpb/verl-gdro",
    source="C*",
    deviations=(
        "signal='error' (1 - success rate) by default: with one optimiser step per batch the surrogate is -A, whose mean "
        "is 0 in every group, so that signal='surrogate', the paper's, never moves anything",
        "bins are each prompt's own; the code applies the bins of the batch before by position",
        "hysteresis works in both directions for all edges; with the code's bins of equal width a prompt never moves down",
        "sign='code' adds the loss to an arm's score, the paper subtracts it (sign='paper'); added errors, never negative, keep "
        "every bin at the arm that it pulled first, so take sign='paper' with signal='error'",
        "where no choice of arms meets the budget, rollouts are apportioned by the arms that come nearest, and no arm "
        "learns; the code overspends or underspends",
        "no KL term in the loss signal",
    ),
    watch="rollouts, weight and success by bin; entropy of the bin weights; mu, which stays at 0 where the budget is met",
)

Mode: TypeAlias = Literal["paper", "code"]

_PROB_FLOOR = 1e-12


# the classifier


def assign_bin_batch(acc: ArrayLike, edges: ArrayLike, exclude_extremes: bool = False) -> np.ndarray:
    """(M,) int64 bin of each accuracy: the number of edges at or below it. -1 at exactly 0 and 1 where those are out."""
    acc = np.asarray(acc, float)
    bins = np.searchsorted(np.asarray(edges, float), acc, side="right").astype(np.int64)
    return np.where((acc <= 0) | (acc >= 1), -1, bins) if exclude_extremes else bins


def move_bin(old: np.ndarray, acc: np.ndarray, edges: np.ndarray, hysteresis: float) -> np.ndarray:
    """(M,) bins after new accuracies: a prompt leaves its bin only past the edge by the margin; old -1 = none yet."""
    new = assign_bin_batch(acc, edges)
    edge = np.append(edges, np.inf)[np.minimum(np.maximum(old, 0), new)]
    stays = np.where(new > old, acc < edge + hysteresis, acc > edge - hysteresis)
    return np.where((old >= 0) & (new != old) & stays, old, new)


# weights of prompts


def mean_losses(loss: np.ndarray, bin_: np.ndarray, n_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """(B,) mean loss, 0 for none, and (B,) number of the responses of each bin; loss, bin_ (R,), -1 = outside the bins."""
    inside = bin_ >= 0
    count = np.bincount(bin_[inside], minlength=n_bins)
    return np.bincount(bin_[inside], loss[inside], minlength=n_bins) / np.maximum(count, 1), count


def ema_update(
    score: np.ndarray, mean: np.ndarray, count: np.ndarray, beta: float = 0.12, share_normalise: bool = True
) -> np.ndarray:
    """Scores (B,) of bins after a step: (1 - beta) S + beta m, or m where the bin is new, NaN; eq. 14.

    mean loss (B,) of count (B,) responses. share_normalise divides a bin's mean by its share of responses. Bins without a
    response keep their score."""
    shared = mean / np.where(share_normalise & (count > 0), count / max(count.sum(), 1), 1.0)
    blended = np.where(np.isnan(score), shared, (1 - beta) * score + beta * shared)
    return np.where(count > 0, blended, score)


class BinWeights(NamedTuple):
    """omega (B,) exponential weight, q (B,) mixture with the uniform law over the bins given."""

    omega: np.ndarray
    q: np.ndarray


def exponential(score: np.ndarray, eta: float, gamma: float) -> BinWeights:
    """omega = exp(eta S), q = (1 - gamma) omega / sum omega + gamma / B, along the last axis; a NaN score counts 0."""
    with np.errstate(over="ignore"):
        omega = np.exp(eta * np.nan_to_num(score))
    relative = np.exp(eta * (np.nan_to_num(score) - np.nan_to_num(score).max(axis=-1, keepdims=True, initial=-np.inf)))
    n = max(score.shape[-1], 1)
    return BinWeights(omega, (1 - gamma) * relative / relative.sum(axis=-1, keepdims=True) + gamma / n)


class SampleWeights(NamedTuple):
    """Weight of every response (R,), by the paper and by the released code."""

    paper: np.ndarray
    code: np.ndarray


def sample_weights(omega: ArrayLike, q: ArrayLike, sample_bins: ArrayLike, max_weight: float = 15.0) -> SampleWeights:
    """paper: min(omega, max_weight). code: min(q, max_weight), rescaled to a batch mean of 1, capped again.

    omega, q (B,); sample_bins (R,) positions in them, -1 = outside the bins, weight 1."""
    at = np.asarray(sample_bins, np.int64)
    inside = at >= 0
    paper, code = np.ones(len(at)), np.ones(len(at))
    paper[inside] = np.minimum(np.asarray(omega, float)[at[inside]], max_weight)
    mixed = np.minimum(np.asarray(q, float)[at[inside]], max_weight)
    code[inside] = np.minimum(mixed / (mixed.mean() if inside.any() else 1.0), max_weight)
    return SampleWeights(paper, code)


# rollouts of prompts


class ChosenArms(NamedTuple):
    """arm_probs (B, A); chosen: rollouts per prompt of each bin, None for an empty bin; sum = what they spend."""

    arm_probs: np.ndarray
    chosen: list[int | None]
    sum: int


def choose_arms(
    counts: ArrayLike, arm_scores: ArrayLike, arms: ArrayLike, total: int, eta: float = 0.65, gamma: float = 0.01
) -> ChosenArms:
    """One group size for every bin: the likeliest under P_b = (1 - gamma) softmax(eta R_b) + gamma / A that spends total.

    counts (B,) prompts of each bin, arm_scores (B, A), arms (A,). Where total cannot be met, the nearest sum."""
    counts, arms = np.asarray(counts, np.int64), np.asarray(arms, np.int64)
    probs = exponential(np.asarray(arm_scores, float).reshape(len(counts), len(arms)), eta, gamma).q
    got = choose(np.log(np.maximum(probs, _PROB_FLOOR)), counts, arms, total)
    chosen = [int(arms[a]) if c else None for a, c in zip(got.chosen, counts, strict=True)]
    return ChosenArms(probs, chosen, got.sum)


class ArmScores(NamedTuple):
    """Scores of one bin's arms (A,) after a step, by the code's sign and by the paper's."""

    code: np.ndarray
    paper: np.ndarray


def arm_score_update(
    scores: ArrayLike, arms: ArrayLike, n_b: int, mean_loss: float, mu: float, n_bar: float
) -> ArmScores:
    """Only the arm n_b that was pulled moves: code R + m - mu (n_b - n_bar), paper R - m - mu n_b.

    Raises ValueError where n_b is no arm."""
    r, pulled = np.asarray(scores, float), np.asarray(arms, np.int64) == n_b
    if not pulled.any():
        raise ValueError(f"{n_b} rollouts are no arm; there are {np.asarray(arms).tolist()}")
    return ArmScores(r + pulled * (mean_loss - mu * (n_b - n_bar)), r + pulled * (-mean_loss - mu * n_b))


def dual_update(mu: float, realized_mean: float, n_bar: float, lr: float = 0.05) -> float:
    """The price of a rollout after a step: mu + lr (mean rollouts per prompt - n_bar)."""
    return mu + lr * (realized_mean - n_bar)


# the method


class Bins(NamedTuple):
    """history (N, H/8) uint8 bits, a ring of H marks; seen (N,) int64 marks ever made; accuracy (N,); bin (N,) int64.

    score (B,) NaN = bin never seen; arm_score, pulls (B, A); mu the price of a rollout."""

    history: np.ndarray
    seen: np.ndarray
    accuracy: np.ndarray
    bin: np.ndarray
    score: np.ndarray
    arm_score: np.ndarray
    pulls: np.ndarray
    mu: float

    def marked(self, rows: np.ndarray, right: np.ndarray, window: int, edges: np.ndarray, margin: float) -> Bins:
        """With one mark more for prompts `rows` (K,): whether any of its rollouts was right (K,) bool.

        accuracy is the share of right marks among the latest `window`; bins move by edges and margin, as `move_bin` does."""
        bits = np.unpackbits(self.history[rows], axis=1)[:, :window]
        bits[np.arange(len(rows)), self.seen[rows] % window] = right
        seen = self.seen[rows] + 1
        acc = bits.sum(axis=1) / np.minimum(seen, window)
        before = np.where(self.seen[rows] > 0, self.bin[rows], -1)
        return self._replace(
            history=set_rows(self.history, rows, np.packbits(bits, axis=1)),
            seen=set_rows(self.seen, rows, seen),
            accuracy=set_rows(self.accuracy, rows, acc),
            bin=set_rows(self.bin, rows, move_bin(before, acc, edges, margin)),
        )


@dataclass(frozen=True)
class Gdro(Method):
    """Weights (controller="prompt") or group sizes (controller="rollout") by bins of recent solve rates; not both.

    window marks per prompt: 100, or 50 for rollouts; hysteresis: 0.03, or none for rollouts. edges: (0.4, 0.75) with
    exclude_extremes for three bins. n_min to n_max are the group sizes to choose from; a budget whose mean lies outside
    is spread evenly, and with few prompts the even split may be the only exact one. signal: error = 1 - correct;
    surrogate = -advantage. mode: which weights (see sample_weights).
    """

    controller: Literal["prompt", "rollout"] = "prompt"
    edges: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8, 0.9)
    window: int | None = None
    hysteresis: float | None = None
    exclude_extremes: bool = False
    signal: Literal["error", "surrogate"] = "error"
    mode: Mode = "paper"
    sign: Mode = "code"
    eta: float = 0.65
    gamma: float = 0.01
    beta: float = 0.12
    share_normalise: bool = True
    max_weight: float = 15.0
    n_min: int = 2
    n_max: int = 12
    lr: float = 0.05

    card = CARD

    def __post_init__(self) -> None:
        if self.controller not in ("prompt", "rollout"):
            raise ValueError(f"no controller {self.controller!r}; there are prompt, rollout")
        if list(self.edges) != sorted(set(self.edges)) or not self.edges:
            raise ValueError(f"edges must rise, got {self.edges}")
        if not 1 < self.n_min <= self.n_max:
            raise ValueError(f"group sizes go from 2 or more up, got {self.n_min} to {self.n_max}")
        for value in (self.mode, self.sign):
            if value not in get_args(Mode):
                raise ValueError(f"no mode {value!r}; there are {', '.join(get_args(Mode))}")

    @property
    def verbs(self) -> tuple[str, ...]:
        """Estimate or allocate, by the controller."""
        return ("estimate",) if self.controller == "prompt" else ("allocate",)

    def init(self, pool: Pool) -> Bins:
        """Nothing seen: every prompt in the lowest bin, every arm alike."""
        n, b, a = len(pool), len(self.edges) + 1, self.n_max - self.n_min + 1
        history = np.zeros((n, -(-self._window // 8)), np.uint8)
        none = np.zeros((b, a))
        return Bins(
            history,
            np.zeros(n, np.int64),
            np.zeros(n),
            np.zeros(n, np.int64),
            np.full(b, np.nan),
            none,
            none.copy(),
            0.0,
        )

    @property
    def _window(self) -> int:
        return self.window or (100 if self.controller == "prompt" else 50)

    @property
    def _margin(self) -> float:
        return (0.03 if self.controller == "prompt" else 0.0) if self.hysteresis is None else self.hysteresis

    def _bin(self, state: Bins, rows: np.ndarray) -> np.ndarray:
        """(K,) bin of prompts before the step, -1 where extremes are out."""
        extreme = self.exclude_extremes & ((state.accuracy[rows] <= 0) | (state.accuracy[rows] >= 1))
        return np.where(extreme, -1, state.bin[rows])

    def observe(self, state: Bins, step: Step) -> Bins:
        """Scores of bins and arms by the losses of the step, under the bins from before it; then every prompt's mark."""
        r = step.rollouts
        rows = r.plain & (r.ask >= 0)
        bin_ = self._bin(state, r.prompt[rows])
        loss = 1 - r.correct[rows] if self.signal == "error" else -_per_rollout(step.advantage)[rows]
        mean, count = mean_losses(loss, bin_, len(state.score))
        state = state._replace(score=ema_update(state.score, mean, count, self.beta, self.share_normalise))
        rows, solved, _ = step.evidence(len(state.seen))
        state = self._pull(state, step.plan, mean, count > 0)
        return state.marked(rows, solved > 0, self._window, np.array(self.edges), self._margin)

    def _pull(self, state: Bins, plan: Plan, mean_loss: np.ndarray, seen: np.ndarray) -> Bins:
        """Scores of the arms that this method chose in the step, and the price of a rollout."""
        if "gdro_arm" not in plan.notes:
            return state
        bin_, arm, wanted = (plan.notes[name] for name in ("gdro_bin", "gdro_arm", "gdro_n_bar"))
        asked = np.flatnonzero(np.isfinite(arm))
        if not len(asked):
            return state
        n_bar = float(wanted[asked[0]])
        score, pulls = state.arm_score.copy(), state.pulls.copy()
        bins, first = np.unique(bin_[asked].astype(np.int64), return_index=True)
        for b, n_b in zip(bins, arm[asked[first]].astype(np.int64), strict=True):
            if b >= 0 and seen[b]:
                both = arm_score_update(score[b], self._arms, int(n_b), float(mean_loss[b]), state.mu, n_bar)
                score[b] = both.code if self.sign == "code" else both.paper
                pulls[b, n_b - self.n_min] += 1
        realised = float(arm[asked].mean())
        return state._replace(arm_score=score, pulls=pulls, mu=dual_update(state.mu, realised, n_bar, self.lr))

    @property
    def _arms(self) -> np.ndarray:
        return np.arange(self.n_min, self.n_max + 1)

    def reveal(self, state: Bins) -> Mapping[str, np.ndarray]:
        """mean = share of recent groups with a success, low and high = its bin's edges (all of 0..1 while unseen); bin,
        seen, the bin's weight, and the mean group size that its arms ask for."""
        edges = np.concatenate([[0.0], self.edges, [1.0]])
        unseen = state.seen == 0
        probs = exponential(state.arm_score, self.eta, self.gamma).q
        omega = np.minimum(exponential(state.score, self.eta, self.gamma).omega, self.max_weight)
        return {
            "mean": state.accuracy,
            "low": np.where(unseen, 0.0, np.minimum(edges[state.bin], state.accuracy)),
            "high": np.where(unseen, 1.0, np.maximum(edges[state.bin + 1], state.accuracy)),
            "bin": state.bin.astype(float),
            "seen": state.seen.astype(float),
            "weight": omega[state.bin],
            "rollouts": (probs @ self._arms)[state.bin],
        }

    def estimate(self, state: Bins, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Multiply what each kept rollout weighs by the weight of its prompt's bin."""
        bin_ = self._bin(state, draft.rollouts.prompt[advantage.keep])
        present = np.unique(bin_[bin_ >= 0])
        weights = exponential(state.score[present], self.eta, self.gamma)
        at = np.where(bin_ >= 0, np.searchsorted(present, bin_), -1)
        both = sample_weights(weights.omega, weights.q, at, self.max_weight)
        weight = advantage.weight.copy()
        weight[advantage.keep] *= both.paper if self.mode == "paper" else both.code
        return replace(advantage, weight=weight)

    def allocate(self, state: Bins, draft: Draft, rng: np.random.Generator) -> Plan:
        """One group size for every bin present, so that the budget is met; prompts outside the bins get the mean."""
        fresh = draft.fresh
        share = round(draft.budget.rollouts * len(fresh) / draft.budget.prompts)
        bin_ = self._bin(state, fresh)
        n_bar = share / max(len(fresh), 1)
        n, arm = self._sizes(state, bin_, share, n_bar)
        why = {"gdro_bin": bin_.astype(float), "gdro_arm": arm, "gdro_n_bar": np.full(len(fresh), n_bar)}
        before = {} if draft.plan is None else draft.plan.notes  # of the step's earlier rounds
        notes = {name: np.concatenate([before.get(name, []), column]) for name, column in why.items()}
        return Plan(fresh, n, why=why, notes=notes)

    def _sizes(self, state: Bins, bin_: np.ndarray, share: int, n_bar: float) -> tuple[np.ndarray, np.ndarray]:
        """(rollouts, arm) of each prompt; arm is NaN where the budget could not be met by arms alone."""
        none = np.full(len(bin_), np.nan)
        equal = apportion(np.ones(len(bin_)), share) if len(bin_) else bin_
        if not self.n_min <= n_bar <= self.n_max:
            return equal, none
        n, inside = equal.copy(), bin_ >= 0
        counts = np.bincount(bin_[inside], minlength=len(state.score))
        got = choose_arms(counts, state.arm_score, self._arms, int(equal[inside].sum()), self.eta, self.gamma)
        size = np.array([c or 0 for c in got.chosen])
        n[inside] = size[bin_[inside]]
        if int(n.sum()) == share:
            return n, np.where(inside, n, np.nan)
        n[inside] = apportion(n[inside], int(equal[inside].sum()), floor=min(self.n_min, int(equal.min())))
        return n, none


def _per_rollout(advantage: Advantage) -> np.ndarray:
    """(R,) one advantage each, the mean over tokens where there are token advantages."""
    return advantage.value if advantage.tokens is None else np.nan_to_num(advantage.tokens.mean())
