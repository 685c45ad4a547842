"""Rollout and token accounting (the ledger): a step that does not add up is an error and is not recorded.

Per prompt: generated + carried_in = trained + dropped + pruned + discarded + carried_out + failed, in rollouts and in
tokens, and no fewer rollouts than the plan asked for. A rollout that was carried out of an earlier step comes in once;
used rollouts of earlier steps (replayed) and rows nobody asked for (foreign) stand outside the balance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from workbench.numerics.roles import hint_lengths
from workbench.store.errors import LedgerError
from workbench.types import FATES, PURPOSES, Plan, Pool, Ragged, Resume, Rollouts, Step


class Origins(NamedTuple):
    """Where the rows of a step come from: origin (R,) str; inherited, tokens (R,) int64.

    inherited = tokens of the row made before it; tokens = those that meet a fate in this step."""

    origin: np.ndarray
    inherited: np.ndarray
    tokens: np.ndarray


def origins(step: int, rollouts: Rollouts, plan: Plan | None, carried: Mapping[str, int]) -> Origins:
    """Tell new rows from carried, replayed and foreign ones. carried: id -> tokens, out of earlier steps."""
    r = len(rollouts)
    origin = np.full(r, "generated", dtype=object)
    inherited = np.zeros(r, np.int64)
    origin[np.asarray(rollouts.step) < step] = "replayed"
    if plan is not None:
        origin[(rollouts.ask < 0) & (rollouts.step >= step)] = "foreign"
    if carried:
        source = _sources(rollouts, plan)
        found = np.array([s in carried for s in source], bool)
        inherited[found] = [carried[s] for s in source[found]]
        first = np.zeros(r, bool)
        first[np.unique(source, return_index=True)[1]] = True
        origin[found & first] = "carried"
        origin[found & ~first] = "generated"
    tokens = np.where(origin == "generated", rollouts.length - inherited, rollouts.length)
    return Origins(origin, inherited, tokens)


def _sources(rollouts: Rollouts, plan: Plan | None) -> np.ndarray:
    """(R,) id of the carried rollout a row may go on: its own, or the one its ask resumes."""
    source = rollouts.id.astype(object)
    if plan is None:
        return source
    for ask, start in enumerate(plan.start):
        if isinstance(start, Resume):
            source = np.where(rollouts.ask == ask, start.rollout, source)
    return source


def carried_out(rollouts: Rollouts, fate: np.ndarray, carried: Mapping[str, int], seen: Origins, plan: Plan | None):
    """What is under way after the step: id -> tokens."""
    left = dict(carried)
    if carried:
        for source in _sources(rollouts, plan)[seen.origin == "carried"]:
            left.pop(source, None)
    rows = np.flatnonzero(fate == "carried")
    left.update(zip(rollouts.id[rows].tolist(), np.asarray(rollouts.length)[rows].tolist(), strict=True))
    return left


def check(step: Step, seen: Origins, pool: Pool) -> None:
    """Raise LedgerError where a finished step does not add up."""
    rollouts, name = step.rollouts, f"step {step.step}"
    r = len(rollouts)
    for what, column in (("fate", step.fate), ("fate_reason", step.fate_reason), ("advantage", step.advantage.value)):
        if len(column) != r:
            raise LedgerError(f"{name}: {r} rollouts but {len(column)} rows in {what}; the step was not recorded")
    check_rows(name, rollouts, seen, pool)
    _check_asked(step, seen, pool)
    inside = np.isin(seen.origin, ("generated", "carried"))
    lost = inside & ~np.isin(step.fate, FATES)
    if lost.any():  # nothing else unbalances rollouts or tokens: each row that came in meets one fate, with its tokens
        prompt = int(rollouts.prompt[lost].min())
        mine, first = inside & (rollouts.prompt == prompt), int(np.flatnonzero(lost & (rollouts.prompt == prompt))[0])
        made = {o: int((mine & (seen.origin == o)).sum()) for o in ("generated", "carried")}
        met = {f: int((mine & (step.fate == f)).sum()) for f in FATES}
        raise LedgerError(
            f"{name}, prompt {pool.ids[prompt]}: rollouts do not add up: generated {made['generated']} + carried in "
            f"{made['carried']} != {' + '.join(f'{f} {n}' for f, n in met.items())} = {sum(met.values())}; rollout "
            f"{rollouts.id[first]} has the fate {step.fate[first]!r}, which is not one of {', '.join(FATES)}. The step was "
            "not recorded"
        )


def check_rows(name: str, rollouts: Rollouts, seen: Origins, pool: Pool) -> None:
    """Raise LedgerError for rows that no balance could hold: unknown prompts, ids twice, impossible lengths."""
    outside = (rollouts.prompt < 0) | (rollouts.prompt >= len(pool))
    if outside.any():
        row = int(rollouts.prompt[outside][0])
        raise LedgerError(f"{name}: a rollout of prompt row {row}, but the pool has {len(pool)} prompts")
    ids, counts = np.unique(rollouts.id[seen.origin != "replayed"].astype(str), return_counts=True)
    if (counts > 1).any():
        raise LedgerError(f"{name}: rollout {ids[counts > 1][0]} stands there {counts.max()} times; ids must be unique")
    unknown = ~np.isin(rollouts.purpose, PURPOSES)
    if unknown.any():
        raise LedgerError(f"{name}: purpose {rollouts.purpose[unknown][0]!r} is not one of {', '.join(PURPOSES)}")
    short = rollouts.length < seen.inherited
    if short.any():
        i = int(np.flatnonzero(short)[0])
        raise LedgerError(
            f"{name}, prompt {pool.ids[rollouts.prompt[i]]}: rollout {rollouts.id[i]} has {rollouts.length[i]} tokens, "
            f"but {seen.inherited[i]} of it were made before"
        )
    if isinstance(rollouts.tokens, Ragged):
        own = rollouts.tokens.lengths - hint_lengths(rollouts)
        wrong = own != rollouts.length
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise LedgerError(
                f"{name}, prompt {pool.ids[rollouts.prompt[i]]}: rollout {rollouts.id[i]} says length "
                f"{rollouts.length[i]} but has {own[i]} token ids of its own"
            )


def _check_asked(step: Step, seen: Origins, pool: Pool) -> None:
    plan, rollouts = step.plan, step.rollouts
    asked = (rollouts.ask >= 0) & (rollouts.ask < len(plan)) & np.isin(seen.origin, ("generated", "carried"))
    got = np.bincount(rollouts.ask[asked], minlength=len(plan))
    missing = np.flatnonzero(got < plan.n)
    if len(missing):
        i = int(missing[0])
        raise LedgerError(
            f"step {step.step}, prompt {pool.ids[plan.prompt[i]]}: {plan.n[i]} rollouts were asked for but {got[i]} came "
            f"back ({int(plan.n.sum())} and {int(got.sum())} in the step); a rollout that was given up must come back "
            "as a row with finish 'aborted' or a failure. The step was not recorded"
        )
