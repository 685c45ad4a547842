"""Steps that wait for their turn to train, in a checkpoint: what was asked and what was made, as plain arrays.

Generating them again would take the weights that they were sampled from, a copy of all for each; their rows are small. What
else such a step holds (its plan, its draft, what its methods drew) is a function of the states it was planned with, which
the record gives, so it is planned again and its rows are handed to it. The marks tell where that came out otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workbench.types import Plan, Ragged, Rollouts

FILE = "waiting-{:06d}.npz"

PLAIN = (str, int, float, np.bool_, np.integer, np.floating)
"""Values that come back from JSON as they were; a tuple would be a list, and a table's rows too."""


class Kept(NamedTuple):
    """A step that was generated and not trained. planned: the mark of what it was planned by beside the states, which had
    folded the steps through `folded_through`; version: of the weights that sampled it; rounds: the mark of each plan, and
    the rows that it was given; account: what that took, as the world tells it."""

    step: int
    folded_through: int
    version: int
    planned: str
    rounds: Sequence[tuple[str, Rollouts]]
    account: Mapping[str, Any]


def mark(*things: object) -> str:
    """A fingerprint of values and arrays; equal wherever they are."""
    parts = [t.dtype.str + repr(t.tolist()) if isinstance(t, np.ndarray) else repr(t) for t in things]
    return sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def mark_of(plan: Plan) -> str:
    """The fingerprint of what a plan asks for."""
    return mark(
        plan.step, plan.prompt, plan.n, plan.n_leaves, plan.max_tokens, plan.start, plan.purpose, plan.context, plan.ordinal
    )  # fmt: skip


def save(kept: Sequence[Kept], folder: Path) -> str:
    """Write steps into an existing folder. "", or why a step and those after it could not be kept."""
    for one in kept:
        arrays: list[np.ndarray] = []
        try:
            rounds = [(plan, _taken_apart(rows, arrays)) for plan, rows in one.rounds]
        except TypeError as error:
            return f"step {one.step}, which waits, is generated again after a resume: {error}"
        head = json.dumps(one._replace(rounds=rounds)._asdict(), default=_plain)
        np.savez(
            folder / FILE.format(one.step),
            head=np.frombuffer(head.encode(), np.uint8),
            **{str(i): a for i, a in enumerate(arrays)},  # type: ignore[arg-type]
        )
    return ""


def load(folder: Path) -> list[Kept]:
    """What `save` wrote into a folder, in the order of the steps; nothing where it wrote nothing."""
    found = []
    for path in sorted(folder.glob(FILE.replace("{:06d}", "*"))):
        with np.load(path, allow_pickle=False) as held:
            head = json.loads(held["head"].tobytes())
            rounds = [(plan, Rollouts(**_put_together(columns, held))) for plan, columns in head["rounds"]]
        found.append(Kept(**head | {"rounds": rounds}))
    return found


def _taken_apart(rows: Rollouts, arrays: list[np.ndarray]) -> list[tuple[list[str], str, int]]:
    """(path, kind, place) of every column, whose values are appended to arrays from that place on."""
    named: list[tuple[list[str], Any]] = [([f.name], getattr(rows, f.name)) for f in fields(rows)]
    columns = []
    while named:
        path, column = named.pop(0)
        if isinstance(column, Mapping):
            named += [([*path, name], part) for name, part in column.items()]
            continue
        if column is None:
            continue
        place = len(arrays)
        if isinstance(column, Ragged):
            kind, values = "ragged", [column.values, column.offsets]
        elif column.dtype.kind in "OU":
            odd = {type(v).__name__ for v in column.tolist() if not (v is None or isinstance(v, PLAIN))}
            if odd:
                raise TypeError(f"column {'.'.join(path)} holds more than texts and numbers: {', '.join(sorted(odd))}")
            text = json.dumps(column.tolist(), default=_plain)
            kind, values = column.dtype.str, [np.frombuffer(text.encode("ascii"), np.uint8)]
        else:
            kind, values = "array", [column]
        arrays += values
        columns.append((path, kind, place))
    return columns


def _put_together(columns: Sequence[tuple[list[str], str, int]], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The columns that `_taken_apart` took apart."""
    made: dict[str, Any] = {}
    for path, kind, place in columns:
        values = arrays[str(place)]
        if kind == "ragged":
            column: object = Ragged(values, arrays[str(place + 1)])
        elif kind == "array":
            column = values
        else:
            rows = json.loads(values.tobytes())
            column = np.empty(len(rows), kind)
            column[:] = rows
        inside = made
        for name in path[:-1]:
            inside = inside.setdefault(name, {})
        inside[path[-1]] = column
    return made


def _plain(value: object) -> object:
    """Numbers of numpy as Python's; TypeError for anything else that JSON does not know."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no text and no number")
