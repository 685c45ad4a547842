"""Hints of a prompt pool, and asks that a method adds to a plan: behind a hint, from inside a rollout, or plainly.

The worked solution of a prompt, a hint in parts, is the pool's column `reference` (N,) str. Hinted rollouts carry a context,
so that they never count as evidence of difficulty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from workbench.types import Node, Plan, Pool, Resume, Text


def references(pool: Pool) -> np.ndarray:
    """(N,) object: the worked solution of each prompt, "" where there is none."""
    column = pool.extra.get("reference")
    if column is None:
        return np.full(len(pool), "", dtype=object)
    return np.array(["" if r is None else str(r) for r in column], dtype=object)


class Ask(NamedTuple):
    """n rollouts of one prompt, to be trained on: where they begin (None = at the prompt), their context, and why."""

    prompt: int
    n: int
    start: Text | Node | Resume | None = None
    context: str = ""
    why: Mapping[str, float] = MappingProxyType({})


def with_asks(plan: Plan, asks: Sequence[Ask]) -> Plan:
    """The plan with more asks behind its own; NaN where one has no figure of a name."""
    if not asks:
        return plan
    start = np.empty(len(asks), dtype=object)
    for i, ask in enumerate(asks):  # one by one: numpy would take a Text for a row of two
        start[i] = ask.start
    added = Plan(
        np.array([ask.prompt for ask in asks], np.int64),
        np.array([ask.n for ask in asks], np.int64),
        start=start,
        context=np.array([ask.context for ask in asks], dtype=object),
        why={name: np.array([ask.why.get(name, np.nan) for ask in asks]) for ask in asks for name in ask.why},
    )
    return Plan.concat([plan, added])
