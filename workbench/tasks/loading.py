"""`load`: a task from the name of a mix, of families, of a file, of a folder or of a hub data set."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypedDict

import numpy as np

from workbench import validate
from workbench.tasks import code, golds, mixes, reading, tables
from workbench.tasks.by_set import BySet
from workbench.tasks.isolated import Isolated
from workbench.tasks.prompts import checked_kwargs
from workbench.tasks.task import Task
from workbench.tasks.verifiers import PARTS, Graded, Verifier

KINDS = {"exact": "text", "numeric": "number", "list": "list", "word": "word"}
"""Built-in verifiers of a table by name, and the kind of answer they compare."""

MATH = "workbench.tasks.mathematics:verify"

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
    max_tokens: int | None = None,
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
    if max_tokens is None:
        max_tokens = max(mixes.family(name).max_tokens for group in parts for name in group)
    kinds = {*pool.extra["kind"], *held_out.extra["kind"]}
    judge: Verifier = Graded(rewards)
    if "code" in kinds:
        judge = code.verifier(rewards=rewards).start()
        if len(kinds) > 1:
            judge = BySet({kind: judge if kind == "code" else Graded(rewards) for kind in sorted(kinds)}, "kind")
    return Task(name, pool, held_out, max_tokens, tuple(stop), judge, notes=tuple(notes), **how)


def _verifier(
    chosen: str | Callable | Isolated,
    rewards: str,
    timeout: float,
    parts: Sequence[str],
    memory: int | None,
    sandbox: bool,
) -> tuple[Verifier, str]:
    if isinstance(chosen, Isolated):  # another table's, already started
        return chosen, "text"
    if isinstance(chosen, str) and chosen in KINDS:
        return Graded(rewards), KINDS[chosen]
    if chosen == "code":
        return code.verifier(timeout=timeout, rewards=rewards, memory=memory).start(), "code"
    if chosen == "math-verify":
        # it evaluates nothing that it judges, and keeps the golds it has parsed
        chosen, parts, sandbox = MATH, PARTS, False
        try:
            import math_verify  # noqa: F401
        except ImportError:
            raise ImportError("the math-verify verifier needs `pip install rollout-workbench[math]`") from None
    elif isinstance(chosen, str) and ".py:" in chosen:
        chosen = str(Path(chosen.rpartition(":")[0]).absolute()) + chosen[chosen.rindex(":") :]
        if not Path(chosen.rpartition(":")[0]).is_file():
            raise FileNotFoundError(f"there is no file {chosen.rpartition(':')[0]} for the verifier")
    elif isinstance(chosen, str) and ":" not in chosen:
        known = ", ".join([*KINDS, "math-verify", "code"])
        raise ValueError(f"no verifier {chosen!r}; there are {known}, 'package.module:function' and any function")
    judge = Isolated(chosen, timeout=timeout, rewards=rewards, parts=parts, memory=memory, sandbox=sandbox)
    return judge.start(), "text"


class _Table:
    """Reads tables of one kind: their columns, what their verifier says of their answers, and what is to be told of them."""

    def __init__(self, columns: tables.Columns, ignore: Sequence[str], split: str, subset: str | None) -> None:
        self.columns, self.ignore, self.split, self.subset = columns, ignore, split, subset
        self.notes: dict[str, None] = {}  # each is said once

    def cells(self, source: object, own_verifier: bool) -> tuple[list[tables.Cell], str]:
        """The checked rows without copies, and the table's label."""
        rows, names, label = reading.read(source, split=self.split, subset=self.subset)
        columns, notes = tables.columns_of(rows, names, label, self.columns)
        left = tables.unused(rows, names, label, columns, self.ignore)
        if left:
            notes.append(f"Columns not used: {', '.join(left)}{'; the verifier finds them in row' * own_verifier}.")
        everything = tables.cells(rows, label, columns, left if own_verifier else ())
        found = tables.without_copies(everything)
        if len(found) < len(everything):
            notes.append(f"{len(everything) - len(found)} copies were left out.")
        self.notes |= dict.fromkeys(notes)
        return found, label


