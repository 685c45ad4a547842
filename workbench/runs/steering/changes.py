"""Changes of a run that can be asked for, one function each: everything is checked before anything is done.

A change of the plan is rehearsed first (`RunState.rehearse`), so that a method that cannot serve it says so now and not in
the middle of a step. Each function raises ValueError, a sentence that says what to do, where its change cannot be made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from workbench.pipeline import Pipeline, PromptSettings, catalog
from workbench.pipeline.masking import observed
from workbench.runs import checkpoints
from workbench.runs.record import RunRecord
from workbench.runs.state import RunState
from workbench.stages import Trainable
from workbench.validate import RANGES, number, whole

BUDGET = ("prompts", "rollouts")
WORLD = RANGES
"""Settings of a world, and between what they must lie."""


class Change(NamedTuple):
    """What a valid request will do: how it is recorded, from which step it acts, and the act itself."""

    kind: str
    payload: dict[str, Any]
    step: int
    act: Callable[[], None]


def settings(state: RunState, payload: Mapping[str, Any], rehearsed: bool) -> Change:
    """Another budget, temperature or learning rate."""
    unknown = sorted(set(payload) - {*BUDGET, *WORLD, "group_size"})
    if unknown or not payload:
        raise ValueError(
            f"{', '.join(unknown) or 'nothing'} cannot be set; prompts, rollouts, group_size, temperature and lr can"
        )
    if {"rollouts", "group_size"} <= set(payload):
        raise ValueError(
            "rollouts and group_size say the same twice (rollouts = prompts x group_size); give one of them"
        )
    budget, world = state.budget, state.world
    to: dict[str, Any] = {}
    if payload.keys() & {*BUDGET, "group_size"}:
        prompts = whole("prompts", payload["prompts"]) if "prompts" in payload else budget.prompts
        rollouts = whole("rollouts", payload["rollouts"]) if "rollouts" in payload else budget.rollouts
        if "group_size" in payload:
            rollouts = prompts * whole("group_size", payload["group_size"])
        if prompts > (left := int(state.available.sum())):
            raise ValueError(f"{prompts} prompts a step are more than the {left} there are")
        if prompts < (pinned := len(state.prompt_settings.pinned)):
            raise ValueError(f"{pinned} prompts are pinned, more than {prompts} a step; free some first")
        budget = replace(budget, prompts=prompts, rollouts=rollouts)
        to = {"prompts": prompts, "rollouts": rollouts}
        if rehearsed:
            state.rehearse(budget=budget)
    for name, (low, high) in WORLD.items():
        if name in payload:
            if name not in world.settings:
                raise ValueError(f"{type(world).__name__} has no {name} to set; a live model has one")
            to[name] = number(name, payload[name], low, high)
    before = {k: v for k, v in (asdict(state.budget) | dict(world.settings)).items() if k in to}

    def act() -> None:
        set_world(world, to)
        state.budget = budget

    return Change("set", {"to": to, "before": before}, state.step + 1, act)


def set_world(world: Trainable, to: Mapping[str, float]) -> None:
    """Set those of a world's settings that are named, or none where one cannot be set."""
    before, changed = world.settings, []
    try:
        for name in before:
            if name in to:
                world.set_setting(name, to[name])
                changed.append(name)
    except Exception:
        for name in changed:
            world.set_setting(name, before[name])
        raise


def prompt(state: RunState, kind: str, payload: Mapping[str, Any], rehearsed: bool) -> Change:
    """Pin, drop, boost or free a prompt by its id."""
    row = state.row(payload.get("prompt"))
    if row is None:
        raise ValueError(
            f"this run has no prompt {payload.get('prompt')!r}; its {len(state.world.pool)} ids are in the table prompts"
        )
    factor = number("factor", payload.get("factor"), 0.1, 100.0) if kind == "boost" else 1.0
    to = {
        "pin": state.settings_of(row) | {"pinned": True, "available": True},
        "drop": state.settings_of(row) | {"pinned": False, "available": False},
        "boost": state.settings_of(row) | {"available": True, "factor": factor},
        "free": {"pinned": False, "available": True, "factor": 1.0},
    }[kind]
    if kind == "boost" and rehearsed:
        _check_boost(state, row, to)
    return set_prompt(state, kind, str(state.world.pool.ids[row]), to, rehearsed)


def _check_boost(state: RunState, row: int, to: Mapping[str, Any]) -> None:
    """Raise ValueError where a boost would change nothing: every prompt of a step keeps two rollouts, or its one."""
    (pinned, boost), available = state.with_prompt(row, to)
    pinned = pinned if row in pinned else np.append(pinned, row)
    if to["factor"] == 1 or len(pinned) > state.budget.prompts:
        return
    plain = state.with_prompt(row, {**to, "factor": 1.0})[0].boost
    plans = [state.rehearse(prompt_settings=PromptSettings(pinned, b), available=available) for b in (plain, boost)]
    without, with_ = (int(plan.n[plan.prompt == row].sum()) for plan in plans)
    if with_ == without:
        rollouts, prompts = state.budget.rollouts, state.budget.prompts
        raise ValueError(
            f"a boost of {to['factor']:g} would change nothing: {rollouts} rollouts for {prompts} prompts "
            f"give this one {without}, and the others have none to spare or to take; set more rollouts first"
        )


