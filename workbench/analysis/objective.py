"""Importance ratio, clipping and gradient of every token under an objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from workbench.stages import Method, State

if TYPE_CHECKING:
    import torch

    from workbench.types import Batch, Loss

WEIGHTS = ("importance", "center")
"""Names under which objectives report a weight beside the ratio, in Loss.stats."""

CLIPS = ("clipped", "clip_low", "clip_high", "truncated", "filtered")
"""Names under which they report tokens whose gradient the clip stops or whose weight it changes."""


class Tokens(NamedTuple):
    """(B, T) each, 0 outside the mask: ratio; weight; clipped bool; coefficient = -d term / d logp, before reduction.

    A positive coefficient makes the token more likely, behind its hint or, for a distillation, behind the plain prompt.
    Where a term couples the tokens of a row, it is the sum of what the whole row's terms push at this token."""

    ratio: torch.Tensor
    weight: torch.Tensor
    clipped: torch.Tensor
    coefficient: torch.Tensor


def tokens(method: Method, state: State, batch: Batch, verb: str = "loss") -> Tokens:
    """Look at an objective (verb "loss" or "penalty") on a batch; its logp is taken as a fresh variable.

    ratio is pi / pi_proximal where the objective names none. Raises ValueError where the method lacks the verb."""
    import torch

    if verb not in ("loss", "penalty") or verb not in method.verbs:
        raise ValueError(f"{method!r} has no {verb!r} to look at; it acts at {', '.join(method.verbs)}")
    logp = batch.logp.detach().clone().requires_grad_()
    learned = {n: c.detach().clone().requires_grad_() for n, c in batch.extra.items() if n == "plain_logp"}
    made: Loss = getattr(method, verb)(state, batch._replace(logp=logp, extra={**batch.extra, **learned}))
    mask = batch.mask.bool()
    zero = torch.zeros_like(batch.logp.detach())
    pushed = (made.term * mask * (1 if made.weight is None else made.weight)).sum()
    grad = zero
    if pushed.requires_grad:
        found = torch.autograd.grad(pushed, [logp, *learned.values()], allow_unused=True)
        grad = sum((g for g in found if g is not None), zero)
    stats: Mapping[str, torch.Tensor] = made.stats
    drift = torch.where(mask, logp.detach() - batch.proximal, zero).clamp(-20, 20)
    weight = torch.ones_like(zero) if made.weight is None else made.weight.detach()
    for name in WEIGHTS:
        if name in stats:
            weight = weight * stats[name]
    clipped = torch.zeros_like(mask)
    for name in CLIPS:
        if name in stats:
            clipped = clipped | (stats[name] > 0)
    return Tokens(
        torch.where(mask, stats.get("ratio", drift.exp()).expand_as(zero), zero),
        torch.where(mask, weight.expand_as(zero), zero),
        clipped & mask,
        torch.where(mask, -grad, zero),
    )
