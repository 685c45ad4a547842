"""How many rollouts of what: plans and selections that methods make."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.vectors.calls import calls
from workbench.methods import nudgerl
from workbench.types import Plan


class _Drawn:
    """A generator whose uniform draws are given."""

    def __init__(self, draws: Sequence[float]) -> None:
        self.draws = np.asarray(draws, float)

    def random(self, n: int) -> np.ndarray:
        """The first n of them."""
        return self.draws[:n]


@calls("nudgerl", "split_rollouts")
def split_rollouts(dropped: Sequence[int], K: int) -> dict:
    """A plan of M K plain rollouts over M hints, of which the first `dropped` of each lose theirs."""
    m = len(dropped)
    for d in dropped:
        if not 0 <= d <= K:
            raise ValueError(f"{d} of {K} rollouts of a hint cannot lose it")
    hint, turn = np.arange(m * K) % m, np.arange(m * K) // m
    draws = np.where(turn < np.asarray(dropped)[hint], 0.0, 1.0)
    state = nudgerl.Strategies([tuple(f"hint {i}" for i in range(m))], np.zeros(1), np.zeros(1))
    method = nudgerl.Nudgerl(hints=m, p_drop=0.5)
    plan = method.amend(state, Plan(np.zeros(1, np.int64), np.array([m * K])), None, _Drawn(draws))  # type: ignore[arg-type]
    names = [c.replace("strategy:", "hint") or "dropout" for c in plan.context]
    return {"sizes": {name: n for name, n in zip(names, plan.n.tolist(), strict=True) if n}, "total": plan.n_rollouts}
