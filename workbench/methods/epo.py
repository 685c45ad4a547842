"""EPO: an entropy bonus that keeps entropy near its history, weighed by the phase of training."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Literal, NamedTuple

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
        """-c_entropy (H - c_smooth weight outside) per token, outside = how far H left low .. high times the history.

        paper: the distance relative to the reference, where that is positive; code: a constant, without gradient."""
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
                below, above = torch.relu(self.low * reference - h), torch.relu(h - self.high * reference)
                outside = (below + above) / (reference if reference > 0 else 1.0)
        weight = phase_weight(min(state.step, self.epochs), self.epochs) if self.weighted else 1.0
        term = -self.c_entropy * (h - self.c_smooth * weight * outside)
        stats = {"outside": outside.detach(), "phase_weight": torch.tensor(float(weight))}
        return Loss(torch.where(mask, term, zero), reduction="token_mean", stats=stats)
