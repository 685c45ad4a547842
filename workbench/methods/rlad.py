"""RLAD: the teacher is in the anchor of the clipped ratio, so imitation goes where the advantage points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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
        """-min(r A, clip(r) A) per token, r = (pi / pi_old)^alpha (pi / pi_T)^(1 - alpha), each log-ratio held to +-20.

        Log-probabilities of the teacher that are missing or below the floor are the floor. delta caps r where A < 0. Raises
        ValueError without the teacher's column."""
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
