"""ADHint: failing prompts are tried again behind a part of their reference solution, as long as they are hard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import floor
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.hints import Ask, references, with_asks
from workbench.numerics.roles import hint_lengths
from workbench.stages import Card, Effect, Method
from workbench.types import Advantage, Draft, Plan, Pool, Ragged, Step, Text

CARD = Card(
    slug="adhint",
    title="ADHint: adaptive hints with difficulty priors",
    arxiv="2512.13095",
    source="notes",
    deviations=(
        "bounds of the ratio, the noise, the exact forms of the entropy gate and of the re-weighting are ours: the paper's are not known",
        "a hint is cut between words: a method sees no tokenizer",
        "hint tokens that the selective mask leaves out stay in the loss's means over tokens, as tokens of advantage 0",
        "the hinted half of a prompt that its plain half solved is not asked at all; where the ratio shows no word, as of "
        "references of two, that half is asked plainly, and references of one word are never shown",
    ),
    unspent="prompts solved without help, and those whose plain rollouts nobody could score, get no hinted rollouts",
    watch="hint ratio against difficulty, success of plain and of hinted rollouts, which hint tokens have an advantage",
)


class Ratio(NamedTuple):
    """difficulty = 1 - mean reward; ratio = share of the reference shown."""

    difficulty: float
    ratio: float


def hint_ratio(naive_rewards: ArrayLike, w_min: float = 0.1, w_max: float = 0.9, noise: float = 0.0) -> Ratio:
    """Share of the reference to show after naive rewards (n,) in 0..1: w_min for solved, w_max for hopeless prompts.

    Raises ValueError without rewards or with one outside 0..1."""
    reward = np.asarray(naive_rewards, float)
    if not len(reward) or not ((reward >= 0) & (reward <= 1)).all():
        raise ValueError(f"a difficulty needs rewards in 0..1, one at least; got {reward.tolist()}")
    difficulty = 1 - float(reward.mean())
    return Ratio(difficulty, float(np.clip(w_min + (w_max - w_min) * difficulty + noise, 0, 1)))


def hint_tokens(ratio: float, reference_length: int) -> int:
    """floor(ratio x length), never all of the reference; 0.7 x 10 is 7 in spite of rounding."""
    return max(min(floor(ratio * reference_length + 1e-9), reference_length - 1), 0)


def selective_mask(hint_lengths: ArrayLike, lengths: ArrayLike, advantages: ArrayLike) -> np.ndarray:
    """(B, T) int, T the longest rollout: 0 on padding and on the hint tokens of rollouts with a negative advantage."""
    hint, length = np.asarray(hint_lengths, np.int64), np.asarray(lengths, np.int64)
    at = np.arange(int(length.max(initial=0)))
    inside = at < length[:, None]
    masked = (at < hint[:, None]) & (np.asarray(advantages, float)[:, None] < 0)
    return (inside & ~masked).astype(np.int64)


def entropy_gate(entropy: ArrayLike, hint_length: int, eps: float = 1e-8) -> np.ndarray:
    """(T,) weights: of a hint token by how near its entropy is to the mean of the rollout's own tokens, 1 elsewhere."""
    h = np.asarray(entropy, float)
    own = h[hint_length:]
    weights = np.ones(len(h))
    if len(own):
        mean = own.mean()
        hint = h[:hint_length]
        weights[:hint_length] = (np.minimum(hint, mean) + eps) / (np.maximum(hint, mean) + eps)
    return weights


class Reweighted(NamedTuple):
    """gap = how much hints lowered the difficulty; advantages (n_naive + n_hint,)."""

    gap: float
    advantages: np.ndarray


def difficulty_reweighted_advantages(
    naive_rewards: ArrayLike, hint_rewards: ArrayLike, eps: float = 1e-6
) -> Reweighted:
    """GRPO over both kinds (one degree of freedom less), success without and failure with help counted 1 + gap times."""
    naive, hinted = np.asarray(naive_rewards, float), np.asarray(hint_rewards, float)
    reward = np.concatenate([naive, hinted])
    gap = 0.0
    if len(naive) and len(hinted):
        gap = max(float(hinted.mean() - naive.mean()), 0.0)
    if not len(reward) or reward.max() == reward.min():
        return Reweighted(gap, np.zeros(len(reward)))
    value = (reward - reward.mean()) / (reward.std(ddof=1) + eps)
    own = np.arange(len(reward)) < len(naive)
    dear = (own & (value > 0)) | (~own & (value < 0))
    return Reweighted(gap, np.where(dear, value * (1 + gap), value))


class Seen(NamedTuple):
    """Of every prompt, (N,): its reference, the last hint ratio and difficulty (NaN before the first visit)."""

    reference: np.ndarray
    ratio: np.ndarray
    difficulty: np.ndarray


