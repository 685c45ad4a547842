"""GRPO: group-relative advantages, and a clipped policy loss with importance sampling ratios."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Literal, TypeAlias, get_args

import numpy as np

from workbench.numerics.estimators import Estimator, Singleton, group_advantages
from workbench.stages import Card, Effect, Method, State
from workbench.types import Advantage, Batch, Draft, Loss

CARD = Card(
    slug="grpo",
    title="DeepSeekMath: group relative policy optimization (GRPO)",
    arxiv="2402.03300",
    code="https://github.com/huggingface/trl",
    source="C*",
    deviations=(
        "no KL term: 0.04 in the paper, 0 in TRL's defaults now",
        "the loss is weighted by min(pi_proximal / pi_behaviour, 2), truncated importance sampling between sampler and "
        "trainer (Yao et al. 2025, 'Your efficient RL framework secretly brings you off-policy RL training'; verl's "
        "rollout correction); truncation=None turns it off",
        "a group with one scored rollout gets advantage 0 (TRL); the paper does not say, g1='raw' is verl",
        "log ratios are clamped to +-20 before the exponential, as in verl",
    ),
    watch="the share of groups without spread, the clip fractions up and down, the importance weight",
    golden="baselines",
)

Kind: TypeAlias = Literal["ppo", "gspo", "cispo_trl", "cispo_verl"]
Reduction: TypeAlias = Literal["seq_mean", "token_mean", "const_len"]

_CLAMP = 20.0


@dataclass(frozen=True)
class Grpo(Method):
    """Advantages relative to the group, PPO-clip loss averaged per sequence.

    estimator, kind and reduction give the relatives: Dr. GRPO is Grpo(estimator="dr_grpo", reduction="const_len"),
    DAPO's loss Grpo(eps_high=0.28, reduction="token_mean"), GSPO Grpo(kind="gspo", eps_low=3e-4, eps_high=4e-4).
    """

    estimator: Estimator = "grpo"
    eps: float | None = None
    g1: Singleton = "zero"
    kind: Kind = "ppo"
    eps_low: float = 0.2
    eps_high: float = 0.2
    delta: float | None = None
    reduction: Reduction = "seq_mean"
    truncation: float | None = 2.0

    card = CARD
    effects = frozenset({Effect.REPLACES_ADVANTAGES})

    def __post_init__(self) -> None:
        for name, allowed in (("kind", get_args(Kind)), ("reduction", get_args(Reduction))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"no {name} {getattr(self, name)!r}; there are {', '.join(allowed)}")

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Compare every kept rollout with the kept ones of its group; what is out of the loss stays out, at 0."""
        rollouts = draft.rollouts
        reward = np.where(advantage.keep, rollouts.reward, np.nan)
        made = group_advantages(reward, rollouts.group, self.estimator, self.eps, rollouts.length, self.g1)
        return replace(advantage, value=made.advantages, baseline=made.baseline, tokens=None)

    def loss(self, state: State, batch: Batch) -> Loss:
        """Clipped surrogate per token by importance sampling ratio rho = pi / pi_proximal, times min(pi_proximal / pi_behaviour, truncation).

        ppo: -min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A); delta caps rho in the first branch where A < 0.
        gspo: the same with one ratio per row, the exponential of its mean log ratio; its gradient flows as in GSPO-token.
        cispo: -w A logp with w held constant, min(rho, eps_high) in TRL, clip(rho, 1 - eps_low, 1 + eps_high) in verl.
        Sources: PPO clip as in GRPO 2402.03300, clip-higher DAPO 2503.14476, GSPO 2507.18071, CISPO 2506.13585."""
        import torch

        mask = batch.mask.bool()
        zero = torch.zeros_like(batch.logp)
        log_ratio = torch.where(mask, batch.logp - batch.proximal, zero).clamp(-_CLAMP, _CLAMP)
        if self.kind == "gspo":
            # one ratio per row; the gradient reaches a token through its own logp (GSPO-token, eq. 13)
            sampled = batch.sampled
            row = (log_ratio * sampled).sum(1, keepdim=True) / sampled.sum(1, keepdim=True).clamp(min=1)
            log_ratio = row.detach() * sampled + log_ratio - log_ratio.detach()
        ratio = log_ratio.exp()
        a = torch.where(mask, batch.advantage, zero)
        low, high = 1 - self.eps_low, 1 + self.eps_high
        if self.kind in ("cispo_trl", "cispo_verl"):
            low, high = (0.0, self.eps_high) if self.kind == "cispo_trl" else (low, high)
            term = -ratio.detach().clamp(low, high) * a * torch.where(mask, batch.logp, zero)
            too_low, too_high = ratio < low, ratio > high
        else:
            first = ratio if self.delta is None else torch.where(a < 0, ratio.clamp(max=self.delta), ratio)
            term = -torch.minimum(first * a, ratio.clamp(low, high) * a)
            too_low, too_high = (ratio < low) & (a < 0), (ratio > high) & (a > 0)
        stats = {
            "ratio": ratio.detach(),
            "clip_low": too_low.to(term.dtype),
            "clip_high": too_high.to(term.dtype),
        }
        if self.truncation is not None:
            drift = torch.where(mask, batch.proximal - batch.behaviour, zero).detach()
            importance = drift.clamp(max=log(self.truncation)).exp()
            term = term * importance
            stats["importance"] = importance
        return Loss(term, reduction=self.reduction, stats=stats)
