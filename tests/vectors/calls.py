"""The table of calls, and the batches and rollouts that they build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from workbench.types import Batch, Loss
from workbench.worlds.training.microbatch import shares


class Fields(dict):
    """A result by field name, as a mapping or as attributes."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)


CALLS: dict[tuple[str, str], Callable[..., Any]] = {}
"""(file, function) -> what to call in its place."""


def calls(file: str, function: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function in the table."""

    def enter(call: Callable[..., Any]) -> Callable[..., Any]:
        CALLS[file, function] = call
        return call

    return enter


def rows_of(column: ArrayLike) -> torch.Tensor:
    """(B, T) float64 of a matrix, or of the tokens (T,) of one row."""
    return torch.tensor(np.atleast_2d(np.asarray(column, float)))


def batch_of(
    logp: ArrayLike,
    advantage: ArrayLike = 0.0,
    mask: ArrayLike | None = None,
    *,
    proximal: ArrayLike | None = None,
    behaviour: ArrayLike | None = None,
    entropy: ArrayLike | None = None,
    **extra: torch.Tensor,
) -> Batch:
    """A micro-batch of float64 tensors whose logp and entropy carry gradients.

    advantage is a number, (B,) or (B, T); policies that are not given are the current one."""
    logp = rows_of(logp)
    valid = torch.ones_like(logp) if mask is None else rows_of(mask)
    a = torch.tensor(np.asarray(advantage, float))
    a = a[:, None] if a.ndim == 1 else a
    proximal_logp = logp if proximal is None else rows_of(proximal)
    return Batch(
        logp.clone().requires_grad_(),
        proximal_logp if behaviour is None else rows_of(behaviour),
        proximal_logp,
        a.expand(logp.shape),
        valid,
        (torch.zeros_like(logp) if entropy is None else rows_of(entropy)).requires_grad_(),
        torch.arange(len(logp)),
        extra,
    )


class Made(NamedTuple):
    """What an objective makes of a batch: loss, reduced as the trainer does; term (B, T) and its gradients, 0 outside the
    mask; stats (B, T) or scalars; grad_logp and grad_entropy (B, T) of the loss."""

    loss: float
    term: np.ndarray
    stats: dict[str, np.ndarray]
    grad_logp: np.ndarray
    grad_entropy: np.ndarray
    mask: np.ndarray
    lr_scale: float


def made(objective: Callable[[Any, Batch], Loss], batch: Batch, state: object = (), constant: int = 1) -> Made:
    """The objective's loss of the batch as one optimiser step, and its gradient. constant: tokens for const_len."""
    got = objective(state, batch)
    share = shares(batch.mask.sum(1).numpy(), constant)[got.reduction]
    term = got.term * batch.mask
    loss = (term * torch.tensor(share)[:, None]).sum()
    grads = [torch.zeros_like(batch.logp)] * 2
    if loss.requires_grad:
        found = torch.autograd.grad(loss, [batch.logp, batch.entropy], allow_unused=True)
        grads = [torch.zeros_like(batch.logp) if g is None else g for g in found]
    stats = {name: value.detach().numpy() for name, value in got.stats.items()}
    arrays = [g.numpy() for g in grads]
    return Made(loss.item(), term.detach().numpy(), stats, *arrays, batch.mask.numpy() > 0, got.lr_scale)


def like(column: ArrayLike, shape: ArrayLike) -> np.ndarray:
    """A column (B, T) in the shape of an argument, for tokens (T,) or numbers."""
    return np.asarray(column).reshape(np.shape(shape))


def share_of(flag: np.ndarray, mask: np.ndarray) -> float:
    """Share of the tokens of the mask at which a flag (B, T) is set."""
    return float((flag * mask).sum() / max(mask.sum(), 1))


def no_draws() -> np.random.Generator:
    """A generator for verbs that must not depend on it."""
    return np.random.default_rng(0)