@dataclass(frozen=True)
class Adhint(Method):
    """Half of every group plain, the other half behind a part of the reference that grows with the difficulty.

    Needs the pool's extra column "reference"; prompts without one of two words at least keep their whole group plain.
    Rewards above 1 count as 1 and negative ones as 0 for the difficulty. train_hints: the tokens of a hint are learned
    too, at ratio 1, where its rollout did well, and the less the farther their entropy is from that of the rollout's own;
    else they are context only. Stands behind an estimator: Pipeline(Grpo(), Adhint()).
    """

    w_min: float = 0.1
    w_max: float = 0.9
    noise: float = 0.0
    train_hints: bool = True

    card = CARD
    effects = frozenset({Effect.ADDS_HINTS, Effect.COMPARES_CONTEXTS, Effect.DEFERS_ROLLOUTS})

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """References, and where hints are trained their tokens in the rows, and the entropy of all."""
        return frozenset({"reference", "hint_tokens", "token_entropy"} if self.train_hints else {"reference"})

    def init(self, pool: Pool) -> Seen:
        """References of the pool; nothing seen."""
        return Seen(references(pool), np.full(len(pool), np.nan), np.full(len(pool), np.nan))

    def observe(self, state: Seen, step: Step) -> Seen:
        """Remember difficulty and ratio of the prompts that were rolled out plainly."""
        rows, solved, tried = step.evidence(len(state.ratio))
        difficulty, ratio = state.difficulty.copy(), state.ratio.copy()
        difficulty[rows] = 1 - solved / tried
        ratio[rows] = np.clip(self.w_min + (self.w_max - self.w_min) * difficulty[rows], 0, 1)
        return Seen(state.reference, ratio, difficulty)

    def reveal(self, state: Seen) -> Mapping[str, np.ndarray]:
        """mean = the last plain success rate (a half before the first visit), and the hint ratio."""
        seen = np.isfinite(state.difficulty)
        mean = np.where(seen, 1 - state.difficulty, 0.5)
        return {
            "mean": mean,
            "low": np.where(seen, mean, 0.0),
            "high": np.where(seen, mean, 1.0),
            "ratio": np.nan_to_num(state.ratio),
        }

    def amend(self, state: Seen, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """Hold half of each group back; once its plain half is scored, ask for the rest behind the hint."""
        rows = np.flatnonzero(plan.is_plain & (plan.n > 1))
        rows = rows[[len(str(text).split()) > 1 for text in state.reference[plan.prompt[rows]]]]
        plan = plan.defer(self.name, rows, plan.n[rows] // 2)
        asks, r = [], draft.rollouts
        for a, k in zip(*draft.deferred(self.name), strict=True):
            p = int(draft.plan.prompt[a])
            mine = (r.prompt == p) & (r.context == "") & (r.purpose == "train") & np.isfinite(r.reward)
            rewards = np.clip(r.reward[mine], 0, 1)
            if not len(rewards) or rewards.mean() >= 1 - 1e-9:  # a reward of 0.7 + 0.2 + 0.1 is full
                continue
            noise = self.noise * rng.standard_normal() if self.noise else 0.0
            ratio = hint_ratio(rewards, self.w_min, self.w_max, noise).ratio
            words = str(state.reference[p]).split()
            shown = hint_tokens(ratio, len(words))
            hint = (Text(" ".join(words[:shown]) + " "), f"adhint:{shown}") if shown else (None, "")
            asks.append(Ask(p, int(k), *hint, {"hint_ratio": ratio}))
        return with_asks(plan, asks)

    def estimate(self, state: Seen, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Advantages over plain and hinted rollouts of a prompt together, re-weighted by what the hints gained; those of
        hint tokens are masked and gated."""
        rollouts = draft.rollouts
        hinted = np.array([c.startswith("adhint") for c in rollouts.context], bool)
        value, baseline, touched = advantage.value.copy(), advantage.baseline.copy(), np.zeros(len(rollouts), bool)
        for p in np.unique(rollouts.prompt[hinted & advantage.keep]):
            mine = advantage.keep & (rollouts.prompt == p)
            plain, helped = np.flatnonzero(mine & (rollouts.context == "")), np.flatnonzero(mine & hinted)
            made = difficulty_reweighted_advantages(rollouts.reward[plain], rollouts.reward[helped])
            both = np.concatenate([plain, helped])
            value[both] = made.advantages
            baseline[both] = rollouts.reward[both].mean()
            touched[both] = True
        advantage = advantage.revalued(touched, value, baseline)
        lead = hint_lengths(rollouts)
        if not (self.train_hints and lead.any() and rollouts.role is not None and rollouts.entropy is not None):
            return advantage
        mask = selective_mask(lead, rollouts.role.lengths, value)
        before = advantage.tokens
        tokens = np.repeat(value, rollouts.role.lengths) if before is None else before.values.copy()
        for k in np.flatnonzero(lead).tolist():
            here = slice(*rollouts.role.offsets[k : k + 2])
            tokens[here] *= entropy_gate(rollouts.entropy.row(k), int(lead[k])) * mask[k, : rollouts.role.lengths[k]]
        return replace(advantage, tokens=Ragged(tokens, rollouts.role.offsets))
