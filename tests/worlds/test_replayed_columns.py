"""Rows of earlier steps beside rows that have a per-token column of their own: the column stays, and says what is not known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from workbench.methods.adhint import Adhint
from workbench.methods.grpo import Grpo
from workbench.methods.rlad import Rlad
from workbench.numerics.replay import appended, groups_of, renumbered, stored
from workbench.numerics.roles import hint_lengths, without_hints
from workbench.pipeline import Pipeline, run
from workbench.stages import Card, Method
from workbench.types import Budget, Loss, Ragged
from workbench.worlds.live.world import LiveWorld

from .conftest import toy_model, toy_tokenizer

BUDGET = Budget(prompts=3, rollouts=12)
NAMES = ("teacher_logp", "teacher_topk_logp", "token_version")


@dataclass(frozen=True)
class Again(Method):
    """The step before once more."""

    card = Card(slug="again", title="The step before once more, for tests", source="ours", watch="nothing")

    def init(self, pool):
        return None

    def observe(self, state, step):
        return stored([groups_of(step)])

    def replay(self, state, rollouts, draft, rng):
        if state is None:
            return rollouts
        return appended(rollouts, renumbered(state, int(rollouts.group.max()) + 1))


@dataclass(frozen=True)
class Watch(Method):
    """A penalty of nothing that keeps what the batch brought, row by row."""

    seen: dict

    card = Card(slug="watch", title="What the loss was given, for tests", source="ours", watch="nothing")

    def penalty(self, state, batch):
        for k, row in enumerate(batch.row.tolist()):
            n = int(batch.mask[k].sum())
            self.seen[row] = {name: batch.extra[name][k, :n].numpy() for name in NAMES if name in batch.extra}
        return Loss(torch.zeros_like(batch.logp))


@pytest.fixture
def world(task):
    """One that brings columns with the rollouts that it samples."""
    text = np.array([f"{a} b 3 d e" for a in range(len(task.pool))], dtype=object)
    task.pool = replace(task.pool, extra={"reference": text})
    made = LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3)
    made.offers |= {"teacher"}
    plainly = made.sample

    def sample(*what):
        rows = plainly(*what)
        numbers = np.arange(len(rows.tokens.values), dtype=np.float32)
        values = (-numbers, np.stack([-numbers, -1 - numbers], 1), numbers.astype(np.int32))
        columns = {name: Ragged(v, rows.tokens.offsets) for name, v in zip(NAMES, values, strict=True)}
        return rows.with_(extra={**rows.extra, **columns})

    made.sample = sample
    return made


@pytest.mark.parametrize("hints", [(), (Adhint(),)], ids=["plain", "behind hints"])
def test_replayed_rows_have_nothing_in_a_column_that_stays(world, hints):
    seen = {}
    steps = run(Pipeline(Grpo(), *hints, Again(), Watch(seen)), world, BUDGET, steps=2, seed=4)
    next(steps)
    seen.clear()
    _, step = next(steps)
    r, lead = step.rollouts, hint_lengths(step.rollouts)
    assert set(seen) == set(np.flatnonzero(step.advantage.keep & (r.tokens.lengths > 0)).tolist())
    for row, columns in seen.items():
        assert set(columns) == set(NAMES)
        own = {name: column[lead[row] :] for name, column in columns.items()}
        assert all(len(column) == r.length[row] for column in own.values())
        if r.ask[row] < 0:
            assert all(np.isnan(column).all() for column in own.values())
        else:
            for name, column in own.items():
                kept = r.extra[name].row(row)[lead[row] :]
                assert column.tolist() == kept.tolist()
                assert not np.isnan(column).any()
    assert {bool(r.ask[row] < 0) for row in seen} == {True, False}
    assert bool(lead.any()) == bool(hints)
    bare = without_hints(r)
    for name in NAMES:
        assert bare.extra[name].lengths.tolist() == np.where(r.ask < 0, 0, r.length).tolist()


def test_a_method_that_needs_the_column_refuses_rows_without(world):
    steps = run(Pipeline(Grpo(), Rlad(), Again()), world, BUDGET, steps=2, seed=4)
    next(steps)
    with pytest.raises(
        ValueError, match=r"rlad needs the teacher's log-probability of every token.*leave the replay out"
    ):
        next(steps)
