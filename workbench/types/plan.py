"""Budget and plan of a step: what it may spend, which prompts it takes, and which rollouts it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from workbench.types.columns import frozen
from workbench.types.html import cut, rest, table

LEAVES, LATER = "leaves", ".later"
"""Names of two columns among a plan's `figures`: its leaves, and `<method>.later` for what a method put off."""

PURPOSES = ("train", "probe", "profile", "reference", "teacher", "eval")


@dataclass(frozen=True)
class Budget:
    """What one step may spend. None means no limit of that kind; what is unspent is reported.

    >>> Budget(prompts=4, rollouts=32).rollouts
    32
    """

    prompts: int = 16
    rollouts: int = 128
    tokens: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.prompts < 1 or self.rollouts < self.prompts:
            raise ValueError(
                f"a step of {self.prompts} prompts and {self.rollouts} rollouts cannot give every prompt one rollout"
            )


class Node(NamedTuple):
    """Start an ask at a recorded node of a tree."""

    id: str


class Text(NamedTuple):
    """Start an ask after extra text written in the given role (a hint, a strategy)."""

    prefix: str
    role: str = "assistant"


class Resume(NamedTuple):
    """Start an ask where an unfinished rollout stopped."""

    rollout: str


class Picked(NamedTuple):
    """What a selector chose: rows (P,) int64 of the pool, first choice first. why maps a name to (P,) floats: the numbers
    each was chosen by, recorded with its asks."""

    rows: np.ndarray
    why: Mapping[str, np.ndarray] = MappingProxyType({})

    @classmethod
    def of(cls, chosen: Picked | np.ndarray) -> Picked:
        """Rows alone are a choice that gives no reason."""
        return chosen if isinstance(chosen, Picked) else cls(np.asarray(chosen, np.int64))

    @classmethod
    def among(cls, rows: np.ndarray, best: np.ndarray, **why: np.ndarray) -> Picked:
        """Of candidates rows (M,) those at positions best (P,), each with its figures out of columns (M,)."""
        return cls(rows[best], {name: np.asarray(column, float)[best] for name, column in why.items()})


