"""Second passes within a step: asks of earlier rounds that may be asked again, with a hint before the answer.

A prompt's hint comes from the pool's own columns: `reference` (N,) str, a worked solution, or `strategies` (N,), a list
of short texts each. Hinted rollouts carry a context, so that they never count as evidence of difficulty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from workbench.types import Draft, Node, Plan, Pool, Resume, Text

LATER = "hint.later"
"""Column of `why`: rollouts of the ask that wait for the hinted pass. Who waits for something else has a column of its own,
whose name ends alike."""


def references(pool: Pool) -> np.ndarray:
    """(N,) object: the worked solution of each prompt, "" where there is none."""
    column = pool.extra.get("reference")
    if column is None:
        return np.full(len(pool), "", dtype=object)
    return np.array(["" if r is None else str(r) for r in column], dtype=object)


def strategies(pool: Pool) -> list[tuple[str, ...]]:
    """The strategy texts of each prompt, none where the pool has no column `strategies`; a text is read line by line."""
    column = pool.extra.get("strategies")
    if column is None:
        return [()] * len(pool)
    rows = [row.splitlines() if isinstance(row, str) else row for row in column]
    return [() if row is None else tuple(map(str, row)) for row in rows]


def hold_back(plan: Plan, rows: np.ndarray, n_later: np.ndarray, name: str = LATER) -> Plan:
    """The plan with n_later (K,) rollouts of the asks `rows` (K,) put off to the next round, and noted in `why` under name."""
    n, later = plan.n.copy(), np.zeros(len(plan))
    n[rows] -= n_later
    later[rows] = n_later
    plan = plan.asking(n)
    return replace(plan, why={**plan.why, name: later})


def waiting(draft: Draft, name: str = LATER) -> tuple[np.ndarray, np.ndarray]:
    """(K,) asks of the round before, rows of the draft's plan, of which (K,) int64 rollouts were put off under name."""
    plan = draft.plan
    if plan is None or draft.rollouts is None or name not in plan.why:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    later = np.nan_to_num(plan.why[name]).astype(np.int64)
    rows = np.flatnonzero((later > 0) & (plan.round == draft.round - 1))
    return rows, later[rows]


def plain_rewards(draft: Draft, prompt: int) -> np.ndarray:
    """Scored rewards of a prompt's plain training rollouts in this step."""
    r = draft.rollouts
    mine = (r.prompt == prompt) & (r.context == "") & (r.purpose == "train") & np.isfinite(r.reward)
    return r.reward[mine]


def with_asks(
    plan: Plan,
    prompts: Sequence[int],
    n: Sequence[int],
    starts: Sequence[Text | Node | Resume | None],
    contexts: Sequence[str],
    why: Mapping[str, Sequence[float]] | None = None,
) -> Plan:
    """The plan with hinted asks behind its own."""
    if not len(prompts):
        return plan
    start = np.empty(len(starts), dtype=object)
    for i, s in enumerate(starts):  # one by one: numpy would take a Text for a row of two
        start[i] = s
    hinted = Plan(
        np.asarray(prompts, np.int64),
        np.asarray(n, np.int64),
        start=start,
        context=np.array(contexts, dtype=object),
        why={k: np.asarray(v, float) for k, v in (why or {}).items()},
    )
    return Plan.concat([plan, hinted])
