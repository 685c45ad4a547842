"""Several verifiers of one pool: each prompt is judged by the one that a column names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.tasks.verifiers import Verdicts, Verifier
from workbench.types import Pool


@dataclass(frozen=True, eq=False)
class BySet:
    """Judges every prompt by the verifier of its set; prompts of a pool without sets by the first.

    column: the extra column of the pool that says which verifier."""

    verifiers: Mapping[str, Verifier]
    column: str = "set"

    def __call__(self, text: Sequence[str], pool: Pool, rows: np.ndarray) -> Verdicts:
        """R verdicts, in order; a reward part that a set's verifier does not give is NaN there."""
        rows = np.asarray(rows)
        named = pool.extra[self.column][rows] if self.column in pool.extra else np.full(len(rows), "", dtype=object)
        n = len(rows)
        answer = np.full(n, None, dtype=object)
        failure, message = np.full((2, n), "", dtype=object)
        reward, correct = np.full((2, n), np.nan)
        parts: dict[str, np.ndarray] = {}
        for name, verifier in self.verifiers.items():
            mine = np.flatnonzero(named == name)
            if not len(mine):
                continue
            verdicts = verifier([text[int(i)] for i in mine], pool, rows[mine])
            answer[mine], failure[mine] = verdicts.answer, verdicts.failure
            if verdicts.message is not None:
                message[mine] = verdicts.message
            reward[mine], correct[mine] = verdicts.reward, verdicts.correct
            for part, value in verdicts.parts.items():
                parts.setdefault(part, np.full(n, np.nan))[mine] = value
        return Verdicts(answer, reward, correct, parts, failure, message)
