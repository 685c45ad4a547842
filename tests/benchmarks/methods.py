"""How far selection and allocation reach on one core: `python -m tests.benchmarks methods`.

Every method of the catalog that selects or allocates, in the simulated world, after steps that gave it evidence and
after a first call: selection from a million prompts, the state it keeps of them, what it costs to learn from a step,
and the allocation of a batch of 10,000 prompts. Each figure stands beside its target; ratio 1 is the target.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from tests.benchmarks.figure import Figure
from workbench.methods.dots_rr import DotsRr
from workbench.numerics.predictors import Context
from workbench.pipeline import Pipeline, advance, catalog
from workbench.pipeline.draws import generator
from workbench.stages import Method
from workbench.types import Budget, Draft
from workbench.worlds.sim.world import SimWorld

POOL, BATCH = 1_000_000, 10_000
SELECT_MS, ALLOCATE_MS, STATE_MB, ATTENTION_S = 300.0, 100.0, 200.0, 30.0
SETTINGS = {"gdro": "gdro(controller='rollout')", "mssr": "mssr(curriculum=True)"}
"""Methods whose verb is off by default."""
REPEATS = 5


def acting(verb: str) -> dict[str, Pipeline]:
    """Slug -> the method behind GRPO, for all whose verb can act in the simulated world."""
    made = {slug: _pipeline(SETTINGS.get(slug, slug)) for slug in catalog.find(verb)}
    return {slug: p for slug, p in made.items() if verb in p.methods[-1].verbs and p.needs <= SimWorld.offers}


def _pipeline(text: str) -> Pipeline:
    return Pipeline.parse(f"grpo, {text}")


def bench(case: str | None) -> Iterator[Figure]:
    """All methods, or the one named by the case; "attention" is the prediction of DOTS over the pool."""
    chosen = [{s: p for s, p in acting(verb).items() if case in (None, s)} for verb in ("select", "allocate")]
    if chosen[0]:
        yield from _selection(chosen[0], POOL, Budget(512, 4096))
    if chosen[1]:
        yield from _allocation(chosen[1], BATCH)
    if case in (None, "attention"):
        yield from _attention(POOL, 384)


def _selection(chosen: dict[str, Pipeline], n: int, budget: Budget) -> Iterator[Figure]:
    world = SimWorld(n_prompts=n, n_eval=10)
    for slug, pipeline in chosen.items():
        states = pipeline.init(world.pool)
        for number in (1, 2, 3):
            states, step = advance(pipeline, states, world, budget, step=number)
        method = pipeline.decider("select")
        state = states[method.name]
        draft = Draft(4, budget, np.ones(n, bool), np.empty(0, np.int64), wanted=budget.prompts)
        rngs = [generator(0, 4, k, "select", slug) for k in range(REPEATS)]
        note = f"{budget.prompts} of {n:,} prompts"
        yield from _timed(slug, "select", [partial(method.select, state, draft, rng) for rng in rngs], note, SELECT_MS)
        note = f"{len(step.rollouts):,} rollouts, {n:,} prompts"
        yield from _timed(slug, "observe", [partial(method.observe, state, step)] * 3, note)
        size = state_bytes(state, world.pool.features.values()) / 1e6
        yield Figure(
            slug, "state", size, "MB", "target", size / STATE_MB, f"{n:,} prompts, without the pool's own columns"
        )


def _allocation(chosen: dict[str, Pipeline], n: int) -> Iterator[Figure]:
    budget = Budget(n, 8 * n)
    for slug, pipeline in chosen.items():
        world = SimWorld(n_prompts=n, n_eval=10)
        states = pipeline.init(world.pool)
        for number in (1, 2):
            states, _ = advance(pipeline, states, world, budget, step=number)
        method = pipeline.decider("allocate")
        fresh = np.arange(n)
        draft = Draft(3, budget, np.ones(n, bool), fresh, wanted=0, fresh=fresh)
        yield from _allocated("allocate", slug, method, states[method.name], draft)
        plan = replace(method.allocate(states[method.name], draft, generator(0, 3, 0, "allocate", slug)), step=3)
        draft = draft.with_(round=1, fresh=np.empty(0, np.int64), plan=plan, rollouts=world.sample(plan))
        yield from _allocated("allocate_again", slug, method, states[method.name], draft)


def _allocated(metric: str, slug: str, method: Method, state: object, draft: Draft) -> Iterator[Figure]:
    """The first round of a batch, or the one after its rollouts came back."""
    rngs = [generator(0, 3, k, "allocate", slug) for k in range(REPEATS)]
    calls = [partial(method.allocate, state, draft, rng) for rng in rngs]  # type: ignore[attr-defined]
    yield from _timed(
        slug, metric, calls, f"{draft.budget.prompts:,} prompts, {draft.budget.rollouts:,} rollouts", ALLOCATE_MS
    )


def _attention(n: int, width: int) -> Iterator[Figure]:
    """One prediction of DOTS over n prompts with embeddings (n, width) float32 from its 256 references."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((n, width), dtype=np.float32)
    method = DotsRr()
    k = method.references
    context = Context(
        rng.choice(n, k, replace=False), rng.integers(0, 9, k) * 1.0, np.full(k, 8.0), np.ones(k, np.int64)
    )
    note = f"{n:,} x {k}, {width} dimensions"
    yield from _timed("dots_rr", "attention", [partial(method._predict, points, context)] * 2, note, 1e3 * ATTENTION_S)


class Taken(NamedTuple):
    """Median milliseconds of the calls after the first one: wall, and of processor time, which a busy machine spares."""

    wall: float
    cpu: float


def _taken(calls: list[Callable[[], object]]) -> Taken:
    taken = []
    for call in calls:
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    return Taken(*(1e3 * np.median(taken[1:], axis=0)).tolist())


def _timed(slug: str, metric: str, calls: list[Callable[[], object]], note: str, target: float = 0) -> Iterator[Figure]:
    """Wall and processor milliseconds of a call, beside the target where there is one."""
    taken = _taken(calls)
    load = f"{note}; load {os.getloadavg()[0]:.1f}"
    for kind, value in (("", taken.wall), ("_cpu", taken.cpu)):
        yield Figure(slug, metric + kind, value, "ms", *(("target", value / target) if target else ("", None)), load)


def state_bytes(state: object, shared: object = ()) -> int:
    """Bytes of all arrays of a state, each counted once; not those that share memory with the `shared` ones."""
    known = list(shared)  # type: ignore[call-overload]
    seen: dict[int, int] = {}

    def visit(thing: object) -> None:
        if isinstance(thing, np.ndarray):
            if not any(np.may_share_memory(thing, other) for other in known):
                seen[id(thing)] = thing.nbytes
        elif isinstance(thing, dict):
            for part in thing.values():
                visit(part)
        elif isinstance(thing, tuple | list):
            for part in thing:
                visit(part)
        elif hasattr(thing, "__dict__"):
            visit(vars(thing))

    visit(state)
    return sum(seen.values())
