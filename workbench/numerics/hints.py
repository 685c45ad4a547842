"""Second passes within a step: asks of earlier rounds that may be asked again, with a hint before the answer.

A prompt's hint comes from the pool's own columns: `reference` (N,) str, a worked solution, or `strategies` (N,), a list
of short texts each. Hinted rollouts carry a context, so that they never count as evidence of difficulty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from workbench.types import Draft, Node, Plan, Pool, Resume, Text


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
