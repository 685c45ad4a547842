"""NudgeRL: the group is split over short strategy hints; the hint is credited beside the rollout, and hints drop out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.hints import Ask, with_asks
from workbench.stages import Card, Effect, Method
from workbench.types import Advantage, Batch, Draft, Loss, Plan, Pool, Rollouts, Step, Text

CARD = Card(
    slug="nudgerl",
    title="NudgeRL: strategy-guided exploration beyond the comfort zone",
    arxiv="2605.15726",
    code="https://github.com/tally0818/NudgeRL",
    source="C*",
    deviations=(
        "settings are those of the paper's runs; the released constructor has lam 0.1, p_drop 0.25",
        "an allocator's n is spread over the hints as evenly as it divides; the paper's group is always M K",
        "a prompt without strategies is distilled as one whose rollouts all lost their hint",
    ),
    watch="reward per strategy, variance within and between strategies, hinted minus plain success, the distillation's loss",
)

DROPOUT = "dropout"
"""Context id of rollouts that lost their hint, as in the released trainer."""


class Nudged(NamedTuple):
    """raw (n,) centred rewards; advantages (n,) the same, standardised over the prompt."""

    raw: np.ndarray
    advantages: np.ndarray


def nudge_advantages(
    rewards: ArrayLike, contexts: Sequence[str], lam: float = 1.1, eps: float = 1e-5, dropout_id: str = DROPOUT
) -> Nudged:
    """Hinted: (r - mean of its context) + lam (mean of its context - mean of all); without hint: r - mean of all.

    rewards (n,), contexts (n,) of one prompt. lam = 1 is plain centring. Population std."""
    reward, context = np.asarray(rewards, float), np.asarray(contexts, dtype=object)
    if not len(reward):
        return Nudged(reward, reward.copy())
    mean = reward.mean()
    raw = reward - mean
    for name in dict.fromkeys(context.tolist()):
        if name != dropout_id:
            mine = context == name
            own = reward[mine].mean()
            raw[mine] = reward[mine] - own + lam * (own - mean)
    if reward.max() == reward.min():
        return Nudged(np.zeros(len(reward)), np.zeros(len(reward)))
    return Nudged(raw, (raw - raw.mean()) / (raw.std() + eps))


class Strategies(NamedTuple):
    """texts of every prompt; solved and tried (N,) over its plain rollouts."""

    texts: list[tuple[str, ...]]
    solved: np.ndarray
    tried: np.ndarray


@dataclass(frozen=True)
class Nudgerl(Method):
    """Spread a prompt's rollouts over `hints` of its strategies; each loses its hint with chance p_drop.

    Needs the pool's extra column "strategies": a list of short texts per prompt, or one text with a strategy in each line (which
    a store can keep); prompts without any are left alone.
    sampler: sequential takes the first ones, random draws them. distill: weight of the distillation beside the objective, 0
    for none: what was said behind a hint becomes likelier behind the plain prompt, or less likely where A < 0. Its mean is
    over rollouts of means over tokens, whatever the objective's reduction; it knows no ratio, so no log-probability of the
    sampler enters it, and no trust region: be careful with it where rollouts are stale.
    """

    hints: int = 2
    p_drop: float = 0.5
    lam: float = 1.1
    eps: float = 1e-5
    sampler: Literal["sequential", "random"] = "sequential"
    distill: float = 0.1

    card = CARD
    effects = frozenset({Effect.ADDS_HINTS, Effect.COMPARES_CONTEXTS, Effect.DEFERS_ROLLOUTS})
    acts_if: ClassVar[Mapping[str, str]] = {"penalty": "distill"}

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """Strategies, and where it distils the log-probabilities behind the plain prompt."""
        return frozenset({"strategies", "plain_logp"} if self.distill else {"strategies"})

    def init(self, pool: Pool) -> Strategies:
        """The pool's strategies; nothing tried."""
        return Strategies(strategies(pool), np.zeros(len(pool)), np.zeros(len(pool)))

    def observe(self, state: Strategies, step: Step) -> Strategies:
        """Count the outcomes of rollouts that had no hint."""
        rows, solved, tried = step.evidence(len(state.tried))
        both = state.solved.copy(), state.tried.copy()
        both[0][rows] += solved
        both[1][rows] += tried
        return Strategies(state.texts, *both)

    def reveal(self, state: Strategies) -> Mapping[str, np.ndarray]:
        """mean of the plain success rate under a flat prior, one std to both sides."""
        a, b = 1 + state.solved, 1 + state.tried - state.solved
        mean = a / (a + b)
        std = np.sqrt(mean * (1 - mean) / (a + b + 1))
        return {"mean": mean, "low": np.maximum(mean - std, 0), "high": np.minimum(mean + std, 1), "tried": state.tried}

    def amend(self, state: Strategies, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """Take the hinted rollouts out of the plain asks; those that lost their hint stay plain."""
        n, asks = plan.n.copy(), []
        for row in np.flatnonzero(plan.is_plain):
            prompt = int(plan.prompt[row])
            texts = state.texts[prompt]
            m = min(self.hints, len(texts))
            if not m:
                continue
            chosen = range(m) if self.sampler == "sequential" else np.sort(rng.choice(len(texts), m, replace=False))
            hint = np.arange(n[row]) % m
            kept = Counter(hint[rng.random(n[row]) >= self.p_drop].tolist())
            for i, c in enumerate(chosen):
                if kept[i]:
                    asks.append(Ask(prompt, kept[i], Text(texts[int(c)], "user"), f"strategy:{int(c)}"))
            n[row] -= sum(kept.values())
        return with_asks(plan.with_n(n), asks)

    def estimate(self, state: Strategies, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Advantages of all rollouts of a prompt together, its strategies credited by lam."""
        rollouts = draft.rollouts
        hinted = _hinted(rollouts)
        value, baseline, touched = advantage.value.copy(), advantage.baseline.copy(), np.zeros(len(rollouts), bool)
        for p in np.unique(rollouts.prompt[hinted & advantage.keep]):
            plain = rollouts.context == ""
            mine = np.flatnonzero(advantage.keep & (rollouts.prompt == p) & (hinted | plain))
            names = [c if h else DROPOUT for c, h in zip(rollouts.context[mine], hinted[mine], strict=True)]
            value[mine] = nudge_advantages(rollouts.reward[mine], names, self.lam, self.eps).advantages
            baseline[mine] = rollouts.reward[mine].mean()
            touched[mine] = True
        return advantage.revalued(touched, value, baseline)

    def penalty(self, state: Strategies, batch: Batch) -> Loss:
        """distill times -mean_i A_i mean_t log pi(y_it | plain prompt), over all rollouts.

        Raises ValueError without the column of log-probabilities behind the plain prompt."""
        import torch

        if "plain_logp" not in batch.extra:
            raise ValueError("nudgerl needs the column 'plain_logp'; Nudgerl(distill=0) leaves the distillation out")
        term = -torch.where(batch.mask.bool(), batch.advantage * batch.extra["plain_logp"], 0.0)
        return Loss(self.distill * term, reduction="seq_mean", stats={"distillation": term.detach()})


def strategies(pool: Pool) -> list[tuple[str, ...]]:
    """The strategy texts of each prompt, none where the pool has no column `strategies`; a text is read line by line."""
    column = pool.extra.get("strategies")
    if column is None:
        return [()] * len(pool)
    rows = [row.splitlines() if isinstance(row, str) else row for row in column]
    return [() if row is None else tuple(map(str, row)) for row in rows]


def _hinted(rollouts: Rollouts) -> np.ndarray:
    return np.array([c.startswith("strategy:") for c in rollouts.context], bool)
