"""The changes that can be asked of a run, one function each: everything is checked before anything is done.

A change of the plan is rehearsed first (`pipeline.rehearse`), so that a method that cannot serve it says so now and not in
the middle of a step. Each function raises ValueError, a sentence that says what to do, where its change cannot be made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.pipeline import Pipeline, PromptSettings, rehearse
from workbench.types import Budget, Plan
from workbench.validate import RANGES, number, whole

if TYPE_CHECKING:
    from workbench.runs.run import Run

BUDGET = ("prompts", "rollouts")
DIALS = RANGES
"""Settings of a world, and between what they must lie."""

PROMPTS = ("pin", "drop", "boost", "free")
LASTING = ("set", *PROMPTS, "swap")
"""Kinds, as recorded, whose effect outlasts the step: a resumed run has them again."""


class Change(NamedTuple):
    """What a valid request will do: how it is recorded, from which step it acts, and the act itself."""

    kind: str
    payload: dict[str, Any]
    step: int
    act: Callable[[], None]


def restore(run: Run, kind: str, payload: Mapping[str, Any], folded: bool = True) -> None:
    """Do again what a recorded command did. folded=False: the states of methods are folded afterwards."""
    if kind == "swap":
        if folded:
            run.take_over(Pipeline.parse(payload["to"]))
        else:
            run.pipeline = Pipeline.parse(payload["to"])
            run.pipeline.check(run.world)
    elif kind == "set":
        to = payload["to"]
        budget = replace(run.budget, **{k: to[k] for k in BUDGET if k in to})
        _turn(run.world, {name: to[name] for name in DIALS if name in to})
        run.budget = budget
    elif (row := _row(run, payload["prompt"])) is not None:
        run.available[row] = payload["to"]["available"]
        run.prompt_settings = _prompt_settings(run, row, payload["to"])


def setting(run: Run, payload: Mapping[str, Any], rehearsed: bool) -> Change:
    """Another budget, temperature or learning rate."""
    unknown = sorted(set(payload) - {*BUDGET, *DIALS, "group_size"})
    if unknown or not payload:
        raise ValueError(
            f"{', '.join(unknown) or 'nothing'} cannot be set; prompts, rollouts, group_size, temperature and lr can"
        )
    if {"rollouts", "group_size"} <= set(payload):
        raise ValueError(
            "rollouts and group_size say the same twice (rollouts = prompts x group_size); give one of them"
        )
    budget = run.budget
    to: dict[str, Any] = {}
    if payload.keys() & {*BUDGET, "group_size"}:
        prompts = whole("prompts", payload["prompts"]) if "prompts" in payload else budget.prompts
        rollouts = whole("rollouts", payload["rollouts"]) if "rollouts" in payload else budget.rollouts
        if "group_size" in payload:
            rollouts = prompts * whole("group_size", payload["group_size"])
        if prompts > (left := int(run.available.sum())):
            raise ValueError(f"{prompts} prompts a step are more than the {left} there are")
        if prompts < (pinned := len(run.prompt_settings.pinned)):
            raise ValueError(f"{pinned} prompts are pinned, more than {prompts} a step; free some first")
        budget = replace(budget, prompts=prompts, rollouts=rollouts)
        to = {"prompts": prompts, "rollouts": rollouts}
        if rehearsed:
            _rehearse(run, budget=budget)
    for name, (low, high) in DIALS.items():
        if name in payload:
            if _dials(run.world, name) == []:
                raise ValueError(f"{type(run.world).__name__} has no {name} to set; a live model has one")
            to[name] = number(name, payload[name], low, high)
    before = {k: v for k, v in asdict(run.budget).items() if k in to} | {
        name: getattr(*_dials(run.world, name)[0]) for name in DIALS if name in to
    }

    def act() -> None:
        _turn(run.world, {name: to[name] for name in DIALS if name in to})
        run.budget = budget

    return Change("set", {"to": to, "before": before}, run.n_steps + 1, act)


def prompt(run: Run, kind: str, payload: Mapping[str, Any], rehearsed: bool) -> Change:
    """Pin, drop, boost or free a prompt by its id."""
    row = _row(run, payload.get("prompt"))
    if row is None:
        raise ValueError(
            f"this run has no prompt {payload.get('prompt')!r}; its {len(run.world.pool)} ids are in the table prompts"
        )
    now = _wish(run, row)
    to = {
        "pin": now | {"pinned": True, "available": True},
        "drop": now | {"pinned": False, "available": False},
        "boost": now
        | {
            "available": True,
            "factor": number("factor", payload.get("factor"), 0.1, 100.0) if kind == "boost" else 1.0,
        },
        "free": {"pinned": False, "available": True, "factor": 1.0},
    }[kind]
    if kind == "boost" and rehearsed:
        _check_boost(run, row, to)
    return wished(run, kind, str(run.world.pool.ids[row]), to, rehearsed)


def _check_boost(run: Run, row: int, to: Mapping[str, Any]) -> None:
    """Raise ValueError where a boost would change nothing: every prompt of a step keeps two rollouts, or its one."""
    prompt_settings, available = _prompt_settings(run, row, to), run.available.copy()
    available[row] = True
    pinned = prompt_settings.pinned if row in prompt_settings.pinned else np.append(prompt_settings.pinned, row)
    if to["factor"] == 1 or len(pinned) > run.budget.prompts:
        return
    plain = _prompt_settings(run, row, {**to, "factor": 1.0}).boost
    plans = [
        _rehearse(run, prompt_settings=PromptSettings(pinned, boost), available=available)
        for boost in (plain, prompt_settings.boost)
    ]
    without, with_ = (int(plan.n[plan.prompt == row].sum()) for plan in plans)
    if with_ == without:
        raise ValueError(
            f"a boost of {to['factor']:g} would change nothing: {run.budget.rollouts} rollouts for {run.budget.prompts} prompts "
            f"give this one {without}, and the others have none to spare or to take; set more rollouts first"
        )


def wished(run: Run, kind: str, prompt: str, to: Mapping[str, Any], rehearsed: bool) -> Change:
    """A prompt as `to` has it: pinned, available, factor."""
    row = _row(run, prompt)
    assert row is not None
    prompt_settings, available = _prompt_settings(run, row, to), run.available.copy()
    available[row] = to["available"]
    if len(prompt_settings.pinned) > run.budget.prompts:
        raise ValueError(
            f"{len(run.prompt_settings.pinned)} prompts are pinned and a step has {run.budget.prompts}; free one, or set more prompts"
        )
    if available.sum() < run.budget.prompts:
        raise ValueError(
            f"{int(available.sum())} prompts would be left for steps of {run.budget.prompts}; set fewer prompts first"
        )
    if rehearsed:
        _rehearse(run, prompt_settings=prompt_settings, available=available)
    before = _wish(run, row)

    def act() -> None:
        run.prompt_settings, run.available = prompt_settings, available

    return Change(kind, {"prompt": prompt, "to": dict(to), "before": before}, run.n_steps + 1, act)


def swap(run: Run, kind: str, payload: Mapping[str, Any]) -> Change:
    """Another pipeline (swap), one method more (add) or less (remove)."""
    word = payload.get("pipeline" if kind == "swap" else "method")
    if not word or not isinstance(word, (str, list, Pipeline)):
        raise ValueError(f"to {kind} needs {'a pipeline' if kind == 'swap' else 'a method'}, for example grpo + mopps")
    try:
        new = Pipeline.parse(word) if kind == "swap" else _edited(run.pipeline, kind, str(word))
    except (TypeError, AttributeError) as error:
        raise ValueError(f"cannot read the pipeline {word!r}: {error}") from error
    new.check(run.world)
    recorded = {"from": run.pipeline.spec, "to": new.spec, "who": new.who()}
    return Change("swap", recorded, run.n_steps + 1, lambda: run.take_over(new))


def _edited(pipeline: Pipeline, kind: str, word: str) -> Pipeline:
    """The pipeline with a method added or taken out."""
    from workbench.pipeline import catalog

    if kind == "add":
        method = catalog.read(catalog.parts(word)[0])
        names = [m.name for m in pipeline.chosen]
        if method.name in names:
            return Pipeline(*(method if m.name == method.name else m for m in pipeline.chosen))
        return Pipeline(*pipeline.chosen, method)
    slug = word.strip().lower().replace("-", "_")
    left = [m for m in pipeline.chosen if m.name != slug]
    if len(left) == len(pipeline.chosen):
        raise ValueError(f"{slug} is not in the pipeline; {', '.join(m.name for m in pipeline.chosen)} are")
    return Pipeline(*left)


def checkpoint(run: Run) -> Change:
    """The weights on disk, now."""
    if not run.n_steps:
        raise ValueError("there is nothing to save before the first step")

    def act() -> None:
        run.checkpoint()
        if not (run.checkpoints() / f"step-{run.n_steps:06d}").exists():
            raise ValueError(f"no checkpoint could be written to {run.checkpoints()}; see the notes for the reason")

    return Change("checkpoint", {}, run.n_steps, act)


def _rehearse(run: Run, budget: Budget | None = None, **other: Any) -> Plan:
    """The coming step as the pipeline would plan it; whatever it objects to is the reason of a refusal."""
    given = {"available": run.available, "prompt_settings": run.prompt_settings} | other
    try:
        return rehearse(
            run.pipeline, run.states, budget or run.budget, step=run.n_steps + 1, seed=run.experiment.seed, **given
        )
    except Exception as error:
        raise ValueError(f"the pipeline {run.pipeline.text} cannot plan such a step: {error}") from error


def _wish(run: Run, row: int) -> dict[str, Any]:
    """What is wished of a prompt now."""
    boost = run.prompt_settings.boost
    factor = 1.0 if boost is None else float(boost[row])
    return {"pinned": row in run.prompt_settings.pinned, "available": bool(run.available[row]), "factor": factor}


def _prompt_settings(run: Run, row: int, to: Mapping[str, Any]) -> PromptSettings:
    """The prompt_settings with those of one prompt replaced; pinned prompts stay in the order in which they were pinned."""
    pinned = [r for r in run.prompt_settings.pinned.tolist() if r != row or to["pinned"]]
    pinned += [row] if to["pinned"] and row not in pinned else []
    boost = np.ones(len(run.world.pool)) if run.prompt_settings.boost is None else run.prompt_settings.boost.copy()
    boost[row] = to["factor"]
    return PromptSettings(np.array(pinned, np.int64), boost if (boost != 1).any() else None)


def _row(run: Run, prompt: object) -> int | None:
    found = np.flatnonzero(run.world.pool.ids == prompt)
    return int(found[0]) if len(found) else None


def _dials(world: Any, name: str) -> list[tuple[Any, str]]:
    """Where a world keeps a setting: what samples and what trains must agree on the temperature."""
    policy = getattr(world, "policy", None)
    homes = [world, policy] if name == "temperature" else [policy]
    return [(home, name) for home in homes if isinstance(getattr(home, name, None), (int, float))]


def _turn(world: Any, values: Mapping[str, float]) -> None:
    """Set them all, or none where one cannot be set."""
    turned = []
    try:
        for name, value in values.items():
            for home, attribute in _dials(world, name):
                old = getattr(home, attribute)
                setattr(home, attribute, value)
                turned.append((home, attribute, old))
    except Exception:
        for home, attribute, old in reversed(turned):
            setattr(home, attribute, old)
        raise
