"""RLAD: the teacher stands in the anchor of the clipped ratio, so imitation goes where the advantage points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.stages import Card, Method, State
from workbench.types import Batch, Loss

CARD = Card(
    slug="rlad",
    title="RLAD: reinforcement-aware knowledge distillation",
    arxiv="2602.22495",
    source="notes",
    deviations=(
        "the token mean, and the dual clip for negative advantages (delta=3), are ours; delta=None is the paper",
        "no KL to a reference",
    ),
    watch="share clipped at the start by the sign of the advantage, reward and distance to the teacher",
)

_CLAMP = 20.0
TEACHER = "teacher_logp"
"""Per-token column of the rollouts: the teacher's log-probability of the student's tokens."""


def clean_teacher(teacher_logp: ArrayLike, floor: float = -20.0) -> np.ndarray:
    """Missing and non-finite log-probabilities become the floor, and none lies below it."""
    t = np.asarray(teacher_logp, float)
    return np.where(np.isfinite(t), np.maximum(t, floor), floor)


def _log_ratio(logp: np.ndarray, old: np.ndarray, teacher: np.ndarray, alpha: float, clamp: float) -> np.ndarray:
    to_old, to_teacher = np.clip(logp - old, -clamp, clamp), np.clip(logp - teacher, -clamp, clamp)
    return alpha * to_old + (1 - alpha) * to_teacher


def trrd_ratio(
    logp: ArrayLike, old_logp: ArrayLike, teacher_logp: ArrayLike, alpha: float = 0.5, clamp: float = 20.0
) -> np.ndarray:
    """(pi / pi_old)^alpha (pi / pi_T)^(1 - alpha), each log-ratio held to +-clamp; any shape."""
    columns = (np.asarray(logp, float), np.asarray(old_logp, float), clean_teacher(teacher_logp))
    return np.exp(_log_ratio(*columns, alpha, clamp))


class TrrdLoss(NamedTuple):
    """loss; coef (B, T) = A r where the gradient passes; clipped (B, T) int."""

    loss: float
    coef: np.ndarray
    clipped: np.ndarray


def trrd_loss(
    logp: ArrayLike,
    old_logp: ArrayLike,
    teacher_logp: ArrayLike,
    advantages: ArrayLike,
    mask: ArrayLike,
    alpha: float = 0.5,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    delta: float | None = None,
) -> TrrdLoss:
    """Minus the token mean of min(r A, clip(r) A); advantages (B,) or (B, T), the rest (B, T).

    delta caps r for negative advantages (dual clip); None is the paper."""
    valid = np.asarray(mask, float) > 0
    safe = [np.where(valid, np.asarray(c, float), 0.0) for c in (logp, old_logp)]
    r = np.exp(_log_ratio(safe[0], safe[1], np.where(valid, clean_teacher(teacher_logp), 0.0), alpha, _CLAMP))
    a = np.asarray(advantages, float)
    a = np.where(valid, a[:, None] if a.ndim == 1 else a, 0.0)
    plain, bound = r * a, np.clip(r, 1 - eps_low, 1 + eps_high) * a
    objective = np.minimum(plain, bound)
    clipped = valid & (bound < plain)
    if delta is not None:
        capped = (a < 0) & (r > delta)
        objective, clipped = np.where(capped, delta * a, objective), clipped | (valid & capped)
    n = max(int(valid.sum()), 1)
    return TrrdLoss(float(-objective.sum() / n), np.where(clipped | ~valid, 0.0, plain), clipped.astype(np.int64))


class Region(NamedTuple):
    """anchor = old^alpha teacher^(1 - alpha); probabilities between low and high are not clipped; ratio_at_old."""

    anchor: np.ndarray
    low: np.ndarray
    high: np.ndarray
    ratio_at_old: np.ndarray


def trust_region(
    old_p: ArrayLike, teacher_p: ArrayLike, alpha: float = 0.5, eps_low: float = 0.2, eps_high: float = 0.2
) -> Region:
    """Where a token's probability may move; (n,) probabilities of the old policy and the teacher."""
    old, teacher = np.asarray(old_p, float), np.asarray(teacher_p, float)
    anchor = old**alpha * teacher ** (1 - alpha)
    return Region(anchor, (1 - eps_low) * anchor, (1 + eps_high) * anchor, old / anchor)


class Dead(NamedTuple):
    """share of tokens with an advantage that start clipped; dead (n,) bool."""

    share: float
    dead: np.ndarray


def start_clipped_share(
    old_p: ArrayLike,
    teacher_p: ArrayLike,
    advantages: Sequence[float],
    alpha: float = 0.5,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> Dead:
    """Tokens (n,) without a gradient before anything was learned: liked too little by the teacher for A > 0, or too much."""
    r, a = trust_region(old_p, teacher_p, alpha).ratio_at_old, np.asarray(advantages, float)
    dead = ((a > 0) & (r > 1 + eps_high)) | ((a < 0) & (r < 1 - eps_low))
    acting = int((a != 0).sum())
    return Dead(float(dead.sum() / acting) if acting else 0.0, dead)


@dataclass(frozen=True)
class Rlad(Method):
    """GRPO's clipped objective against an anchor between the old policy and the teacher.

    alpha = 1 is GRPO, 0 the teacher alone. Needs a world that scores rollouts with a teacher of the same tokenizer.
    """

    alpha: float = 0.5
    eps_low: float = 0.2
    eps_high: float = 0.2
    delta: float | None = 3.0
    floor: float = -20.0

    card = CARD
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def loss(self, state: State, batch: Batch) -> Loss:
        """The token objective; `trrd_loss` is its numpy twin. Raises ValueError without the teacher's column."""
        import torch

        mask, zero = batch.mask.bool(), torch.zeros_like(batch.logp)
        if TEACHER not in batch.extra:
            raise ValueError(f"rlad needs the column {TEACHER!r}: the teacher's log-probability of every token")
        teacher = batch.extra[TEACHER]
        silent = int((mask.any(1) & (teacher.isnan() | ~mask).all(1)).sum())
        if silent:
            raise ValueError(
                f"rlad needs the teacher's log-probability of every token, and {silent} of {len(mask)} rollouts have none; rows "
                "of earlier steps bring none of their own: let the world add it when it scores, or leave the replay out"
            )
        teacher = torch.where(teacher.isfinite(), teacher.clamp(min=self.floor), torch.full_like(teacher, self.floor))
        to_old = torch.where(mask, batch.logp - batch.proximal, zero).clamp(-_CLAMP, _CLAMP)
        to_teacher = torch.where(mask, batch.logp - teacher, zero).clamp(-_CLAMP, _CLAMP)
        r = (self.alpha * to_old + (1 - self.alpha) * to_teacher).exp()
        a = torch.where(mask, batch.advantage, zero)
        plain, bound = r * a, r.clamp(1 - self.eps_low, 1 + self.eps_high) * a
        term = -torch.minimum(plain, bound)
        clipped = bound < plain
        if self.delta is not None:
            capped = (a < 0) & (r > self.delta)
            term, clipped = torch.where(capped, -self.delta * a, term), clipped | capped
        stats = {
            "ratio": r.detach(),
            "clipped": clipped.to(term.dtype),
            "teacher_gap": torch.where(mask, batch.logp.detach() - teacher, zero),
        }
        return Loss(term, reduction="token_mean", stats=stats)
