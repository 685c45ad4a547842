"""VCPO: where old rollouts weigh unevenly, take smaller steps, and compare with the baseline of least variance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.groups import describe
from workbench.stages import Card, Effect, Method, State
from workbench.types import Advantage, Batch, Draft, Loss, Rollouts

CARD = Card(
    slug="vcpo",
    title="VCPO: stable asynchrony, variance-controlled off-policy RL for LLMs",
    arxiv="2602.17616",
    code="https://github.com/mit-han-lab/vcpo",
    source="C*",
    deviations=(
        "norms of the score gradient are taken as 1 where the world does not give them (extra column grad_norm_score): "
        "none does yet",
        "the effective sample size is that of a micro-batch, and the trainer steps with that of the last one; both are "
        "the step's where it fits into one micro-batch",
        "a group whose rewards are all alike gets exact zeros in the loop; the code leaves its eps of 1e-8",
        "log weights are clamped to +-700 (float64), in the gradient to the cap",
        "weighted median and winsorised mean as baselines, which the code offers, are left out",
    ),
    watch="effective sample size and lr scale against staleness, largest share of a weight, baseline minus group mean",
)

Rule: TypeAlias = Literal["sqrt", "linear"]
Scope: TypeAlias = Literal["group", "batch"]
_EPS = 1e-8
_LIMIT = 700.0


class Ess(NamedTuple):
    """ess = (sum w)^2 / (sum w^2 + 1e-8); ess_ratio = ess / B, 0 without rows."""

    ess: float
    ess_ratio: float


def ess(weights: ArrayLike) -> Ess:
    """Effective sample size of weights (B,): B where all are alike, 1 where one dominates, 0 where none is."""
    w = np.asarray(weights, float)
    top = w.max(initial=0.0)
    if not top > 0:
        return Ess(0.0, 0.0)
    w = w / top  # e^700 squared is no float
    size = float(w.sum() ** 2 / ((w**2).sum() + _EPS / top / top))
    return Ess(size, size / len(w))


def scaled_lr(base_lr: float, ess_ratio: float, base_ess_ratio: float = 1.0, rule: Rule = "sqrt") -> float:
    """base_lr times min(1, ess_ratio / base_ess_ratio), or its square root; never more than base_lr."""
    if rule not in get_args(Rule):
        raise ValueError(f"no rule {rule!r}; there are {', '.join(get_args(Rule))}")
    if not base_ess_ratio > 0:
        raise ValueError(f"base_ess_ratio must be positive, got {base_ess_ratio}")
    share = min(1.0, ess_ratio / base_ess_ratio)
    return base_lr * (sqrt(share) if rule == "sqrt" else share)


class Opob(NamedTuple):
    """baseline, coefficient (B,); NaN and 0 for null rewards."""

    baseline: np.ndarray
    coefficient: np.ndarray


def opob(
    rewards: ArrayLike,
    weights: ArrayLike,
    grad_norms: ArrayLike,
    groups: ArrayLike,
    scope: Scope = "group",
    norm_by_std: bool = True,
) -> Opob:
    """The off-policy optimal baseline: b = sum W R / (sum W + 1e-8), W = g^2 w^2, and (R - b) / std.

    rewards (B,), None or NaN = null; weights raw, grad_norms (B,); groups (B,) any labels. std over B rows, applied where
    above 1e-8. scope batch: one baseline and one std for all. Where all norms are 0 the baseline is 0, which is wrong
    for reward 1; with equal W it is the mean, not the mean of the others."""
    if scope not in get_args(Scope):
        raise ValueError(f"no scope {scope!r}; there are {', '.join(get_args(Scope))}")
    reward = np.asarray(rewards, float)
    names, group = np.unique(np.asarray(groups), return_inverse=True)
    if scope == "batch":
        names, group = names[:1], np.zeros(len(reward), np.int64)
    scored = np.isfinite(reward)
    w = np.where(scored, (np.asarray(grad_norms, float) * np.asarray(weights, float)) ** 2, 0.0)
    n = len(names)
    total = np.bincount(group, w, minlength=n)
    baseline = np.bincount(group, w * np.where(scored, reward, 0.0), minlength=n) / (total + _EPS)
    stats = describe(reward, group, n)
    std = stats.std * np.sqrt(np.maximum(stats.n - 1, 0) / np.maximum(stats.n, 1))
    scale = np.where(norm_by_std & (std > _EPS), std, 1.0)
    b = np.where(scored, baseline[group], np.nan)
    return Opob(b, np.where(scored, (reward - baseline[group]) / scale[group], 0.0))


@dataclass(frozen=True)
class Vcpo(Method):
    """Weights of whole sequences, capped; a learning rate by effective sample size; the off-policy optimal baseline."""

    cap: float = 8.0
    base_ess_ratio: float = 1.0
    rule: Rule = "sqrt"
    scope: Scope = "group"
    norm_by_std: bool = True

    card = CARD
    effects = frozenset({Effect.REPLACES_ADVANTAGES})

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Replace the advantages of the kept rollouts; weights are 1 where the world gave no current log-probabilities."""
        r = draft.rollouts
        reward = np.where(advantage.keep, r.reward, np.nan)
        norm = np.asarray(r.extra.get("grad_norm_score", np.ones(len(r))), float)
        made = opob(reward, row_weights(r), norm, r.group, self.scope, self.norm_by_std)
        settled = describe(reward, r.group, int(r.group.max(initial=-1)) + 1).settled[r.group]
        value = np.where(settled & (self.scope == "group"), 0.0, made.coefficient)
        if self.scope == "batch" and not np.nanmax(reward, initial=-np.inf) > np.nanmin(reward, initial=np.inf):
            value = np.zeros(len(r))
        return replace(advantage, value=value, baseline=made.baseline, tokens=None)

    def loss(self, state: State, batch: Batch) -> Loss:
        """The score weighted by min(w, cap), w held constant; no clipping. lr_scale follows the effective sample size."""
        import torch

        mask, zero = batch.mask.bool(), torch.zeros_like(batch.logp)
        logp = torch.where(mask, batch.logp, zero)
        drift = torch.where(mask, batch.logp.detach() - batch.behaviour, zero).double().sum(1)
        weight = drift.clamp(max=log(self.cap)).exp().to(logp.dtype)[:, None].expand(logp.shape)
        rows = mask.any(1)
        raw = drift.clamp(-_LIMIT, _LIMIT).exp()[rows]
        size = ess(raw.cpu().numpy())
        term = -weight * torch.where(mask, batch.advantage, zero) * logp
        stats = {
            "importance": weight,
            "truncated": (drift > log(self.cap)).to(logp.dtype)[:, None].expand(logp.shape),
            "ess_ratio": torch.tensor(size.ess_ratio),
        }
        scale = scaled_lr(1.0, size.ess_ratio, self.base_ess_ratio, self.rule)
        return Loss(term, reduction="seq_mean", stats=stats, lr_scale=scale)


def row_weights(rollouts: Rollouts) -> np.ndarray:
    """(R,) raw weight of every rollout: current against recorded log-probabilities, 1 where one of them is missing."""
    current, logp = rollouts.current, rollouts.logp
    if current is None or logp is None:
        return np.ones(len(rollouts))
    row = np.repeat(np.arange(len(rollouts)), logp.lengths)
    drift = np.bincount(row, current.values.astype(float) - logp.values, minlength=len(rollouts))
    return np.exp(np.clip(drift, -_LIMIT, _LIMIT))
