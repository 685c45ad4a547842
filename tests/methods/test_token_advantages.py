"""Advantages of tokens go with that of their rollout: who changes the one changes the others, and who changes none keeps them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from workbench.methods.duet import Duet
from workbench.methods.ettrl import Ettrl
from workbench.pipeline import catalog
from workbench.stages import Method
from workbench.testing.scripted import ScriptedWorld, draft_of
from workbench.types import Advantage, Draft, Plan, Ragged

ESTIMATING = [cls() for cls in catalog.methods().values() if "estimate" in cls().verbs]


def before(estimating: Method) -> tuple[Draft, Advantage, object]:
    """A draft of 24 rollouts, advantages told by token, and the method's first state."""
    world = ScriptedWorld(6, null=0.0)
    plan = Plan(np.arange(6), np.full(6, 4), memory={"duet.p_pre": np.full(6, 0.5)})
    rows = world.sample(plan)
    rows = rows.with_(group=rows.prompt)
    rng = np.random.default_rng(0)
    tokens = Ragged(rng.standard_normal(int(rows.length.sum())), rows.tokens.offsets)
    start = replace(Advantage.start(rows), value=tokens.mean(), tokens=tokens)
    return draft_of(rows).with_(plan=plan), start, estimating.init(world.pool)


@pytest.mark.parametrize("method", ESTIMATING, ids=lambda m: m.name)
def test_no_token_keeps_the_advantage_of_another_estimate(method: Method) -> None:
    draft, start, state = before(method)
    made = method.estimate(state, start, draft, np.random.default_rng(1))
    moved = np.flatnonzero(made.keep & ~np.isclose(made.value, start.value))
    if made.tokens is None:
        assert len(moved)
    else:
        assert not [i for i in moved if np.array_equal(made.tokens.row(i), start.tokens.row(i))]


@pytest.mark.parametrize("method", [Ettrl(labels="verifier"), Duet()], ids=lambda m: m.name)
def test_a_rollout_is_scaled_with_its_tokens(method: Method) -> None:
    draft, start, state = before(method)
    made = method.estimate(state, start, draft, np.random.default_rng(1))
    factor = made.value / start.value
    assert (~np.isclose(factor, 1)).sum() > 8
    assert made.tokens.values == pytest.approx(start.tokens.values * np.repeat(factor, start.tokens.lengths))


def test_tokens_are_clipped_one_by_one() -> None:
    method = Ettrl(labels="verifier", reshape="clip", beta=0.5)
    draft, start, state = before(method)
    made = method.estimate(state, start, draft, np.random.default_rng(1))
    assert made.tokens.values.tolist() == np.clip(start.tokens.values, -0.5, 0.5).tolist()