def set_prompt(state: RunState, kind: str, prompt: str, to: Mapping[str, Any], rehearsed: bool) -> Change:
    """A prompt with pinned, available and factor as `to` has them."""
    row, n = state.row(prompt), state.budget.prompts
    assert row is not None
    chosen, available = state.with_prompt(row, to)
    if len(chosen.pinned) > n:
        pinned = len(state.prompt_settings.pinned)
        raise ValueError(f"{pinned} prompts are pinned and a step has {n}; free one, or set more prompts")
    if available.sum() < n:
        raise ValueError(f"{int(available.sum())} prompts would be left for steps of {n}; set fewer prompts first")
    if rehearsed:
        state.rehearse(prompt_settings=chosen, available=available)
    before = state.settings_of(row)

    def act() -> None:
        state.prompt_settings, state.available = chosen, available

    return Change(kind, {"prompt": prompt, "to": dict(to), "before": before}, state.step + 1, act)


def pipeline(
    state: RunState, record: RunRecord, kind: str, payload: Mapping[str, Any], report: Callable[[str], None]
) -> Change:
    """Another pipeline (swap), one method more (add) or less (remove). report: see `take_over`."""
    text = payload.get("pipeline" if kind == "swap" else "method")
    if not text or not isinstance(text, (str, list, Pipeline)):
        raise ValueError(f"to {kind} needs {'a pipeline' if kind == 'swap' else 'a method'}, for example grpo + mopps")
    try:
        new = Pipeline.parse(text) if kind == "swap" else _edited(state.pipeline, kind, str(text))
    except (TypeError, AttributeError) as error:
        raise ValueError(f"cannot read the pipeline {text!r}: {error}") from error
    new.check(state.world)
    payload = {"from": state.pipeline.spec, "to": new.spec, "who": new.who()}
    return Change("swap", payload, state.step + 1, lambda: take_over(state, record, new, report))


def _edited(pipeline: Pipeline, kind: str, text: str) -> Pipeline:
    """The pipeline with a method added or taken out."""
    if kind == "add":
        method = catalog.read(catalog.parts(text)[0])
        names = [m.name for m in pipeline.chosen]
        if method.name in names:
            return Pipeline(*(method if m.name == method.name else m for m in pipeline.chosen))
        return Pipeline(*pipeline.chosen, method)
    slug = text.strip().lower().replace("-", "_")
    left = [m for m in pipeline.chosen if m.name != slug]
    if len(left) == len(pipeline.chosen):
        raise ValueError(f"{slug} is not in the pipeline; {', '.join(m.name for m in pipeline.chosen)} are")
    return Pipeline(*left)


def take_over(state: RunState, record: RunRecord, new: Pipeline, report: Callable[[str], None]) -> None:
    """Let a pipeline act from the next step on: a method that stays keeps its state, a new one folds what was recorded.

    report is called with what takes long. Raises ValueError, and changes nothing, where the pipeline cannot act here."""
    new.check(state.world)
    kept = {m.name: state.states[m.name] for m in state.pipeline.methods if repr(m) in map(repr, new.methods)}
    states = new.init(state.world.pool) | kept
    fresh = [m for m in new.methods if m.name not in kept]
    if fresh and (n := state.step):
        report(f"reading {n:,} step{'s' * (n != 1)} for {', '.join(m.name for m in fresh)}")
        for step in record.steps(state, new.needs):
            for m in fresh:
                states[m.name] = observed(m, states[m.name], step)
    try:
        replace(state, pipeline=new, states=states).rehearse()
    except ValueError as error:
        raise ValueError(f"{new.text} cannot plan the next step: {error.__cause__}") from error.__cause__
    record.writer.acting(new.who(), new.needs)
    state.pipeline, state.states = new, states


def checkpoint(state: RunState, record: RunRecord) -> Change:
    """The weights on disk, now."""
    if not state.step:
        raise ValueError("there is nothing to save before the first step")

    def act() -> None:
        record.checkpoint(state)
        if not checkpoints.of_step(record.checkpoints, state.step).exists():
            raise ValueError(f"no checkpoint could be written to {record.checkpoints}; see the notes for the reason")

    return Change("checkpoint", {}, state.step, act)


def restore(state: RunState, kind: str, payload: Mapping[str, Any]) -> None:
    """Do again what a recorded command did; of a swap, whose states are folded afterwards, the pipeline alone."""
    if kind == "swap":
        state.pipeline = Pipeline.parse(payload["to"])
        state.pipeline.check(state.world)
    elif kind == "set":
        set_world(state.world, payload["to"])
        state.budget = replace(state.budget, **{k: v for k, v in payload["to"].items() if k in BUDGET})
    elif (row := state.row(payload["prompt"])) is not None:
        state.prompt_settings, state.available = state.with_prompt(row, payload["to"])
