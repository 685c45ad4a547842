"""Asynchronous training with bounded staleness: a limit on the lag of rollouts, importance sampling weights on the rest."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from workbench.stages import Card, Method, State
from workbench.types import Batch, Draft, Loss, Ragged, Rollouts

CARD = Card(
    slug="async_staleness",
    title="Bounded-staleness asynchronous training: AReaL and DORA of LongCat",
    arxiv="2505.24298",
    code="https://github.com/inclusionAI/AReaL",
    source="code",
    deviations=(
        "a row's version is that of its first token; rows that a newer policy finished carry its tokens under their head",
        "rows without behaviour log-probabilities weigh 1: they look like rows of the present policy",
        "LongCat's objective is left out: its constants are not published",
    ),
    watch="lag of what is trained, weights between behaviour and proximal policy, share of tokens filtered",
    golden="async-staleness",
)

_CLAMP = 20.0


def admit(head_version: ArrayLike, current: int, eta: int) -> np.ndarray:
    """(n,) bool: rollouts whose first token is at most eta versions old."""
    return current - np.asarray(head_version, np.int64) <= eta


def head_version(rollouts: Rollouts) -> np.ndarray:
    """(R,) int64 version that sampled each row's first token; rows that went on in a later step have an older one."""
    tokens = rollouts.extra.get("token_version")
    head = np.asarray(rollouts.version, np.int64).copy()
    if isinstance(tokens, Ragged):
        some = tokens.lengths > 0
        head[some] = tokens.values[tokens.offsets[:-1][some]]
    return head


@dataclass(frozen=True)
class AsyncStaleness(Method):
    """Admit rollouts at most eta versions old; decoupled loss against the proximal policy (AReaL).

    level, action, upper and lower say what happens to tokens whose sampler is far from the proximal policy.
    """

    eta: int = 4
    clip_low: float = 0.2
    clip_high: float = 0.2
    level: Literal["token", "sequence"] = "token"
    action: Literal["mask", "clamp"] = "mask"
    upper: float | None = 5.0
    lower: float | None = None

    card = CARD
    needs: ClassVar[frozenset[str]] = frozenset({"behaviour"})

    def __post_init__(self) -> None:
        if self.eta < 0:
            raise ValueError(f"eta={self.eta}: a lag is 0 or more")

    def admit(self, state: State, rollouts: Rollouts, draft: Draft) -> np.ndarray:
        """Rollouts whose first token's policy is at most eta updates behind the newest of the batch."""
        return admit(head_version(rollouts), int(rollouts.version.max(initial=0)), self.eta)

    def loss(self, state: State, batch: Batch) -> Loss:
        """-w min(u A, clip(u) A) per token, u = pi / pi_proximal, w = pi_proximal / pi_behaviour, constant.

        action mask drops tokens whose w lies beyond the bounds and leaves the rest raw; clamp holds w inside them. level
        sequence: the geometric mean over a row decides, and is the weight of all its tokens. A log-ratio that is not finite
        counts as 0."""
        import torch

        mask, zero = batch.mask.bool(), torch.zeros_like(batch.logp)
        x = torch.where(mask, batch.proximal - batch.behaviour, zero).detach()
        x = torch.where(x.isfinite(), x, zero)
        if self.level == "sequence":
            sampled = batch.sampled
            x = sampled * (x * sampled).sum(1, keepdim=True) / sampled.sum(1, keepdim=True).clamp(min=1)
        x = x.clamp(-_CLAMP, _CLAMP)
        high = log(self.upper) if self.upper is not None else inf
        low = log(self.lower) if self.lower else -inf
        beyond = mask & ((x > high) | (x < low))
        kept = mask & ~beyond if self.action == "mask" else mask
        w = torch.where(kept, x.clamp(low, high).exp(), zero)
        u = torch.where(kept, batch.logp - batch.proximal, zero).clamp(-_CLAMP, _CLAMP).exp()
        a = torch.where(kept, batch.advantage, zero)
        term = -w * torch.minimum(u * a, u.clamp(1 - self.clip_low, 1 + self.clip_high) * a)
        clipped = ((u > 1 + self.clip_high) & (a > 0)) | ((u < 1 - self.clip_low) & (a < 0))
        stats = {
            "ratio": u.detach(),
            "importance": w,
            "filtered": beyond.to(term.dtype),
            "clipped": clipped.to(term.dtype),
        }
        return Loss(term, reduction="token_mean", stats=stats)
