"""KL penalty to the initial weights (k3 estimator): what keeps a policy near where it began.

The estimator is k3 (Schulman, "Approximating KL divergence", as in the GRPO paper, eq. 4): with d = log ref - log pi,
k3 = exp(d) - 1 - d, never negative, its mean over samples of pi is KL(pi || ref).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from workbench.types import Batch, Loss
from workbench.worlds.training import lora
from workbench.worlds.training.fsdp import exchanged

FAR = 20.0
"""Nats of log-ratio at which exp is cut off, so that one token cannot make a step infinite."""


def divergence(batch: Batch, coefficient: float) -> Loss:
    """coefficient * k3 of every token, against batch.extra["reference"] (B, T); stats: reference_kl.

    >>> # pi 0.5, ref 0.25: d = -0.693, k3 = 0.5 - 1 + 0.693 = 0.193
    """
    d = torch.where(batch.mask > 0, batch.extra["reference"] - batch.logp, 0.0).clamp(max=FAR)
    k3 = d.exp() - 1 - d
    return Loss(coefficient * k3, stats={"reference_kl": k3.detach()})


class Reference:
    """The initial weights: the model with its LoRA adapters off, or a frozen copy in the same dtype where it has none."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.kept = None if lora.present(model) else [p.detach().clone() for p in model.parameters()]

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Inside, the model computes with the initial weights. Not for passes whose gradient is taken."""
        if self.kept is None:
            with lora.off(self.model):
                yield
            return
        weights = list(self.model.parameters())
        if any(isinstance(p, DTensor) for p in weights):
            with exchanged(weights, self.kept):
                yield
            return
        current = [p.data for p in weights]
        try:
            for p, kept in zip(weights, self.kept, strict=True):
                p.data = kept
            yield
        finally:
            for p, mine in zip(weights, current, strict=True):
                p.data = mine
