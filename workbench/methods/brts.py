"""BRTS: of several teacher rollouts, the correct one nearest to the student, learned from beside the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from workbench.stages import Card, Method, State
from workbench.types import Batch, Loss

CARD = Card(
    slug="brts",
    title="BRTS: on-policy distillation with best-of-N teacher rollout selection",
    code="https://github.com/BWGZK-keke/BRTS",
    source="C*",
    deviations=(
        "teacher_topk is the default weight; with the authors' student_p the gradient lowers every top-K log-probability",
        "no world samples from a teacher yet: the choice of its rollouts is complete as functions, and what acts in the "
        "loop is the auxiliary loss on the top-K columns that a world brings",
    ),
    watch="tiers over steps, overlap of chosen against rejected rollouts, auxiliary loss",
)

Weighting: TypeAlias = Literal["student_p", "teacher_p", "none", "teacher_topk", "reverse_kl"]
STUDENT, TEACHER = "student_topk_logp", "teacher_topk_logp"
"""Columns (B, T, K) of a batch: log-probabilities of the student's top K tokens; the student's carries the gradient."""


class Overlap(NamedTuple):
    """overlap = share of the compared teacher tokens among the student's top K at the same place."""

    overlap: float
    compared: int


def overlap_ratio(
    student_topk: Sequence[Sequence[int]], teacher_tokens: Sequence[int], student_length: int, pad_id: int = 0
) -> Overlap:
    """Over the first min(lengths) positions, teacher padding left out; 0 where nothing is compared."""
    n = min(student_length, len(teacher_tokens), len(student_topk))
    places = [t for t in range(n) if teacher_tokens[t] != pad_id]
    hits = sum(teacher_tokens[t] in student_topk[t] for t in places)
    return Overlap(hits / len(places) if places else 0.0, len(places))


class Chosen(NamedTuple):
    """tier 1 = correct, 2 = correct with the hint, 3 = the most similar; index among the rollouts of that tier."""

    tier: int
    index: int


def select_teacher(
    correct: Sequence[bool], overlap: Sequence[float], hint_correct: Sequence[bool], hint_overlap: Sequence[float]
) -> Chosen:
    """The correct rollout of largest overlap; else a correct hinted one; else the most similar. Ties: lowest index.

    Raises ValueError without an unhinted rollout."""
    if not len(correct):
        raise ValueError("a choice needs one teacher rollout at least")
    for tier, right, near in ((1, correct, overlap), (2, hint_correct, hint_overlap)):
        rows = np.flatnonzero(np.asarray(right, bool))
        if len(rows):
            return Chosen(tier, int(rows[np.argmax(np.asarray(near, float)[rows])]))
    return Chosen(3, int(np.argmax(np.asarray(overlap, float))))


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def opd_token_reward(student_logp: ArrayLike, teacher_logp: ArrayLike) -> np.ndarray:
    """(T,) minus sum_k softmax(student top K) (log p_S - log p_T); (T, K) inputs."""
    s, t = np.asarray(student_logp, float), np.asarray(teacher_logp, float)
    return -(_softmax(s) * (s - t)).sum(-1)


class AuxLoss(NamedTuple):
    """loss; grad (T, K), every log-probability a variable of its own."""

    loss: float
    grad: np.ndarray


def aux_loss(
    student_logp: ArrayLike,
    teacher_logp: ArrayLike,
    mask: ArrayLike,
    coef: float = 0.05,
    weight: Weighting = "teacher_topk",
) -> AuxLoss:
    """coef x mean over t of sum_k w_k (log p_S - log p_T), weights not differentiated; (T, K) inputs, mask (T,).

    student_p, teacher_p: softmax of the top K; none: 1; teacher_topk: softmax(teacher) (log p_T - log p_S), the
    forward KL; reverse_kl: student_p with the weight differentiated."""
    s, t = np.asarray(student_logp, float), np.asarray(teacher_logp, float)
    valid = (np.asarray(mask, float) > 0)[:, None]
    n = max(int(valid.sum()), 1)
    gap = s - t
    p = _softmax(s)
    if weight == "teacher_topk":
        w = _softmax(t)
        value, grad = -w * gap, -w
    elif weight == "reverse_kl":
        value = p * gap
        grad = p + p * (gap - (p * gap).sum(-1, keepdims=True))
    elif weight in ("student_p", "teacher_p", "none"):
        w = {"student_p": p, "teacher_p": _softmax(t), "none": np.ones_like(s)}[weight]
        value, grad = w * gap, w
    else:
        raise ValueError(f"no weight {weight!r}; there are student_p, teacher_p, none, teacher_topk, reverse_kl")
    scale = coef / n * valid
    return AuxLoss(float((scale * value).sum()), scale * grad)


def choose_context(
    student_overlap: ArrayLike, selected_overlap: ArrayLike, per_prompt: bool = False
) -> bool | np.ndarray | None:
    """Whether the selected trajectory is the nearer context (P,): once for the batch, or per prompt; None without any."""
    s, c = np.asarray(student_overlap, float), np.asarray(selected_overlap, float)
    if not len(s):
        return None
    return c > s if per_prompt else bool(c.mean() > s.mean())


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
        """The distillation term per token; `aux_loss` is its numpy twin. Raises ValueError without its columns."""
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
