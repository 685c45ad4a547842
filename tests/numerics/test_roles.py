"""Hints in front of rollouts: put there and taken away again, in every column that has a value per token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workbench.numerics.roles import all_tokens, hint_lengths, own_tokens, per_token, with_hints, without_hints
from workbench.testing.scripted import rollouts_of
from workbench.types import Advantage, Ragged

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


def test_rows_of_which_a_column_tells_nothing_stay_empty_in_it():
    column = Ragged.of([[], [-2.0], []], np.float32)
    assert per_token(column, TOKENS)
    assert not per_token(Ragged.of([[], [], []], np.float32), TOKENS)
    assert not per_token(Ragged.of([[1.0], [2.0], []], np.float32), TOKENS)
    hints = Ragged.of([[1], [8, 9], [2, 3]], np.int32)
    told = Ragged(-hints.values.astype(np.float32), hints.offsets)
    made = with_hints(
        rows().with_(extra={"teacher_logp": column}), {"tokens": hints, "logp": told, "entropy": told}, version=6
    )
    assert [row.tolist() for row in made.extra["teacher_logp"].rows()] == [[], [0.0, 0.0, -2.0], [0.0, 0.0]]
    assert [row.tolist() for row in without_hints(made).extra["teacher_logp"].rows()] == [[], [-2.0], []]


def test_the_tokens_of_hints_keep_their_advantage():
    made = with_hints(rows(), {"tokens": HINTS, "logp": TOLD, "entropy": TOLD}, version=6)
    told = Ragged.of([[9.0, 1.0, 1.0], [2.0], [8.0, 8.0]], float)
    before = replace(Advantage.start(made), value=np.array([1.0, 2.0, 3.0]), tokens=told)
    own = own_tokens(before, made)
    assert [row.tolist() for row in own.tokens.rows()] == [[1, 1], [2], []]
    shaped = replace(own, tokens=Ragged(own.tokens.values * 10, own.tokens.offsets))
    assert [row.tolist() for row in all_tokens(shaped, before, made).tokens.rows()] == [[9, 10, 10], [20], [8, 8]]
    plain = replace(own, value=-own.value, tokens=None)  # one number per row again
    assert [row.tolist() for row in all_tokens(plain, before, made).tokens.rows()] == [[9, -1, -1], [-2], [8, 8]]
    first = replace(before, tokens=None)  # nobody has said anything of hints yet
    assert [row.tolist() for row in all_tokens(shaped, first, made).tokens.rows()] == [[1, 10, 10], [20], [3, 3]]
    assert all_tokens(plain, first, made).tokens is None
