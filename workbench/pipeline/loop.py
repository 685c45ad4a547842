"""The training loop: `advance` makes one step, `run` is the generator of steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from workbench.pipeline.draws import generator
from workbench.pipeline.fates import fates
from workbench.pipeline.masking import estimated, masked
from workbench.pipeline.pipeline import Pipeline, States
from workbench.pipeline.rounds import NO_PROMPT_SETTINGS, Clock, PromptSettings, bound, first_draft, gather
from workbench.stages import World
from workbench.types import Advantage, Budget, Event, Ragged, Rollouts, Step


def advance(
    pipeline: Pipeline,
    states: States,
    world: World,
    budget: Budget,
    *,
    step: int,
    seed: int = 0,
    available: np.ndarray | None = None,
    prompt_settings: PromptSettings = NO_PROMPT_SETTINGS,
) -> tuple[States, Step]:
    """One training step: rounds of select, allocate, amend, generate and reward until nothing more is wanted,
    then replay, score, estimate, update, observe. Returns the new states and the finished step.

    available (N,) bool takes prompts out of the pool; None = all are in. prompt_settings: what is pinned and boosted."""
    clock, events = Clock(), []
    free = np.ones(len(world.pool), bool) if available is None else available
    draft = first_draft(budget, step, free, prompt_settings)
    draft = gather(pipeline, states, world, draft, prompt_settings, seed, clock, events)
    rollouts, plan = draft.rollouts, draft.plan
    if rollouts is None or plan is None:
        raise ValueError(f"step {step}: {type(pipeline.decider('allocate')).__name__} asked for no rollout")
    for m in pipeline.actors("replay"):
        rollouts = bound(m, "replay", states)(rollouts, draft, generator(seed, step, 0, "replay", m.name))
    clock.lap("decide")
    rollouts = world.score(rollouts, pipeline.needs)
    draft = draft.with_(rollouts=rollouts)
    clock.lap("score")
    advantage = Advantage.start(rollouts)
    for m in pipeline.actors("admit"):
        seen = masked(m, draft)
        advantage = advantage.drop(~bound(m, "admit", states)(seen.rollouts, seen), "not_admitted")
    for m in pipeline.actors("estimate"):
        rng = generator(seed, step, 0, "estimate", m.name)
        advantage = estimated(m, states[m.name], advantage, draft, rng)
    clock.lap("estimate")
    loss = bound(pipeline.decider("loss"), "loss", states)
    penalties = [bound(m, "penalty", states) for m in pipeline.actors("penalty")]
    update = dict(world.update(rollouts, advantage, loss, penalties))
    before = update.pop("logp_per_token", None)
    if before is not None and rollouts.tokens is not None and rollouts.proximal is None:
        rollouts = rollouts.with_(proximal=Ragged(np.asarray(before), rollouts.tokens.offsets))
    clock.lap("update")
    skipped = str(update.get("skipped", ""))
    if skipped:  # a step that kept nothing, such as a probe, had nothing to train: no failure
        level = "failure" if advantage.keep.any() else "note"
        events.append(Event(level, "update", f"the optimiser step was skipped: {skipped}"))
    for what, n in zip(*np.unique(rollouts.failure.astype(str), return_counts=True), strict=True):
        if what:
            events.append(Event("warning", str(what), _unrewarded(rollouts, str(what), int(n)), int(n)))
    fate, reason = fates(rollouts, advantage, skipped and "update_skipped")
    plan = replace(plan, memory={})  # of the step while it was made: what is learned from is what the record keeps
    done = Step(step, draft.prompts, plan, rollouts, advantage, fate, reason, update, clock.seconds, tuple(events))
    return pipeline.observe(states, done), done


def _unrewarded(rollouts: Rollouts, failure: str, n: int) -> str:
    """How many rollouts a failure left without reward, and the message of the first."""
    messages = rollouts.extra.get("failure_text", np.empty(0, object))
    first = next((str(t) for t, f in zip(messages, rollouts.failure, strict=False) if f == failure and t), "")
    return f"{n} rollouts got no reward: {failure.replace('_', ' ')}{first and f'; first: {first}'}"


def run(
    pipeline: Pipeline,
    world: World,
    budget: Budget,
    *,
    steps: int,
    seed: int = 0,
    start: int = 1,
    states: States | None = None,
) -> Iterator[tuple[States, Step]]:
    """The loop, as a generator of (states after the step, finished step); steps are numbered from 1.

    Pass states and start to go on where an earlier run stopped.

    >>> from workbench.worlds import SimWorld
    >>> loop = run(Pipeline.parse("grpo"), SimWorld(n_prompts=8), Budget(prompts=4, rollouts=16), steps=2)
    >>> [len(step.rollouts) for _, step in loop]
    [16, 16]
    """
    pipeline.check(world)
    states = pipeline.init(world.pool) if states is None else states
    for step in range(start, start + steps):
        states, done = advance(pipeline, states, world, budget, step=step, seed=seed)
        yield states, done
