"""Resuming a run from its newest checkpoint: weights, the commands given so far, and the states of methods."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from workbench.pipeline import Pipeline, States
from workbench.runs import checkpoints
from workbench.runs.spec import ExperimentSpec
from workbench.runs.state import RunState
from workbench.runs.steering.changes import BUDGET, WORLD, restore
from workbench.runs.steering.queue import Outcome, RequestQueue
from workbench.runs.steering.requests import LASTING
from workbench.store import Store
from workbench.types import Budget
from workbench.worlds.overlap import waiting
from workbench.worlds.overlap.waiting import Kept


class Resumed(NamedTuple):
    """What a resumed run begins with: the steps that waited at its checkpoint, the states that they were planned with (see
    `Overlap`), and what is other than recorded: name -> (recorded, now)."""

    waiting: tuple[Sequence[Kept], Mapping[int, States]] = ((), {})
    changed: Mapping[str, tuple[object, object]] = {}


def resume(
    spec: ExperimentSpec, state: RunState, queue: RequestQueue, run_id: str, allow: Collection[str] = ()
) -> Resumed:
    """Load the newest checkpoint of a run and fold the steps up to it; later ones will be made again. A run that ended before
    its first checkpoint begins again, with the commands it was given.

    What the world is (`fingerprint`) must be what was recorded, except for the names in allow; ValueError otherwise."""
    folder, pool = checkpoints.folder_of_run(spec.store, run_id), state.world.pool
    found = checkpoints.newest(folder)
    checkpoint, at = found or (None, 0)
    if checkpoint is not None:
        checkpoints.check(checkpoint)
    if at >= state.target:
        raise ValueError(
            f"run {run_id} has made {at} steps, and its experiment ends at {state.target}; "
            f"steps={at + 20} (--steps {at + 20}) goes on to step {at + 20}"
        )
    with Store.open(spec.store) as store:
        changed = _changed(store, state, run_id, allow)
        known, _ = store.pool(run_id)
        if list(known.ids) != list(pool.ids):
            raise ValueError(f"run {run_id} had other prompts than these tasks give; resume it with its tasks and seed")
        recorded = store.sql("SELECT max(step) AS last FROM steps WHERE run = ?", [run_id])["last"][0].as_py() or 0
        if checkpoint is None:
            every = spec.checkpoint_every
            if recorded >= 2 * every and recorded:  # one was made, or none is wanted
                why = "it was gone when this run was opened" if every else "checkpoint_every is 0"
                raise ValueError(f"run {run_id} has no checkpoint under {folder} ({why}); start a new run instead")
            _restore_commands(spec, state, queue, store, run_id, at)
            state.states = state.pipeline.init(pool)
            return Resumed(changed=changed)
        if recorded < at:
            why = store.damage_of(run_id) or "what was damaged was given up by a repair; start a new run"
            raise ValueError(
                f"run {run_id} has a checkpoint of step {at}, and its record ends at step {recorded}: {why}"
            )
        state.world.load(checkpoint)
        if (available := checkpoints.position(checkpoint)) is not None:
            if len(available) != len(pool):
                raise ValueError(f"{checkpoint} was made for {len(available)} prompts; these tasks give {len(pool)}")
            state.available = available
        _restore_commands(spec, state, queue, store, run_id, at)
        kept = waiting.load(checkpoint) if spec.staleness else []
        wanted = {k.folded_through for k in kept}
        state.states = state.pipeline.init(pool)
        folded = {0: state.states}
        for step in store.steps(run_id, pool, needs=state.pipeline.needs):
            if step.step > at:
                break
            state.states = state.pipeline.observe(state.states, step)
            if step.step in wanted:
                folded[step.step] = state.states
    state.step = at
    return Resumed((kept, folded), changed)


def _changed(store: Store, state: RunState, run_id: str, allow: Collection[str]) -> Mapping[str, tuple[object, object]]:
    """What the world has otherwise than recorded, by name; ValueError for what is not allowed."""
    world = store.sql("SELECT world FROM runs WHERE run = ?", [run_id])["world"].to_pylist()
    before = dict(json.loads(world[0] or "{}").get("fingerprint", {}))
    rows = store.sql("SELECT payload FROM commands WHERE run = ? AND kind = 'resume' ORDER BY step, seq", [run_id])
    for payload in rows["payload"].to_pylist():
        before |= {name: to for name, (_, to) in json.loads(payload or "{}").get("changed", {}).items()}
    now = state.world.fingerprint()
    if unknown := sorted(set(allow) - set(now)):
        known = ", ".join(now) or "nothing, for this world is not compared"
        raise ValueError(f"there is no {', '.join(unknown)} that could change; there are {known}")
    changed = {name: (before[name], now[name]) for name in now if name in before and before[name] != now[name]}
    if refused := [name for name in changed if name not in allow]:
        told = "; ".join(f"{name} was {changed[name][0]} and is {changed[name][1]}" for name in refused)
        raise ValueError(
            f"run {run_id} was made with another {' and another '.join(refused)}: {told}. Resume it as it was, or say that "
            f"this may change: --allow {','.join(refused)}, in Python allow={refused!r}"
        )
    return changed


def _restore_commands(
    spec: ExperimentSpec, state: RunState, queue: RequestQueue, store: Store, run_id: str, at: int
) -> None:
    """Read the commands of a run that is resumed after step `at`: those up to there are applied now, later ones when their
    step comes. What the experiment given now says otherwise than the one recorded is newer, and wins."""
    rows = store.sql("SELECT step, kind, payload FROM commands WHERE run = ? ORDER BY step, seq", [run_id]).to_pylist()
    commands = [Outcome(r["kind"], json.loads(r["payload"] or "{}"), r["step"]) for r in rows]
    queue.outcomes.update({command.payload.get("id", ""): command for command in commands})
    found = store.sql("SELECT experiment FROM runs WHERE run = ?", [run_id]).to_pylist()[0]["experiment"]
    began, given = json.loads(found), spec.to_dict()
    swaps = [payload["to"] for kind, payload, _ in commands if kind == "swap"]
    pipelines = [Pipeline.parse(rows).spec for rows in (began["pipeline"], *swaps[-1:])]
    newer = {name for name in WORLD if given["world"].get(name) != began.get("world", {}).get(name)}
    newer |= set(BUDGET) if Budget(**given["budget"]) != Budget(**began["budget"]) else set()
    if swaps and given["pipeline"] in pipelines:
        restore(state, "swap", {"to": began["pipeline"]})
    for kind, payload, step in commands:
        if kind not in LASTING or (kind == "swap" and given["pipeline"] not in pipelines):
            continue
        if kind == "set":
            payload = {**payload, "to": {k: v for k, v in payload["to"].items() if k not in newer}}
        if step <= at:
            restore(state, kind, payload)
        else:
            queue.to_restore.append((step, kind, payload))
