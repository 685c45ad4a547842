"""Stale links: what an old or mistyped address names and the record does not have, and what is shown instead."""

from __future__ import annotations

from bisect import bisect
from typing import TYPE_CHECKING

from workbench.views.data.compare import METRICS
from workbench.views.data.groups import place_of
from workbench.views.data.pair import estimators
from workbench.views.data.selection import Selection
from workbench.views.data.text import one_line

if TYPE_CHECKING:
    from workbench.views.data.run import RunData


def mended(chosen: Selection, data: RunData) -> tuple[dict[str, object], list[str]]:
    """Changes to a selection (names and values of its parameters) after which it names what is recorded, and a sentence
    for each. data: a run with a step or more."""
    change: dict[str, object] = {}
    notes = []
    steps = [int(s) for s in data.curves.step]
    at = chosen.step
    if at and at not in steps:
        change["step"] = at = steps[max(bisect(steps, at) - 1, 0)]
        notes.append(f"step {chosen.step:,} is not recorded; step {at:,} is shown")
    first, last = chosen.steps
    if last and (last < steps[0] or first > steps[-1]):
        change["steps"] = chosen.param["steps"].default
        notes.append(f"of steps {first:,} to {last:,} none is recorded; all steps are shown")
    if chosen.prompt and data.prompts.row(chosen.prompt) is None:
        change["prompt"] = ""
        notes.append(f"the run has no prompt {one_line(chosen.prompt, 40)!r}; none is chosen")
    if chosen.rollout and not _has(data, Selection(step=at, rollout=chosen.rollout)):
        change["rollout"] = ""
        notes.append(f"there is no rollout {one_line(chosen.rollout, 40)!r}; another one is shown")
    if chosen.belief and chosen.belief not in data.beliefs:
        change["belief"] = ""
        notes.append(
            f"no beliefs of {one_line(chosen.belief, 40)!r} are recorded; those of {data.believed!r} are shown"
        )
    known = [n for n in dict.fromkeys(chosen.pair) if n in estimators()]
    if gone := [n for n in chosen.pair if n not in known]:
        notes.append(f"there is no estimator {', '.join(repr(one_line(n, 40)) for n in gone)} to compare")
    elif known[:2] != chosen.pair:
        notes.append(f"of the estimators to compare, {' and '.join(known[:2])} are kept: it takes two that differ")
    if known[:2] != chosen.pair:
        change["pair"] = known[:2]
    if gone := [r for r in chosen.runs if r not in [row["run"] for row in data.source.runs]]:
        change["runs"] = [r for r in chosen.runs if r not in gone]
        notes.append(f"there is no run {', '.join(repr(one_line(r, 40)) for r in gone)} to compare")
    if chosen.metric and chosen.metric not in METRICS:
        change["metric"] = ""
        notes.append(f"runs are not compared by {one_line(chosen.metric, 40)!r}; {next(iter(METRICS))} is shown")
    return change, notes


def _has(data: RunData, chosen: Selection) -> bool:
    """Whether the rollout of a selection is one of its step, or of any where it names none."""
    place = place_of(data, chosen)
    return place is not None and place.rollout == chosen.rollout
