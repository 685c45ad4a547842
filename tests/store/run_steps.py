"""A real run for the tests: a simulated world, failures, carried rollouts, and a swap of the pipeline in mid-run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from workbench.pipeline import Pipeline, advance
from workbench.types import Budget, Plan, Step
from workbench.worlds.sim import SimWorld

SEED = 3
BUDGET = Budget(prompts=4, rollouts=16)
PIPELINES = ("grpo + mopps", "grpo + mc_grpo + vade")


class Planned(Exception):
    """Carries a plan out of `advance`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan


class Planning:
    """A world that does not answer: it gives back the first plan it is asked for."""

    offers = frozenset()

    def __init__(self, pool) -> None:
        self.pool = pool

    def sample(self, plan, branch=None, prune=None):
        raise Planned(plan)


def make_world() -> SimWorld:
    """Small, always the same."""
    return SimWorld(n_prompts=24, n_eval=4, seed=SEED)


def pipeline_of(step: int, swap: int) -> Pipeline:
    """Who acts at a step."""
    return Pipeline.parse(PIPELINES[step >= swap])


def first_plan(pool, states, step: int, swap: int) -> Plan:
    """What the run would ask for first at a step, with these states."""
    try:
        advance(pipeline_of(step, swap), states, Planning(pool), BUDGET, step=step, seed=SEED)
    except Planned as planned:
        return planned.plan
    raise AssertionError("nothing was asked for")


def spoiled(step: Step) -> Step:
    """The step with a verifier that failed on some rows, and every third step one rollout carried on."""
    r = step.rollouts
    broken = np.arange(len(r)) % 11 == step.step % 11
    fate, reason = step.fate.copy(), step.fate_reason.copy()
    fate[broken], reason[broken] = "failed", "verifier"
    nothing = np.where(broken, np.nan, 1.0)
    failure = np.where(broken, "verifier", r.failure).astype(object)
    finish = r.finish.copy()
    if step.step % 3 == 0:
        row = int(np.flatnonzero(~broken)[0])
        fate[row], reason[row], finish[row] = "carried", "carried", "carried"
    rollouts = r.with_(reward=r.reward * nothing, correct=r.correct * nothing, failure=failure, finish=finish)
    return replace(step, rollouts=rollouts, fate=fate, fate_reason=reason)


def live_run(steps: int, swap: int) -> Iterator[tuple[Pipeline, dict, Step]]:
    """(pipeline, its states after the step, step), from step 1; a method that comes in with the swap folds what was."""
    world, done = make_world(), []
    states: dict = {}
    for number in range(1, steps + 1):
        pipeline = pipeline_of(number, swap)
        fresh = [m for m in pipeline.methods if m.name not in states]
        for method in fresh:
            states[method.name] = method.init(world.pool)
            for step in done:
                states[method.name] = method.observe(states[method.name], step)
        before = {m.name: states[m.name] for m in pipeline.methods}
        _, made = advance(pipeline, before, world, BUDGET, step=number, seed=SEED)
        made = spoiled(made)
        states |= pipeline.observe(before, made)
        done.append(made)
        yield pipeline, states, made
