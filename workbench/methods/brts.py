"""BRTS: of several teacher rollouts, the correct one nearest to the student, learned from beside the objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from workbench.stages import Card, Method, State
from workbench.types import Batch, Loss

CARD = Card(
    slug="brts",
    title="BRTS: on-policy distillation with best-of-N teacher rollout selection",
    code="https://github.com/BWGZK-keke/BRTS",
    source="C*",
    deviations=(
        "teacher_topk is the default weight; with the authors' student_p the gradient lowers every top-K log-probability",
        "no world samples from a teacher yet: the choice among its rollouts is left out, and what acts is the auxiliary loss "
        "on the top-K columns that a world brings",
    ),
    watch="tiers over steps, overlap of chosen against rejected rollouts, auxiliary loss",
)

STUDENT, TEACHER = "student_topk_logp", "teacher_topk_logp"
"""Columns (B, T, K) of a batch: log-probabilities of the student's top K tokens; the student's carries the gradient."""


@dataclass(frozen=True)
class Brts(Method):
    """The auxiliary distillation loss beside any objective; coef is its weight.

    Needs a world that brings, for every token, the teacher's log-probabilities of the student's top K tokens.
    """

    coef: float = 0.05
    weight: Literal["teacher_topk", "student_p", "teacher_p", "none", "reverse_kl"] = "teacher_topk"

    card = CARD
    needs: ClassVar[frozenset[str]] = frozenset({"teacher", "top_tokens"})

    def penalty(self, state: State, batch: Batch) -> Loss:
        """coef sum_k w_k (log p_S - log p_T) per token over the student's top K, w not differentiated.

        student_p, teacher_p: softmax of the top K; none: 1; teacher_topk: softmax(teacher) (log p_T - log p_S), the forward
        KL; reverse_kl: student_p with the weight differentiated. Raises ValueError without its columns."""
        import torch

        missing = [c for c in (STUDENT, TEACHER) if c not in batch.extra]
        if missing:
            raise ValueError(f"brts needs the columns {', '.join(missing)}: (B, T, K) top-K log-probabilities")
        s, t = batch.extra[STUDENT], batch.extra[TEACHER].detach()
        mask = batch.mask.bool()
        silent = int((mask & (s.isnan() | t.isnan()).any(-1)).any(1).sum())
        if silent:
            raise ValueError(
                f"brts needs the teacher's log-probabilities of every token, and {silent} of {len(mask)} rollouts lack some; rows "
                "of earlier steps bring none of their own: let the world add them when it scores, or leave the replay out"
            )
        p = s.softmax(-1)
        if self.weight == "teacher_topk":
            value = t.softmax(-1) * (t - s)
        elif self.weight == "reverse_kl":
            value = p * (s - t)
        else:
            w = {"student_p": p.detach(), "teacher_p": t.softmax(-1), "none": torch.ones_like(s)}[self.weight]
            value = w * (s - t)
        term = self.coef * value.sum(-1)
        return Loss(torch.where(mask, term, torch.zeros_like(term)), reduction="token_mean")
