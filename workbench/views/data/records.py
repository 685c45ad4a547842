"""Records that the views draw: columns of an answer, stacks, histories, prompts; and thinning, smoothing, intervals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

Record = TypeVar("Record")

EMPTY = np.empty(0)

WINDOW = 9
"""Steps over which training curves are averaged."""


class Columns:
    """The columns of an answer by name, (S,) numpy arrays: `savings.kept`. Empty until something is read."""

    def __init__(self, *names: str, **columns: np.ndarray) -> None:
        vars(self).update(dict.fromkeys(names, EMPTY) | columns)

    def __getattr__(self, name: str) -> np.ndarray:
        raise AttributeError(f"there is no column {name!r}; there are {', '.join(vars(self))}")

    def extended(self, answer: pa.Table) -> Columns:
        """These columns with those of the same names of an answer behind them."""
        return Columns(**{name: np.append(old, column(answer, name)) for name, old in vars(self).items()})


def column(answer: pa.Table, name: str, dtype: type = float) -> np.ndarray:
    """A column of an answer as numpy; null becomes NaN for floats and stays None for objects."""
    return np.asarray(answer[name].to_numpy(zero_copy_only=False), dtype=dtype)


def parsed(value: object) -> dict[str, Any]:
    """A JSON object of an answer, as text or read; empty for anything else."""
    found = json.loads(value) if isinstance(value, str) and value else value
    return dict(found) if isinstance(found, Mapping) else {}


def filled(kind: Callable[..., Record], row: Mapping[str, Any], **more: object) -> Record:
    """A NamedTuple from the columns of its names; null becomes the field's default where it has one."""
    fields, defaults = kind._fields, kind._field_defaults  # type: ignore[attr-defined]
    known = {f: row[f] for f in fields if f in row and not (row[f] is None and f in defaults)}
    return kind(**(known | more))


class RunFacts(NamedTuple):
    """One row of the run picker and the header of a page."""

    run: str
    status: str
    step: int
    target: int | None
    model: str
    pipeline: str
    who: Mapping[str, list[str]]
    n_prompts: int
    note: str = ""
    """Parameters, numbers, machine, engine: what the world told about itself, in words."""

    @property
    def room(self) -> int:
        """Steps that figures have room for: those made, and while it goes on up to the first 15 of those to come."""
        goes_on = self.status in ("running", "paused")
        return max(self.step, min(15, self.target or 15) if goes_on else 1)


CURVES = ("step", "reward", "pass_rate", "zero_advantage", "rollouts", "tokens", "seconds")
"""Columns of `reward_by_step` that are drawn, over the training rollouts of a step. zero_advantage: share of those that
entered the loss with advantage zero; seconds: of the whole step."""


class Evaluation(NamedTuple):
    """(E,) columns of the fixed evaluation set: mean correct with its 95 % interval for prompts like these
    (Wilson, by as many answers as those tell as much as: several to one prompt are alike), mean reward, rollouts."""

    step: np.ndarray = EMPTY
    solved: np.ndarray = EMPTY
    low: np.ndarray = EMPTY
    high: np.ndarray = EMPTY
    reward: np.ndarray = EMPTY
    n: np.ndarray = EMPTY


class Stack(NamedTuple):
    """Amounts by step and kind: step (S,) the last step of each bar, amount {kind: (S,)}, width steps to a bar."""

    step: np.ndarray = EMPTY
    amount: Mapping[str, np.ndarray] = {}
    width: int = 1

    def totals(self) -> dict[str, float]:
        """Sum over the steps of each kind."""
        return {kind: float(np.nansum(column)) for kind, column in self.amount.items()}


class History(NamedTuple):
    """One prompt: what was believed (B,) and what came back (O,) by step, and what it is."""

    prompt: str = ""
    text: str = ""
    answer: str = ""
    stratum: str = ""
    step: np.ndarray = EMPTY
    mean: np.ndarray = EMPTY
    low: np.ndarray = EMPTY
    high: np.ndarray = EMPTY
    asked_step: np.ndarray = EMPTY
    asked: np.ndarray = EMPTY
    solved: np.ndarray = EMPTY


class Group(NamedTuple):
    """The rollouts of one prompt in one step: rows of `page_group`, each with its `parts`, rewards by name."""

    step: int = 0
    prompt: str = ""
    text: str = ""
    answer: str = ""
    place: int = 0
    of: int = 0
    rows: tuple[dict[str, Any], ...] = ()
    rank: int = 0


@dataclass(frozen=True)
class Prompts:
    """The prompts of a run in the order of its pool, (N,) each."""

    id: np.ndarray = field(default_factory=lambda: np.empty(0, object))
    text: np.ndarray = field(default_factory=lambda: np.empty(0, object))
    stratum: np.ndarray = field(default_factory=lambda: np.empty(0, object))

    def __len__(self) -> int:
        return len(self.id)

    def row(self, id_: str) -> int | None:
        """Place of a prompt in the pool, None where there is no such prompt."""
        at = self._rows.get(id_)
        return at

    @property
    def _rows(self) -> dict[str, int]:
        if "_index" not in self.__dict__:
            object.__setattr__(self, "_index", {p: i for i, p in enumerate(self.id.tolist())})
        return self.__dict__["_index"]


def thinned(most: int, step: np.ndarray, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """(S,) columns in at most `most` places: the last step of each piece, and the mean of what is known in it."""
    k = max(1, -(-len(step) // most))
    if k == 1:
        return step, *columns
    at = np.arange(0, len(step), k)
    out = [step[np.minimum(at + k, len(step)) - 1]]
    for values in columns:
        known = np.isfinite(values)
        n = np.add.reduceat(known, at, dtype=np.int64)
        out.append(np.where(n > 0, np.add.reduceat(np.where(known, values, 0), at) / np.maximum(n, 1), np.nan))
    return tuple(out)


def binned(stack: Stack, bars: int = 120) -> Stack:
    """Amounts per step in at most `bars` bars: a long run is drawn as means over neighbouring steps."""
    k = max(1, -(-len(stack.step) // bars))
    if k == 1:
        return stack
    step, *means = thinned(bars, stack.step, *map(np.nan_to_num, stack.amount.values()))
    return Stack(step, dict(zip(stack.amount, means, strict=True)), k * stack.width)


def wilson(solved: np.ndarray, n: np.ndarray, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """Interval (low, high) of a share of n draws (Wilson 1927); n = 0 gives (0, 1)."""
    n = np.asarray(n, float)
    p = np.divide(solved, n, out=np.full(len(n), 0.5), where=n > 0)
    n = np.where(n > 0, n, 1e-12)
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)


def smooth(y: np.ndarray, window: int) -> np.ndarray:
    """Mean over the last `window` values that are known; (S,) in, (S,) out."""
    known = np.isfinite(y)
    total = np.concatenate([[0.0], np.cumsum(np.where(known, y, 0.0))])
    n = np.concatenate([[0], np.cumsum(known)])
    stop = np.arange(1, len(y) + 1)
    start = np.maximum(stop - window, 0)
    got = n[stop] - n[start]
    return np.where(got > 0, (total[stop] - total[start]) / np.maximum(got, 1), np.nan)
