"""Methods of different papers in one pipeline: any selector with any allocator, changed in mid-run, folded later."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.pipeline import Pipeline, catalog, run
from workbench.stages import Only
from workbench.testing.scripted import equal
from workbench.types import Budget
from workbench.worlds.sim.world import SimWorld

BUDGET = Budget(prompts=8, rollouts=48)


def acting(verb: str) -> list[str]:
    made = {slug: cls() for slug, cls in catalog.methods().items()}
    return [slug for slug, m in made.items() if verb in m.verbs and m.needs <= SimWorld.offers]


def world() -> SimWorld:
    return SimWorld(n_prompts=80, n_eval=4, seed=2)


@pytest.mark.parametrize("selector", acting("select"))
def test_every_selector_with_every_allocator(selector: str) -> None:
    for allocator in acting("allocate"):
        if allocator == selector:
            continue
        parts = [catalog.make("grpo"), *(m for m in (catalog.make(selector),) if m.name != "uniform")]
        allocating = catalog.make(allocator)
        pipeline = Pipeline(*parts, Only(allocating, "allocate"), catalog.make("mc_grpo"))
        assert pipeline.decider("allocate").name == allocator
        for _, step in run(pipeline, world(), BUDGET, steps=3):
            assert len(np.unique(step.rollouts.id)) == len(step.rollouts)
            assert np.isfinite(step.advantage.value).all()
            assert np.isin(step.plan.prompt, step.prompts).all()


@pytest.mark.parametrize("slug", sorted({*acting("select"), *acting("allocate")}))
def test_a_pipeline_is_changed_to_the_method_in_mid_run(slug: str) -> None:
    """The method was not running before; its state is that of a run in which it only watched."""
    here, method = world(), catalog.make(slug)
    before = Pipeline(catalog.make("grpo"))
    done = [step for _, step in run(before, here, BUDGET, steps=4)]
    after = Pipeline(catalog.make("grpo"), *([] if method.name == "uniform" else [method]))
    states = after.fold(here.pool, done)
    later = list(run(after, here, BUDGET, steps=4, start=5, states=states))
    assert [step.step for _, step in later] == [5, 6, 7, 8]
    assert equal(after.fold(here.pool, [*done, *(step for _, step in later)]), later[-1][0])


def test_swapping_the_allocator_leaves_the_selectors_luck_alone() -> None:
    first = [
        next(run(Pipeline(catalog.make("grpo"), catalog.make("mopps"), *more), world(), BUDGET, steps=1))[1].prompts
        for more in ([], [catalog.make("gdro", controller="rollout")], [catalog.make("brorl", n=12)])
    ]
    assert first[0].tolist() == first[1].tolist() == first[2].tolist()
