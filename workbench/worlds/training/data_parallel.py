"""Data parallel training: processes share the rows that are generated and the micro-batches of a step.

Every process holds all weights (or its part of them, see `fsdp`) and, once they have exchanged them, all rows. A token's
share in the loss is that of the whole step (see `microbatch`), so the sum over processes is the gradient that one process
would have had, however rows were dealt out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, overload

import numpy as np
import torch
import torch.distributed as dist

from workbench.parallel import processes
from workbench.types import Plan
from workbench.worlds.overlap.waiting import mark_of
from workbench.worlds.training.microbatch import Tally

T = TypeVar("T")


def check(plan: Plan) -> None:
    """Raise ProcessError where another process has planned something else: they would wait for each other, or take each
    other's rows for their own."""
    if processes.ranks() > 1:
        processes.check_same(mark_of(plan), f"plans for step {plan.step}")


@overload
def mine(batches: np.ndarray) -> np.ndarray: ...


@overload
def mine(batches: Sequence[T]) -> Sequence[T]: ...


def mine(batches):
    """The micro-batches that this process computes: every n-th, so that widths are spread evenly."""
    return batches[processes.rank() :: processes.ranks()]


def dealt(batches: Sequence[T], even: bool = False) -> list[tuple[T, bool]]:
    """`mine`, each with False; with even, a process that has one less than others gets another's once more, with True."""
    own = [(batch, False) for batch in mine(batches)]
    short = -(-len(batches) // processes.ranks()) > len(own)
    return [*own, (batches[0], True)] if even and short else own


@torch.no_grad()
def add_up(
    parameters: Sequence[torch.nn.Parameter],
    tally: Tally,
    tallies: Sequence[Tally],
    columns: Sequence[np.ndarray],
    device: torch.device,
) -> None:
    """Sum gradients, the tallies of all processes, and (R,) columns over the processes, in place; nothing to do in
    a single one.

    Columns are zero (or NaN, the same everywhere) where another process had the row. lr_scale and the statistics' names
    come from the first process that computed anything. A loss that is not finite in one is not finite in all.
    """
    if len(tallies) == 1:
        return
    worked = next((one for one in tallies if one.tokens), tallies[0])
    tally.lr_scale = worked.lr_scale
    for sums in ("stats", "counted"):
        summed: list[dict[str, float]] = [getattr(one, sums) for one in tallies]
        setattr(
            tally, sums, {n: sum(t.get(n, 0.0) for t in summed) for n in dict.fromkeys(n for t in summed for n in t)}
        )
    for name in ("loss", "gap", "kl", "tokens"):
        setattr(tally, name, sum(getattr(one, name) for one in tallies))
    for column in columns:
        whole = torch.from_numpy(column).to(device)
        dist.all_reduce(whole)
        column[:] = np.where(np.isnan(column), np.nan, whole.cpu().numpy())
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)
