"""A real run for the tests: a simulated world, failures, carried rollouts, and a swap of the pipeline in mid-run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from workbench.pipeline import Pipeline, advance
from workbench.stages import BaseWorld
from workbench.store.rows.rebuild import merged
from workbench.types import Budget, Plan, Step
from workbench.worlds.sim.world import SimWorld

SEED = 3
BUDGET = Budget(prompts=4, rollouts=16)
PIPELINES = ("grpo + mopps", "grpo + mc_grpo + vade")


class Planned(Exception):
    """Carries a plan out of `advance`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan


class Planning(BaseWorld):
    """A world that does not answer: it gives back the first plan it is asked for."""

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


def parts_of(step: Step, ranks: int) -> list[Step]:
    """The step as several ranks record it: each has every so manieth prompt, with all its asks and rollouts."""
    r, plan, a = step.rollouts, step.plan, step.advantage
    prompts = np.unique(plan.prompt)
    made = []
    for rank in range(ranks):
        mine = prompts[rank::ranks]
        asks, rows = np.isin(plan.prompt, mine), np.isin(r.prompt, mine)
        place = np.cumsum(asks) - 1  # of an ask among mine
        columns = ("prompt", "n", "max_tokens", "start", "purpose", "context", "ordinal", "round")
        why = {name: column[asks] for name, column in plan.why.items()}
        taken = r.take(rows)
        group = np.unique(taken.group, return_inverse=True)[1]
        advantage = replace(
            a, **{c: getattr(a, c)[rows] for c in ("value", "keep", "weight", "baseline", "reason")},
            tokens=None if a.tokens is None else a.tokens.take(rows),
        )  # fmt: skip
        made.append(
            replace(
                step, prompts=step.prompts[np.isin(step.prompts, mine)], advantage=advantage,
                plan=replace(plan, **{c: getattr(plan, c)[asks] for c in columns}, why=why),
                rollouts=taken.with_(ask=np.where(taken.ask < 0, -1, place[taken.ask]), group=group),
                fate=step.fate[rows], fate_reason=step.fate_reason[rows],
                update={k: v[rows] if np.ndim(v) else v for k, v in step.update.items()},
            )
        )  # fmt: skip
    return made


def ranked_run(steps: int, swap: int, ranks: int) -> Iterator[tuple[Pipeline, dict, list[Step], Step]]:
    """(pipeline, its states before the step, what each rank records, the step as all see it), from step 1."""
    world, done = make_world(), []
    for number in range(1, steps + 1):
        pipeline = pipeline_of(number, swap)
        before = {m.name: m.init(world.pool) for m in pipeline.methods}
        for step in done:
            before = pipeline.observe(before, step)
        _, made = advance(pipeline, before, world, BUDGET, step=number, seed=SEED)
        parts = parts_of(spoiled(made), ranks)
        done.append(merged(parts))
        yield pipeline, before, parts, done[-1]