def _good(
    found: list[tables.Cell], label: str, judge: Verifier, kind: str, name: str, system: str | None,
    bad_golds: float | str | None, notes: dict[str, None],
) -> list[tables.Cell]:  # fmt: skip
    """The rows whose reference answers their own verifier takes; raises where too many fail."""
    every = name in (*KINDS, MATH, "code")
    bad = golds.failing(found, tables.pool_of([c._replace(id="") for c in found], kind), judge, system, every=every)
    if not bad.rows:
        return found
    told = bad.told(found, label, name)
    if bad_golds is None and not every:
        notes[f"{told}. Nothing is wrong where an answer is not what is to be written."] = None
        return found
    if bad_golds == "allow":
        notes[f"{told}. They were kept."] = None
        return found
    most = golds.MOST if bad_golds is None else float(bad_golds)
    if len(bad.rows) > most * bad.judged:
        raise golds.Unfit(
            f'{told}. Mend these rows, choose another verifier, or keep them with bad_golds = "allow" '
            f"(a number is the share that may fail and is left out, now {most:g})"
        )
    notes[f"{told}. These rows were left out."] = None
    warnings.warn(f"{told}. These rows were left out.", UserWarning, stacklevel=4)
    left = set(bad.rows)
    return [c for i, c in enumerate(found) if i not in left]


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
    ignore: Sequence[str] = (),
    split: str = "train",
    subset: str | None = None,
    size: int | None = None,
    evaluation: object = EVALUATION,
    eval_share: float | None = None,
    bad_golds: float | str | None = None,
    max_tokens: int = 256,
    stop: Sequence[str] = (),
    rewards: str = "graded",
    timeout: float = 5.0,
    parts: Sequence[str] = (),
    memory: int | None = 8 << 30,
    sandbox: bool = True,
    system: str | None = None,
    template_kwargs: Mapping[str, object] | None = None,
) -> Task:
    how = _rendering(system, template_kwargs)
    if eval_share is not None and not 0 < eval_share < 1:
        raise ValueError(f"eval_share={eval_share}; a share between 0 and 1 can be held out")
    if bad_golds is not None and bad_golds != "allow":
        validate.number("bad_golds", bad_golds, 0, 1)
    table = _Table(tables.Columns(prompt, answer, prefix, stratum, id), ignore, split, subset)
    own = not isinstance(verifier, str) or ":" in verifier
    found, name = table.cells(source, own)
    other = None if isinstance(evaluation, int) else table.cells(evaluation, own)
    judge, kind = _verifier(verifier, rewards, timeout, parts, memory, sandbox)
    said = getattr(judge, "name", str(verifier))

    def good(cells: list[tables.Cell], label: str) -> list[tables.Cell]:
        return _good(cells, label, judge, kind, said, system, bad_golds, table.notes)

    found = good(found, name)
    if isinstance(evaluation, int):
        n = len({c.near for c in found})
        held = round(eval_share * n) if eval_share is not None else min(evaluation, n // 10)
        train, held_out = tables.hold_out(found, held)
    else:
        assert other is not None
        held_out = good(*other)
        train = tables.apart_from(found, held_out)
        if len(train) < len(found):
            table.notes[f"{len(found) - len(train)} prompts of the evaluation set were taken out of the pool."] = None
        taken = {c.id for c in train} - {""}  # the ids of two tables say nothing of one another
        held_out = [c._replace(id=f"{c.id}~evaluation") if c.id in taken else c for c in held_out]
    if size is not None and size < len(train):
        chosen = np.sort(np.random.default_rng(seed).permutation(len(train))[:size])
        train = [train[i] for i in chosen]
    pool, held_pool = tables.pool_of(train, kind), tables.pool_of(held_out, kind)
    judged_by = {"verifier": said if said in KINDS else judge, "rewards": rewards, "timeout": timeout, "parts": parts}
    return Task(
        name, pool, held_pool, max_tokens, tuple(stop), judge, timeout, tuple(table.notes),
        as_table={**judged_by, "max_tokens": max_tokens, "stop": tuple(stop)}, **how,
    )  # fmt: skip


def _rendering(system: object, template_kwargs: object) -> _Rendering:
    if system is not None and not isinstance(system, str):
        raise ValueError(f"system must be a text, got {system!r}")
    return {"system": system, "template_kwargs": checked_kwargs(template_kwargs or {})}


def _maker(source: object) -> Callable[..., Task]:
    if isinstance(source, str):
        if source in mixes.MIXES or source.startswith("family:") or source.split(",")[0] in mixes.families():
            return _mix
        if Path(source).exists() or ("/" in source and not reading.is_file(source)):
            return _table
        if reading.is_file(source):
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

    A table is a .jsonl, .json, .parquet, .csv or .tsv file (all but Parquet also with .gz), a folder of such shards or
    of `save_to_disk`, a hub id ("openai/gsm8k"), a Dataset, or a list of mappings. seed draws the pool; the evaluation
    set is the same under every seed.

    Options of both: evaluation (prompts held out; for a table also another table), size (most prompts in the pool),
    max_tokens, stop (strings that end an answer), rewards ("graded" or "binary"), system (the system message of prompts
    that bring none), template_kwargs (for the model's chat template, such as {"enable_thinking": False}).
    Without system a table keeps the default line of the model's template, if it has one; system="" takes it away, and
    families have none. The same in a TOML file:

        [task_options]
        system = "Answer with a number."
        template_kwargs = { enable_thinking = false }

    Options of a table: prompt, answer, prefix, stratum, id (names of columns, reward_model.ground_truth for nested ones),
    ignore (columns to do without that would be refused, such as images), verifier ("exact", "numeric", "list", "word",
    "math-verify", "code", "package.module:function", "file.py:function" or a function of completion and answer, see
    `Isolated`), timeout (seconds for one call), parts (names of the parts such a verifier returns), memory, sandbox
    (False: without the fences of docs/security.md), eval_share, split, subset, bad_golds. Every reference answer is judged by its own verifier; rows that fail are named and left out, and above 5 %
    a table is refused: bad_golds is another share, or "allow" to keep them. Of a verifier of one's own, whose answers need
    not be completions, it is only told, unless bad_golds is given.
    """
    make = _maker(name_or_path)
    known = list(inspect.signature(make).parameters)[2:]
    validate.known(options, known, f"{name_or_path!s:.60}")
    return make(name_or_path, seed=seed, **options)
