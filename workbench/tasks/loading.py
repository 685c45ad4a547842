"""`load`: a task from the name of a mix, of families, of a file, of a folder or of a hub data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.tasks import mixes
from workbench.tasks.task import Task
from workbench.tasks.verifiers import Graded


def names() -> tuple[str, ...]:
    """The mixes that `load` knows by name; `families()` lists what they are made of."""
    return tuple(mixes.MIXES)


def _mix(
    name: str | Sequence[str],
    *,
    seed: int,
    size: int | None = None,
    evaluation: int = 80,
    max_tokens: int = 8,
    stop: tuple[str, ...] = ("\n",),
    rewards: str = "graded",
) -> Task:
    parts = mixes.parts_of(name)
    label = name if isinstance(name, str) else "+".join(parts[0])
    wanted = size or mixes.SIZES.get(label, 800)
    pool, held_out = mixes.mix(parts, size=wanted, evaluation=evaluation, seed=seed)
    if not len(pool):
        raise ValueError(f"{label}: all questions went into the evaluation set; lower evaluation={evaluation}")
    notes = ()
    if len(pool) < wanted:
        notes = (f"{len(pool)} of {wanted} prompts: some families have no more distinct questions.",)
    return Task(label, pool, held_out, max_tokens, stop, Graded(rewards), notes=notes)


def load(source: object, *, seed: int = 0, **options: object) -> Task:
    """A task."""
    return _mix(source, seed=seed, **options)
