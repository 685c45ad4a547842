"""`load`: a task from the name of a mix, of families, of a file, of a folder or of a hub data set."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypedDict

import numpy as np

from workbench import validate
from workbench.tasks import mixes, tables
from workbench.tasks.isolated import Isolated
from workbench.tasks.prompts import checked_kwargs
from workbench.tasks.task import Task
from workbench.tasks.verifiers import PARTS, Graded, Verifier

KINDS = {"exact": "text", "numeric": "number", "list": "list", "word": "word"}
"""Built-in verifiers of a table by name, and the kind of answer they compare."""

EVALUATION = 80
"""Prompts of an evaluation set where nothing else is asked for."""


class _Rendering(TypedDict):
    """How a task's prompts are rendered."""

    system: str | None
    template_kwargs: Mapping[str, object]


def names() -> tuple[str, ...]:
    """The mixes that `load` knows by name; `families()` lists what they are made of."""
    return tuple(mixes.MIXES)


def _mix(
    source: str | Sequence[str],
    *,
    seed: int,
    size: int | None = None,
    evaluation: int = EVALUATION,
    max_tokens: int = 8,
    stop: Sequence[str] = ("\n",),
    rewards: str = "graded",
    system: str | None = "",
    template_kwargs: Mapping[str, object] | None = None,
) -> Task:
    how = _rendering(system, template_kwargs)
    parts = mixes.parts_of(source)
    name = source if isinstance(source, str) and source in mixes.MIXES else ", ".join(parts[0])
    wanted = mixes.SIZES.get(name, 800) if size is None else size
    pool, held_out = mixes.mix(parts, size=wanted, evaluation=evaluation, seed=seed)
    if not len(pool):
        raise ValueError(f"{name}: all {len(held_out)} questions are in the evaluation set; ask for less evaluation")
    notes = []
    for what, got, asked in (("prompts", pool, wanted), ("evaluation prompts", held_out, evaluation)):
        if len(got) < asked:
            notes.append(f"{len(got)} {what} where {asked} were asked for: some families have no more questions.")
    return Task(name, pool, held_out, max_tokens, tuple(stop), Graded(rewards), notes=tuple(notes), **how)


def _verifier(
    chosen: str | Callable, rewards: str, timeout: float, parts: Sequence[str], memory: int | None
) -> tuple[Verifier, str]:
    if isinstance(chosen, str) and chosen in KINDS:
        return Graded(rewards), KINDS[chosen]
    if chosen == "math-verify":
        chosen, parts = "workbench.tasks.mathematics:verify", PARTS
        try:
            import math_verify  # noqa: F401
        except ImportError:
            raise ImportError("the math-verify verifier needs `pip install rollout-workbench[math]`") from None
    elif isinstance(chosen, str) and ":" not in chosen:
        known = ", ".join([*KINDS, "math-verify"])
        raise ValueError(f"no verifier {chosen!r}; there are {known}, 'package.module:function' and any function")
    return Isolated(chosen, timeout=timeout, rewards=rewards, parts=parts, memory=memory).start(), "text"


