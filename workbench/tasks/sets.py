"""Several evaluation sets of one task, each under a name: what is trained must show on other questions too.

The sets become one evaluation pool, whose extra column "set" holds the name of each prompt, "" for the task's own.
A set of families is their evaluation questions; a table is a set as a whole, judged as the task's own table is where it
names no verifier of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from workbench.tasks import golds, loading
from workbench.tasks.by_set import BySet
from workbench.tasks.tables import near_of
from workbench.tasks.task import Task
from workbench.types import Pool


def with_sets(task: Task, sets: Mapping[str, object], *, seed: int = 0) -> Task:
    """The task with more evaluation sets: name -> whatever `load` takes, or {"source": ..., and options of `load`}.

    Copies of their questions leave the training pool, whatever their white space and Unicode form; ids play no part.
    A table without a verifier is judged as the task's table is, with its answers as long and ended alike; beside
    families it is compared as they are, where all their answers are of one kind and its own are of that kind too.
    Raises ValueError for a set whose answers are longer or end otherwise than the task's."""
    pools, verifiers, held_out = [_marked(task.evaluation, "")], {"": task.verifier}, set[str]()
    notes = list(task.notes)
    for name, given in sets.items():
        if not re.fullmatch(r"[\w-]{1,40}", name):
            raise ValueError(f"an evaluation set is named by letters, digits, _ and -, not {name!r}")
        options = dict(given) if isinstance(given, Mapping) else {"source": given}
        if "source" not in options:
            raise ValueError(f"the evaluation set {name} has no source: a path, a hub id or names of families")
        source = options.pop("source")
        table = loading.is_table(source)
        made = _table(task, source, options, seed) if table else loading.load(source, seed=seed, **options)
        if made.max_tokens > task.max_tokens or made.stop != task.stop:
            raise ValueError(
                f"answers of the set {name} have up to {made.max_tokens} tokens and end at {made.stop}, those of the task "
                f"{task.max_tokens} and {task.stop}; give the task the same max_tokens and stop (task_options)"
            )
        own = _joined([made.pool, made.evaluation]) if table else made.evaluation
        held_out |= set(near_of(own))
        pools.append(_marked(own, name))
        verifiers[name] = made.verifier
        notes += [f"Evaluation set {name}: {note}" for note in made.notes]
    kept = np.array([k not in held_out for k in near_of(task.pool)], bool)
    if not kept.all():
        notes.append(f"{int((~kept).sum())} prompts of the evaluation sets were taken out of the pool.")
    if not kept.any():
        raise ValueError(f"all {len(kept)} prompts are in the evaluation sets as well; none is left to train on")
    return replace(
        task, pool=task.pool.take(kept), evaluation=_joined(pools), verifier=BySet(verifiers), notes=tuple(notes)
    )


def _table(task: Task, source: object, options: Mapping[str, object], seed: int) -> Task:
    """A table as a set, with what it does not say taken from the task."""
    if "verifier" in options or task.as_table:
        ends = {k: v for k, v in task.as_table.items() if k in ("max_tokens", "stop")}
        return loading.load(source, seed=seed, **{**(ends if "verifier" in options else task.as_table), **options})
    kinds = np.unique(task.pool.extra["kind"].astype(str)).tolist() if "kind" in task.pool.extra else []
    named = {kind: name for name, kind in loading.KINDS.items()}
    if len(kinds) != 1 or named.get(kinds[0], "exact") == "exact":
        return loading.load(source, seed=seed, **options)
    try:
        return loading.load(source, seed=seed, **{**options, "verifier": named[kinds[0]]})
    except golds.Unfit:
        made = loading.load(source, seed=seed, **options)
    told = f"its answers are compared as text, for they are not of the task's kind ({kinds[0]})."
    return replace(made, notes=(*made.notes, told))


def _marked(pool: Pool, name: str) -> Pool:
    """A pool under the name of its set; its ids carry the name, so that two sets may ask the same question."""
    ids = np.array([f"{i}~{name}" if name else i for i in pool.ids.tolist()], dtype=object)
    return replace(pool, ids=ids, extra={**pool.extra, "set": np.full(len(pool), name, dtype=object)})


def _joined(pools: Sequence[Pool]) -> Pool:
    """Pools one after the other; a column of text that one lacks is "" there, features must be in all of them."""

    def column(p: Pool, name: str) -> np.ndarray:
        return p.extra.get(name, np.full(len(p), "", dtype=object))

    shared = [n for n in pools[0].features if all(n in p.features for p in pools)]
    extra = dict.fromkeys(name for p in pools for name in p.extra)
    return Pool(
        **{c: np.concatenate([getattr(p, c) for p in pools]) for c in ("ids", "text", "answer", "prefix", "stratum")},
        features={n: np.concatenate([p.features[n] for p in pools]) for n in shared},
        extra={n: np.concatenate([column(p, n).astype(object) for p in pools]) for n in extra},
    )