@dataclass(frozen=True, eq=False)
class Plan:
    """What to generate: A asks as columns.

    prompt (A,) int64 rows of the pool; n (A,) int64 rollouts asked; ordinal (A,) int64 = rollouts of
    that prompt and purpose already asked in this step, which makes rollout ids independent of order.
    max_tokens (A,) int64, 0 = the world's limit. start (A,) object, None = the prompt itself.
    context (A,) str keys difficulty evidence: "" is the plain prompt. round (A,) is filled by the loop.
    leaves (A,) int64: rollouts that an ask may grow into by forks, those that are given up not counted; None = n of each.
    deferred maps a method's name to (A,) int64: rollouts of each ask that it put off to the next round.
    why maps a name to (A,) floats: the numbers the decision was made from, for people; no code reads them.
    memory maps a name to (A,) floats that the method which wrote them reads again while the step is made; not recorded.
    notes: what a decider must remember until observe.
    """

    prompt: np.ndarray
    n: np.ndarray
    max_tokens: np.ndarray = None  # type: ignore[assignment]
    start: np.ndarray = None  # type: ignore[assignment]
    purpose: np.ndarray = None  # type: ignore[assignment]
    context: np.ndarray = None  # type: ignore[assignment]
    ordinal: np.ndarray = None  # type: ignore[assignment]
    round: np.ndarray = None  # type: ignore[assignment]
    leaves: np.ndarray | None = None
    deferred: Mapping[str, np.ndarray] = field(default_factory=dict)
    why: Mapping[str, np.ndarray] = field(default_factory=dict)
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: Mapping[str, np.ndarray] = field(default_factory=dict)
    folded_through: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        a = len(self.prompt)
        fill = {
            "max_tokens": np.zeros(a, np.int64),
            "start": np.full(a, None, dtype=object),
            "purpose": np.full(a, "train", dtype=object),
            "context": np.full(a, "", dtype=object),
            "ordinal": np.zeros(a, np.int64),
            "round": np.zeros(a, np.int64),
        }
        for name, default in fill.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        object.__setattr__(self, "prompt", np.asarray(self.prompt, np.int64))
        object.__setattr__(self, "n", np.asarray(self.n, np.int64))
        for name in ("n", *fill):
            if len(getattr(self, name)) != a:
                raise ValueError(f"plan has {a} prompts but {len(getattr(self, name))} in column {name!r}")
        for name, column in ({LEAVES: self.n_leaves} | dict(self.deferred)).items():
            if len(column) != a:
                raise ValueError(f"plan has {a} prompts but {len(column)} in column {name!r}")
        if (self.n < 0).any():
            raise ValueError(f"a plan cannot ask for {int(self.n.min())} rollouts")
        if taken := [name for name in self.why if name == LEAVES or name.endswith(LATER)]:
            raise ValueError(f"why has {taken[0]!r}, which is a column of its own: say leaves=, or plan.defer(...)")
        for name in ("deferred", "why", "memory", "notes"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def n_rollouts(self) -> int:
        """Rollouts asked for in all."""
        return int(self.n.sum())

    @property
    def n_leaves(self) -> np.ndarray:
        """(A,) int64 rollouts that each ask may grow into: its leaves, or n where nothing forks."""
        return self.n if self.leaves is None else self.leaves

    @property
    def n_deferred(self) -> np.ndarray:
        """(A,) int64 rollouts of each ask that were put off to the next round, by all methods together."""
        return sum(self.deferred.values(), np.zeros(len(self), np.int64))

    @property
    def from_prompt(self) -> np.ndarray:
        """(A,) bool: asks for rollouts to be trained on that begin at their prompt, hinted or not, and inside no other."""
        inside = np.array([isinstance(s, Node | Resume) for s in self.start], bool)
        return (self.purpose == "train") & ~inside & (self.n > 0)

    @property
    def is_plain(self) -> np.ndarray:
        """(A,) bool: those of them that begin at the plain prompt."""
        hinted = np.array([s is not None for s in self.start], bool)
        return self.from_prompt & (self.context == "") & ~hinted

    def with_n(self, n: np.ndarray, leaves: np.ndarray | None = None) -> Plan:
        """The plan with n (A,) rollouts asked, which may grow by forks into leaves (A,); None = as many more or fewer than
        before as n is."""
        if leaves is None and self.leaves is not None:
            leaves = np.maximum(self.leaves + n - self.n, 0)
        return replace(self, n=n, leaves=leaves)

    def defer(self, method: str, rows: np.ndarray, n_later: np.ndarray) -> Plan:
        """The plan with n_later (K,) rollouts of the asks rows (K,) put off to the next round by a method."""
        later = np.zeros(len(self), np.int64)
        later[rows] = n_later
        return replace(self.with_n(self.n - later), deferred={**self.deferred, method: later})

    def settled(self, rows: np.ndarray, n: np.ndarray) -> Plan:
        """The plan in which the asks rows (A,) bool are for n (A,) rollouts at once: none is put off or left to forks."""
        leaves = None if self.leaves is None else np.where(rows, n, self.leaves)
        deferred = {method: np.where(rows, 0, later) for method, later in self.deferred.items()}
        return replace(self, n=np.where(rows, n, self.n), leaves=leaves, deferred=deferred)

    @property
    def figures(self) -> dict[str, np.ndarray]:
        """All numbers that say why and how an ask was made, (A,) floats by name, as they are recorded and shown."""
        leaves = {} if self.leaves is None else {LEAVES: self.leaves}
        columns = {**self.why, **leaves, **{method + LATER: later for method, later in self.deferred.items()}}
        return {name: np.asarray(column, float) for name, column in columns.items()}

    @classmethod
    def of_figures(cls, figures: Mapping[str, np.ndarray], n: np.ndarray, **columns: Any) -> Plan:
        """The plan of n (A,) rollouts whose `figures` these are, NaN where an ask has none."""
        why = dict(figures)
        leaves = why.pop(LEAVES, None)
        put_off = {name: why.pop(name) for name in figures if name.endswith(LATER)}
        return cls(
            n=n,
            leaves=None if leaves is None else np.where(np.isnan(leaves), n, leaves).astype(np.int64),
            deferred={name.removesuffix(LATER): np.nan_to_num(k).astype(np.int64) for name, k in put_off.items()},
            why=why,
            **columns,
        )

    @staticmethod
    def concat(plans: Sequence[Plan]) -> Plan:
        """All asks of several rounds; a figure that one of them lacks is NaN there, and nothing is put off by a method that
        it does not name."""
        if len(plans) == 1:
            return plans[0]

        def joined(what: str, missing: float) -> dict[str, np.ndarray]:
            columns = [(getattr(p, what), np.full(len(p), missing)) for p in plans]
            names = sorted({name for named, _ in columns for name in named})
            return {name: np.concatenate([named.get(name, blank) for named, blank in columns]) for name in names}

        columns = ("prompt", "n", "max_tokens", "start", "purpose", "context", "ordinal", "round")
        grows = any(p.leaves is not None for p in plans)
        return Plan(
            **{c: np.concatenate([getattr(p, c) for p in plans]) for c in columns},
            leaves=np.concatenate([p.n_leaves for p in plans]) if grows else None,
            deferred=joined("deferred", 0),
            why=joined("why", np.nan),
            memory=joined("memory", np.nan),
            notes={name: value for p in plans for name, value in p.notes.items()},
            folded_through=plans[0].folded_through,
            step=plans[0].step,
        )

    def __repr__(self) -> str:
        return f"Plan(step {self.step}: {self.n_rollouts} rollouts of {len(np.unique(self.prompt))} prompts)"

    def _repr_html_(self, shown: int = 8) -> str:
        rows = [
            (
                self.prompt[i], self.n[i], self.purpose[i], cut(self.context[i], 40),
                ", ".join(f"{name} {c[i]:.3g}" for name, c in self.figures.items() if np.isfinite(c[i])),
            )
            for i in range(min(len(self), shown))
        ]  # fmt: skip
        head = ("prompt", "asked", "purpose", "context", "because")
        return table(repr(self), head, rows) + rest(len(self) - shown)