def _table(
    source: object,
    *,
    seed: int,
    prompt: str = "prompt",
    answer: str = "answer",
    verifier: str | Callable = "exact",
    prefix: str = "prefix",
    stratum: str = "stratum",
    id: str = "id",
    split: str = "train",
    subset: str | None = None,
    size: int | None = None,
    evaluation: object = EVALUATION,
    eval_share: float | None = None,
    max_tokens: int = 256,
    stop: Sequence[str] = (),
    rewards: str = "graded",
    timeout: float = 5.0,
    parts: Sequence[str] = (),
    memory: int | None = 8 << 30,
    system: str | None = None,
    template_kwargs: Mapping[str, object] | None = None,
) -> Task:
    how = _rendering(system, template_kwargs)
    columns = tables.Columns(prompt, answer, prefix, stratum, id)
    if eval_share is not None and not 0 < eval_share < 1:
        raise ValueError(f"eval_share={eval_share}; a share between 0 and 1 can be held out")
    kind = KINDS.get(verifier, "text") if isinstance(verifier, str) else "text"

    def cells(table: object) -> tuple[list[tables.Cell], str]:
        rows, present, label = tables.read(table, split=split, subset=subset)
        return tables.cells(rows, present, label, columns, kind), label

    everything, name = cells(source)
    found = tables.without_copies(everything)
    notes = [] if len(found) == len(everything) else [f"{len(everything) - len(found)} copies were left out."]
    if isinstance(evaluation, int):
        n = len({c.key for c in found})
        held = round(eval_share * n) if eval_share is not None else min(evaluation, n // 10)
        train, held_out = tables.hold_out(found, held)
    else:
        held_out = tables.without_copies(cells(evaluation)[0])
        train = tables.apart_from(found, held_out)
        if len(train) < len(found):
            notes.append(f"{len(found) - len(train)} prompts of the evaluation set were taken out of the pool.")
    if size is not None and size < len(train):
        chosen = np.sort(np.random.default_rng(seed).permutation(len(train))[:size])
        train = [train[i] for i in chosen]
    judge, kind = _verifier(verifier, rewards, timeout, parts, memory)
    pool, held_pool = tables.pool_of(train, kind), tables.pool_of(held_out, kind)
    return Task(name, pool, held_pool, max_tokens, tuple(stop), judge, timeout, tuple(notes), **how)


def _rendering(system: object, template_kwargs: object) -> _Rendering:
    if system is not None and not isinstance(system, str):
        raise ValueError(f"system must be a text, got {system!r}")
    return {"system": system, "template_kwargs": checked_kwargs(template_kwargs or {})}


def _maker(source: object) -> Callable[..., Task]:
    if isinstance(source, str):
        if source in mixes.MIXES or source.startswith("family:") or source.split(",")[0] in mixes.families():
            return _mix
        if Path(source).exists() or ("/" in source and not source.endswith(tables.FILES)):
            return _table
        if source.endswith(tables.FILES):
            raise FileNotFoundError(f"there is no file {source}")
        known = [*names(), *mixes.families()]
        near = get_close_matches(source, known, 3, 0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"no task {source!r}; {hint} (or a path, or a hub id with its owner)")
    if isinstance(source, Path):
        if not source.exists():
            raise FileNotFoundError(f"there is no file {source}")
        return _table
    if isinstance(source, Sequence) and source and all(isinstance(s, str) for s in source):
        return _mix
    if hasattr(source, "column_names") or (
        isinstance(source, Sequence) and all(isinstance(row, Mapping) for row in source)
    ):
        return _table
    raise TypeError(f"a task is loaded from a name, names of families, a path or a table, not {type(source).__name__}")


def is_table(source: object) -> bool:
    """Whether `load` reads a source as a table; else it is made of families."""
    return _maker(source) is _table


def load(name_or_path: object, *, seed: int = 0, **options: object) -> Task:
    """The task of a name ("default", "five"), of families ("family:add 2d+2d, rg gcd" or a list), or of a table.

    A table is a .jsonl, .json, .parquet or .csv file, a folder of `save_to_disk`, a hub id ("openai/gsm8k"), a
    Dataset, or a list of mappings. seed draws the pool; the evaluation set is the same under every seed.

    Options of both: evaluation (prompts held out; for a table also another table), size (most prompts in the pool),
    max_tokens, stop (strings that end an answer), rewards ("graded" or "binary"), system (the system message of prompts
    that bring none), template_kwargs (for the model's chat template, such as {"enable_thinking": False}).
    Without system a table keeps the default line of the model's template, if it has one; system="" takes it away, and
    families have none. The same in a TOML file:

        [task_options]
        system = "Answer with a number."
        template_kwargs = { enable_thinking = false }

    Options of a table: prompt, answer, prefix, stratum, id (names of columns), verifier ("exact", "numeric", "list",
    "word", "math-verify", "package.module:function" or a function of completion and answer), timeout (seconds for one
    completion), parts (names of the parts such a verifier returns), memory, eval_share, split, subset.
    """
    make = _maker(name_or_path)
    known = list(inspect.signature(make).parameters)[2:]
    validate.known(options, known, f"{name_or_path!s:.60}")
    return make(name_or_path, seed=seed, **options)
