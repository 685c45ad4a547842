"""Hints in front of rollouts: put there and taken away again, in every column that has a value per token."""

from __future__ import annotations

import numpy as np
from contract.scripted import rollouts_of

from workbench.numerics.roles import hint_lengths, with_hints, without_hints
from workbench.types import Ragged

TOKENS = Ragged.of([[5, 6], [7], []], np.int32)
LOGP = Ragged.of([[-0.5, -1.0], [-2.0], []], np.float32)
HINTS = Ragged.of([[1], [], [2, 3]], np.int32)
TOLD = Ragged.of([[-9.0], [], [-8.0, -7.0]], np.float32)


def rows():
    per_token, other = Ragged.of([[4, 4], [5], []], np.int32), Ragged.of([[1.0], [2.0], [3.0]], float)
    extra = {"token_version": per_token, "teacher_logp": LOGP, "step_scores": other, "forced": np.ones(3, bool)}
    return rollouts_of([[1, 0, 0]]).with_(
        tokens=TOKENS, logp=LOGP, entropy=LOGP, length=np.array([2, 1, 0]), extra=extra
    )


def test_hints_stand_in_front():
    made = with_hints(rows(), {"tokens": HINTS, "logp": TOLD, "entropy": TOLD}, version=6)
    assert [row.tolist() for row in made.tokens.rows()] == [[1, 5, 6], [7], [2, 3]]
    assert [row.tolist() for row in made.role.rows()] == [[1, 0, 0], [0], [1, 1]]
    assert [row.tolist() for row in made.logp.rows()] == [[-9.0, -0.5, -1.0], [-2.0], [-8.0, -7.0]]
    assert [row.tolist() for row in made.extra["token_version"].rows()] == [[6, 4, 4], [5], [6, 6]]
    assert [row.tolist() for row in made.extra["teacher_logp"].rows()] == [[0.0, -0.5, -1.0], [-2.0], [0.0, 0.0]]
    assert made.extra["step_scores"].values.tolist() == [1.0, 2.0, 3.0]  # one per step, not per token
    assert made.length.tolist() == [2, 1, 0]
    assert hint_lengths(made).tolist() == [1, 0, 2]


def test_without_them_the_rows_are_what_they_were():
    back = without_hints(with_hints(rows(), {"tokens": HINTS, "logp": TOLD, "entropy": TOLD}, version=6))
    assert back.role is None
    for name in ("tokens", "logp", "entropy"):
        assert getattr(back, name).values.tolist() == getattr(rows(), name).values.tolist()
        assert getattr(back, name).offsets.tolist() == getattr(rows(), name).offsets.tolist()
    assert back.extra["token_version"].values.tolist() == [4, 4, 5]
    assert hint_lengths(rows()).tolist() == [0, 0, 0]
    assert without_hints(rows()).tokens is TOKENS
