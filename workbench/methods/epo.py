"""EPO: an entropy bonus that keeps entropy near its history, weighed by the phase of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.stages import Card, Method
from workbench.types import Batch, Loss, Pool, Step

CARD = Card(
    slug="epo",
    title="EPO: entropy-regularized policy optimization for agents",
    arxiv="2509.22576",
    code="https://github.com/WujiangXu/EPO",
    source="C*",
    deviations=(
        "smoothing is the hinge, which has a gradient; mode=code is the authors' constant penalty, which has none",
        "single-turn rollouts are one environment step, so the reference is the mean entropy of the earlier batches and "
        "smoothing is on from the first of them",
    ),
    watch="entropy inside its band, share of tokens below and above it, phase weight",
)


def phase_weight(epoch: int, total_epochs: int) -> float:
    """1 - 0.2 (1 - exp(-2 e / h)) up to the half h = total // 2, then 0.8 exp(-3 (e - h) / (total - h))."""
    half = total_epochs // 2
    if epoch <= half:
        return 1 - 0.2 * (1 - exp(-2 * epoch / half)) if half else 1.0
    return 0.8 * exp(-3 * (epoch - half) / (total_epochs - half))


def history_mean(histories: Sequence[Sequence[float]], max_steps: int) -> np.ndarray | None:
    """The authors' reference (max_steps,): shorter episodes padded with zeros in front; None without history.

    An episode that stopped early counts at the last steps and pulls the first ones down."""
    if not histories:
        return None
    rows = np.zeros((len(histories), max_steps))
    for row, h in zip(rows, histories, strict=True):
        tail = list(h)[-max_steps:]
        row[max_steps - len(tail) :] = tail
    return rows.mean(0)


def history_mean_by_step(histories: Sequence[Sequence[float]], max_steps: int) -> np.ndarray:
    """Mean entropy of every environment step (max_steps,) over the episodes that reached it; NaN where none did."""
    total, n = np.zeros(max_steps), np.zeros(max_steps)
    for h in histories:
        row = np.asarray(h, float)[:max_steps]
        total[: len(row)] += row
        n[: len(row)] += 1
    return np.where(n > 0, total / np.maximum(n, 1), np.nan)


def smoothing_penalty(
    entropy: ArrayLike, reference: ArrayLike, low: float = 0.0, high: float = 2.0, penalty: float = 0.1
) -> np.ndarray:
    """(n,) 0 strictly inside low x reference .. high x reference, else the constant: no gradient (authors')."""
    h, ref = np.asarray(entropy, float), np.asarray(reference, float)
    return np.where((h > low * ref) & (h < high * ref), 0.0, penalty)


class Hinge(NamedTuple):
    """penalty (n,), and its gradient by the entropy (n,)."""

    penalty: np.ndarray
    grad: np.ndarray


def smoothing_hinge(entropy: ArrayLike, reference: ArrayLike, low: float = 0.0, high: float = 2.0) -> Hinge:
    """Distance outside the band relative to the reference (n,); a reference of 0 or less counts as 1."""
    h, ref = np.asarray(entropy, float), np.asarray(reference, float)
    ref_ = np.where(ref > 0, ref, 1.0)
    below, above = np.maximum(low * ref - h, 0), np.maximum(h - high * ref, 0)
    return Hinge((below + above) / ref_, ((above > 0).astype(float) - (below > 0)) / ref_)


class EpoLoss(NamedTuple):
    """Token means of entropy and penalty over the mask, and the loss."""

    entropy: float
    penalty: float
    loss: float


def epo_loss(
    pg_loss: float,
    entropy: ArrayLike,
    penalty: ArrayLike,
    mask: ArrayLike,
    c_entropy: float = 0.001,
    c_smooth: float = 1.0,
    weight: float = 1.0,
) -> EpoLoss:
    """pg_loss - c_entropy (mean H - c_smooth weight mean penalty); (B, T) inputs, 0 for an empty mask."""
    valid = np.asarray(mask, float) > 0
    n = max(int(valid.sum()), 1)
    h = float(np.where(valid, np.asarray(entropy, float), 0.0).sum() / n)
    p = float(np.where(valid, np.asarray(penalty, float), 0.0).sum() / n)
    return EpoLoss(h, p, pg_loss - c_entropy * (h - c_smooth * weight * p))


class History(NamedTuple):
    """Sum of the mean entropies of past batches, and how many; steps so far."""

    total: float
    n: int
    step: int


@dataclass(frozen=True)
class Epo(Method):
    """A penalty beside any loss: minus entropy, plus the distance outside the band around its history.

    epochs: training steps of the whole run, for the phase weight; weighted=False leaves it at 1.
    """

    mode: Literal["paper", "code"] = "paper"
    c_entropy: float = 0.001
    c_smooth: float = 1.0
    low: float = 0.0
    high: float = 2.0
    penalty_size: float = 0.1
    weighted: bool = True
    epochs: int = 150

    card = CARD

    def init(self, pool: Pool) -> History:
        """No history."""
        return History(0.0, 0, 0)

    def observe(self, state: History, step: Step) -> History:
        """The mean token entropy of the step's training rollouts enters the history."""
        r = step.rollouts
        if r.entropy is None:
            return state._replace(step=step.step)
        values = r.entropy.take(r.purpose == "train").values
        if not len(values):
            return state._replace(step=step.step)
        return History(state.total + float(values.mean()), state.n + 1, step.step)

    def penalty(self, state: History, batch: Batch) -> Loss:
        """The entropy terms per token, c_entropy inside; `epo_loss` is their numpy twin."""
        import torch

        mask, zero = batch.mask.bool(), torch.zeros_like(batch.entropy)
        h = torch.where(mask, batch.entropy, zero)
        outside = zero
        if state.n:
            reference = state.total / state.n
            if self.mode == "code":
                inside = (h > self.low * reference) & (h < self.high * reference)
                outside = torch.where(inside, zero, torch.full_like(h, self.penalty_size))
            else:
                below, above = (self.low * reference - h).clamp(min=0), (h - self.high * reference).clamp(min=0)
                outside = (below + above) / (reference if reference > 0 else 1.0)
        weight = phase_weight(min(state.step, self.epochs), self.epochs) if self.weighted else 1.0
        term = -self.c_entropy * (h - self.c_smooth * weight * outside)
        stats = {"outside": outside.detach(), "phase_weight": torch.tensor(float(weight))}
        return Loss(torch.where(mask, term, zero), reduction="token_mean", stats=stats)
