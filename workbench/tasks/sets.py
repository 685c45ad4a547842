"""Several evaluation sets of one task, each under a name: what is trained must show on other questions too.

The sets become one evaluation pool, whose extra column "set" holds the name of each prompt, "" for the task's own.
A set of families is their evaluation questions; a table is a set as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.tasks import loading
from workbench.tasks.task import Task
from workbench.tasks.verifiers import Verdicts, Verifier
from workbench.types import Pool


@dataclass(frozen=True, eq=False)
class BySet:
    """Judges every prompt by the verifier of its set; prompts of a pool without sets by the first."""

    verifiers: Mapping[str, Verifier]

    def __call__(self, text: Sequence[str], pool: Pool, rows: np.ndarray) -> Verdicts:
        """R verdicts, in order; a reward part that a set's verifier does not give is NaN there."""
        rows = np.asarray(rows)
        named = pool.extra["set"][rows] if "set" in pool.extra else np.full(len(rows), "", dtype=object)
        n = len(rows)
        answer = np.full(n, None, dtype=object)
        failure, message = np.full((2, n), "", dtype=object)
        reward, correct = np.full((2, n), np.nan)
        parts: dict[str, np.ndarray] = {}
        for name, verifier in self.verifiers.items():
            mine = np.flatnonzero(named == name)
            if not len(mine):
                continue
            verdicts = verifier([text[int(i)] for i in mine], pool, rows[mine])
            answer[mine], failure[mine] = verdicts.answer, verdicts.failure
            if verdicts.message is not None:
                message[mine] = verdicts.message
            reward[mine], correct[mine] = verdicts.reward, verdicts.correct
            for part, value in verdicts.parts.items():
                parts.setdefault(part, np.full(n, np.nan))[mine] = value
        return Verdicts(answer, reward, correct, parts, failure, message)


def with_sets(task: Task, sets: Mapping[str, object], *, seed: int = 0) -> Task:
    """The task with more evaluation sets: name -> whatever `load` takes. Their questions leave the training pool.

    Raises ValueError for a set whose answers are longer or end otherwise than the task's."""
    pools, verifiers, held_out = [_marked(task.evaluation, "")], {"": task.verifier}, set[str]()
    for name, source in sets.items():
        if not re.fullmatch(r"[\w-]{1,40}", name):
            raise ValueError(f"an evaluation set is named by letters, digits, _ and -, not {name!r}")
        made = loading.load(source, seed=seed)
        if made.max_tokens > task.max_tokens or made.stop != task.stop:
            raise ValueError(
                f"answers of the set {name} have up to {made.max_tokens} tokens and end at {made.stop}, those of the task "
                f"{task.max_tokens} and {task.stop}; give the task the same max_tokens and stop (task_options)"
            )
        own = _joined([made.pool, made.evaluation]) if loading.is_table(source) else made.evaluation
        held_out |= set(own.ids.tolist())
        pools.append(_marked(own, name))
        verifiers[name] = made.verifier
    kept = np.array([i not in held_out for i in task.pool.ids.tolist()], bool)
    notes = task.notes
    if not kept.all():
        notes += (f"{int((~kept).sum())} prompts of the evaluation sets were taken out of the pool.",)
    return replace(task, pool=task.pool.take(kept), evaluation=_joined(pools), verifier=BySet(verifiers), notes=notes)


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
