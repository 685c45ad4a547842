"""MSSR: one rollout per prompt, compared with a Beta tracker of its success rate, and a bonus shaped by entropy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics import beta as beta_law
from workbench.numerics.picks import largest
from workbench.stages import Card, Effect, Method
from workbench.types import Advantage, Draft, Picked, Pool, Ragged, Rollouts, Step

CARD = Card(
    slug="mssr",
    title="MSSR: stable and efficient single-rollout RL for multimodal reasoning",
    arxiv="2512.18215",
    code="https://github.com/ruiiu/MSSR",
    source="C*",
    deviations=(
        "no pass over the data before training: every prompt begins at v_init, tracker_init takes outcomes where there are",
        "rule='author' forgets fastest at KL 0 and jumps at the target, in paper and code alike (the code's comment says "
        "the opposite); rule='monotone' is this project's",
        "mode='code' takes -p log p of the sampled token for the entropy, as the code does",
        "rollouts without recorded entropies (simulation) get no bonus; the loss is that of the estimator before it, "
        "without the KL term of 0.01",
        "rewards between 0 and 1 are thresholded for the tracker and raw in the advantage: the baseline is then biased",
        "one rate of forgetting for all prompts; the paper's is each prompt's own, from the KL on its last trajectory",
    ),
    watch="the value against the success rate, rho and KL over steps, share of tokens whose bonus is capped, entropy",
)

Rule: TypeAlias = Literal["author", "monotone"]
_WINDOW = 20


class TrackerInit(NamedTuple):
    """n0 = 1 / (1 - rho_min) rollouts that a first look counts as; alpha, beta (P,)."""

    n0: float
    alpha: np.ndarray
    beta: np.ndarray


def tracker_init(outcomes: Sequence[ArrayLike | None], rho_min: float = 0.875, v_init: float = 0.5) -> TrackerInit:
    """alpha = n0 v, beta = n0 (1 - v), with v the mean of each prompt's first outcomes, v_init where it has none.

    outcomes: P lists, or None. A prompt all right or all wrong gets a Beta with a 0 in it, legal here."""
    n0 = 1 / (1 - rho_min)
    seen = [np.empty(0) if o is None else np.asarray(o, float).ravel() for o in outcomes]
    seen = [o[np.isfinite(o)] for o in seen]
    v = np.array([o.mean() if len(o) else v_init for o in seen])
    return TrackerInit(n0, n0 * v, n0 * (1 - v))


def adaptive_rho(
    kl_history: ArrayLike,
    target_kl: float = 0.01,
    rho_min: float = 0.875,
    rho_max: float = 0.96,
    window: int = _WINDOW,
    rule: Rule = "author",
) -> float:
    """How much the tracker keeps of itself, from the mean KL of the last `window` batches over the target, x.

    author: rho_min + x (rho_max - rho_min) up to x = 1, rho_min above. monotone: rho_max - min(x, 1) (rho_max - rho_min).
    Without a history: the middle."""
    if rule not in get_args(Rule):
        raise ValueError(f"no rule {rule!r}; there are {', '.join(get_args(Rule))}")
    recent = np.asarray(kl_history, float)[-window:] if window > 0 else np.empty(0)
    if not len(recent):
        return (rho_min + rho_max) / 2
    x = float(recent.mean()) / target_kl
    if rule == "monotone":
        return rho_max - min(x, 1.0) * (rho_max - rho_min)
    return rho_min + x * (rho_max - rho_min) if x <= 1 else rho_min


def tracker_value(alpha: ArrayLike, beta: ArrayLike, v_init: float = 0.5) -> np.ndarray:
    """alpha / (alpha + beta), (P,); v_init where both are 0."""
    alpha, total = np.asarray(alpha, float), np.asarray(alpha, float) + np.asarray(beta, float)
    return np.where(total > 0, alpha / np.where(total > 0, total, 1.0), v_init)


def folded(
    alpha: np.ndarray, beta: np.ndarray, prompt: np.ndarray, y: np.ndarray, rho: float
) -> tuple[np.ndarray, np.ndarray]:
    """alpha <- rho alpha + y, beta <- rho beta + 1 - y for K outcomes y of any prompts, those of the same prompt in order:
    (alpha, beta), (N,) each."""
    k = len(prompt)
    order = np.argsort(prompt, kind="stable")
    n = np.bincount(prompt, minlength=len(alpha))
    later = np.empty(k)  # outcomes of the same prompt that come after this one
    later[order] = np.cumsum(n)[prompt[order]] - np.arange(k) - 1
    weight, kept = rho**later, rho**n
    solved = np.bincount(prompt, weight * y, minlength=len(alpha))
    failed = np.bincount(prompt, weight * (1 - y), minlength=len(alpha))
    return kept * alpha + solved, kept * beta + failed


def whitened(rewards: ArrayLike, values: ArrayLike) -> np.ndarray:
    """(B,) r - v, centred and divided by sqrt(max(population variance, 1e-6)); a batch of one stays raw, nulls get 0."""
    raw = np.asarray(rewards, float) - np.asarray(values, float)
    scored = np.isfinite(raw)
    seen = raw[scored]
    if len(seen) > 1:
        # by range: the float variance of equal values is not 0
        spread = seen.max() > seen.min()
        seen = (seen - seen.mean()) / np.sqrt(max(seen.var(), 1e-6)) if spread else np.zeros(len(seen))
    out = np.zeros(len(raw))
    out[scored] = seen
    return out


def sampling_weights(alpha: ArrayLike, beta: ArrayLike) -> np.ndarray:
    """sqrt(v (1 - v)) + 1e-6, (P,): the optional curriculum."""
    v = tracker_value(alpha, beta)
    return np.sqrt(v * (1 - v)) + 1e-6


class Tracker(NamedTuple):
    """alpha, beta, visits (N,) float64, last_step (N,) int64, 0 = never; kl (<= 20,) mean KL of the latest batches."""

    alpha: np.ndarray
    beta: np.ndarray
    visits: np.ndarray
    last_step: np.ndarray
    kl: np.ndarray


@dataclass(frozen=True)
class Mssr(Method):
    """Advantages against the tracked success rate of a prompt, whitened over the batch, with an entropy bonus.

    Meant for one rollout per prompt: Budget(prompts=128, rollouts=128). curriculum draws prompts by sqrt(v (1 - v)).
    Stands behind the estimator it replaces: Pipeline(Grpo(), Mssr()).
    """

    rho_min: float = 0.875
    rho_max: float = 0.96
    target_kl: float = 0.01
    v_init: float = 0.5
    lam: float = 0.4
    gamma: float = 2.0
    rule: Rule = "author"
    mode: Literal["paper", "code"] = "paper"
    curriculum: bool = False

    card = CARD
    effects = frozenset({Effect.REPLACES_ADVANTAGES})
    acts_if: ClassVar[Mapping[str, str]] = {"select": "curriculum"}

    def init(self, pool: Pool) -> Tracker:
        """Every prompt at v_init, worth n0 rollouts."""
        n = len(pool)
        first = tracker_init([None], self.rho_min, self.v_init)
        return Tracker(
            np.full(n, first.alpha[0]), np.full(n, first.beta[0]), np.zeros(n), np.zeros(n, np.int64), np.empty(0)
        )

    def observe(self, state: Tracker, step: Step) -> Tracker:
        """Note the batch's KL, then count its outcomes with the forgetting that follows from the KL."""
        kl = state.kl
        if np.isfinite(float(step.update.get("kl", np.nan))):
            kl = np.append(kl, float(step.update["kl"]))[-_WINDOW:]
        rho = adaptive_rho(kl, self.target_kl, self.rho_min, self.rho_max, rule=self.rule)
        r = step.rollouts
        seen = r.plain & (r.ask >= 0) & np.isfinite(r.reward)
        prompt, y = r.prompt[seen], (r.reward[seen] > 0.5).astype(float)
        alpha, beta = folded(state.alpha, state.beta, prompt, y, rho)
        last = state.last_step.copy()
        last[prompt] = step.step
        return Tracker(alpha, beta, state.visits + np.bincount(prompt, minlength=len(alpha)), last, kl)

    def reveal(self, state: Tracker) -> Mapping[str, np.ndarray]:
        """mean = the value with the central 90 % interval of its Beta; window = alpha + beta; visits = rollouts seen."""
        mean = tracker_value(state.alpha, state.beta, self.v_init)
        low, high = beta_law.interval(np.maximum(state.alpha, 0.05), np.maximum(state.beta, 0.05))
        window = state.alpha + state.beta
        return {
            "mean": mean,
            "low": np.minimum(low, mean),
            "high": np.maximum(high, mean),
            "window": window,
            "visits": state.visits,
        }

    def select(self, state: Tracker, draft: Draft, rng: np.random.Generator) -> Picked:
        """Prompts drawn without replacement by sqrt(v (1 - v)) + 1e-6."""
        rows = draft.candidates()
        noise = rng.gumbel(size=len(state.alpha))[rows]
        weight = sampling_weights(state.alpha[rows], state.beta[rows])
        v = tracker_value(state.alpha[rows], state.beta[rows], self.v_init)
        return Picked.among(rows, largest(np.log(weight) + noise, draft.wanted), v=v, weight=weight)

    def estimate(self, state: Tracker, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Replace the advantages of the kept rollouts; the baseline is the value before this step's outcomes."""
        r = draft.rollouts
        v = tracker_value(state.alpha, state.beta, self.v_init)[r.prompt]
        value = whitened(np.where(advantage.keep, r.reward, np.nan), v)
        entropy = self._entropy(r)
        tokens = None
        if entropy is not None:
            row = np.repeat(np.arange(len(r)), entropy.lengths)
            psi = np.minimum(self.lam * entropy.values, np.abs(value[row]) / self.gamma)
            tokens = Ragged(value[row] + psi, entropy.offsets)
        return replace(advantage, value=value, baseline=np.where(advantage.keep, v, np.nan), tokens=tokens)

    def _entropy(self, rollouts: Rollouts) -> Ragged | None:
        if self.mode == "paper" or rollouts.logp is None:
            return rollouts.entropy if self.mode == "paper" else None
        logp = rollouts.logp.values.astype(float)
        return Ragged(-np.exp(logp) * logp, rollouts.logp.offsets)
