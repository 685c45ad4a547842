"""Promises about advantages, and about whole runs: finite values, nulls left out, one fate for each rollout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workbench.pipeline import advance, run
from workbench.stages import Effect, Method
from workbench.testing.promise import promise
from workbench.testing.scripted import ScriptedWorld, Uneven, equal
from workbench.testing.trials import (
    BUDGET,
    draft_after,
    history,
    pipeline_of,
    played,
    rng,
    uneven_draft,
    world_for,
)
from workbench.types import Advantage, Budget, Draft, Rollouts, Step


def estimated(method: Method, draft: Draft) -> Advantage:
    """What the pipeline with this method makes of a draft."""
    advantage = Advantage.start(draft.rollouts)
    pool = world_for(method).pool
    for m in pipeline_of(method).actors("estimate"):
        advantage = m.estimate(m.init(pool), advantage, draft, rng())  # type: ignore[attr-defined]
    return advantage


@promise("estimate")
def replaces(cls: type[Method]) -> None:
    """It says so where it replaces the advantages that stand before it."""
    method, draft = cls(), draft_after(pipeline_of(cls()).methods[1])[1]
    start, state = Advantage.start(draft.rollouts), method.init(world_for(method).pool)
    assert start.keep.sum() > 8
    values = np.random.default_rng(0).standard_normal((2, len(start.keep))) * start.keep
    first, second = (method.estimate(state, replace(start, value=v), draft, rng()) for v in values)  # type: ignore[attr-defined]
    alike = equal(first.value, second.value) and equal(first.tokens, second.tokens)
    assert alike == (Effect.REPLACES_ADVANTAGES in method.effects)


@promise("estimate")
def finite(cls: type[Method]) -> None:
    """Its advantages are finite, and rollouts without a reward stay out."""
    method = cls()
    draft = uneven_draft(method)
    got = estimated(method, draft)
    for name in ("value", "keep", "weight", "baseline", "reason"):
        assert getattr(got, name).shape == (len(draft.rollouts),), name
    assert got.keep.dtype == bool
    assert np.isfinite(got.value).all()
    null = ~np.isfinite(draft.rollouts.reward)
    assert null.any()
    assert not got.keep[null].any()
    assert (got.value[null] == 0).all()
    assert (got.reason[null] == "null_reward").all()
    assert ((got.reason == "") == got.keep).all()


@promise("estimate")
def settled(cls: type[Method]) -> None:
    """A group whose rewards are all alike gets zeros."""
    method = cls()
    draft = uneven_draft(method)
    same = np.where(np.isfinite(draft.rollouts.reward), 0.1, np.nan)
    alike = draft.rollouts.with_(reward=same, rewards=dict.fromkeys(draft.rollouts.rewards, same))
    assert (estimated(method, draft.with_(rollouts=alike)).value == 0).all()


@promise("estimate")
def permuted(cls: type[Method]) -> None:
    """Permuting rollouts permutes advantages, up to which of several equal rollouts of a group is meant."""
    method = cls()
    draft = uneven_draft(method)
    order = np.random.default_rng(1).permutation(len(draft.rollouts))
    one, two = estimated(method, draft), estimated(method, draft.with_(rollouts=draft.rollouts.take(order)))

    def rows(rollouts: Rollouts, advantage: Advantage) -> list[tuple]:
        columns = (rollouts.group, np.nan_to_num(rollouts.reward, nan=-1), advantage.value, advantage.keep)
        return sorted(zip(*(np.round(np.asarray(c, float), 9).tolist() for c in columns), strict=True))

    assert rows(draft.rollouts, one) == rows(draft.rollouts.take(order), two)


@promise("estimate")
def no_rollouts(cls: type[Method]) -> None:
    """A step without rollouts is no error."""
    method = cls()
    draft = uneven_draft(method)
    none = draft.with_(rollouts=draft.rollouts.take(np.empty(0, np.int64)), fresh=draft.fresh[:0])
    assert len(estimated(method, none).value) == 0


@promise()
def one_fate(cls: type[Method]) -> None:
    """Every rollout of a run has one fate."""
    for _, done in history(cls(), 4, Uneven()):
        r = done.rollouts
        assert len(np.unique(r.id)) == len(r)
        assert len(done.fate) == len(r)
        assert (r.ask >= 0).sum() == done.plan.n.sum()  # the others are replayed, or came from elsewhere
        assert ((done.fate == "trained") == (done.advantage.keep & (r.failure == ""))).all()
        assert ((done.fate == "failed") == (r.failure != "")).all()


@promise()
def same_seed(cls: type[Method]) -> None:
    """One seed gives one run."""
    for (_, a), (_, b) in zip(played(cls(), 4), history(cls(), 4), strict=True):
        assert equal(a.rollouts, b.rollouts)
        assert equal(a.advantage, b.advantage)


@promise()
def taken_over(cls: type[Method]) -> None:
    """A run can change to it at any step, and away from it."""
    method = cls()
    first, second, world = pipeline_of(Uneven()), pipeline_of(method), world_for(method)
    done = [step for _, step in run(first, world, BUDGET, steps=3)]
    states = second.fold(world.pool, done)
    later = list(run(second, world, BUDGET, steps=2, start=4, states=states))
    states, done = later[-1][0], done + [step for _, step in later]
    assert [s.step for s in done] == [1, 2, 3, 4, 5]
    assert equal(second.fold(world.pool, done), states)
    back = first.fold(world.pool, done)
    assert isinstance(next(run(first, world, BUDGET, steps=1, start=6, states=back))[1], Step)


@promise()
def small_pool(cls: type[Method]) -> None:
    """A pool smaller than the batch is asked once, and the step ends."""
    method = cls()
    world = ScriptedWorld(4, method.needs, null=0)
    pipeline = pipeline_of(method)
    _, done = advance(pipeline, pipeline.init(world.pool), world, Budget(prompts=6, rollouts=24), step=1)
    assert sorted(done.prompts.tolist()) == [0, 1, 2, 3]
