"""What a step may spend, which prompts it takes, and what it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from workbench.types.columns import frozen
from workbench.types.html import cut, rest, table

LEAVES = "leaves"
"""Column of a plan's `why`: rollouts that an ask may grow into, its forks included."""

LATER = ".later"
"""How columns of a plan's `why` end that tell rollouts of an ask which were put off to the next round, by whomever."""

PURPOSES = ("train", "probe", "profile", "reference", "teacher", "eval")


@dataclass(frozen=True)
class Budget:
    """What one step may spend. None means no limit of that kind; what is unspent is reported."""

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


class Ask(NamedTuple):
    """One row of a plan: n rollouts of one prompt, and why."""

    prompt: int
    n: int
    max_tokens: int | None = None
    start: Node | Text | Resume | None = None
    purpose: str = "train"
    context: str = ""
    why: Mapping[str, float] = MappingProxyType({})


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
    context (A,) str keys difficulty evidence: "" is the plain prompt.
    why maps a name to (A,) floats: the numbers the decision was made from. notes: what a decider must
    remember until observe. round (A,) is filled by the loop.
    """

    prompt: np.ndarray
    n: np.ndarray
    max_tokens: np.ndarray = None  # type: ignore[assignment]
    start: np.ndarray = None  # type: ignore[assignment]
    purpose: np.ndarray = None  # type: ignore[assignment]
    context: np.ndarray = None  # type: ignore[assignment]
    ordinal: np.ndarray = None  # type: ignore[assignment]
    round: np.ndarray = None  # type: ignore[assignment]
    why: Mapping[str, np.ndarray] = field(default_factory=dict)
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
        if (self.n < 0).any():
            raise ValueError(f"a plan cannot ask for {int(self.n.min())} rollouts")
        object.__setattr__(self, "why", frozen(self.why))
        object.__setattr__(self, "notes", frozen(self.notes))

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def n_rollouts(self) -> int:
        """Rollouts asked for in all."""
        return int(self.n.sum())

    @property
    def leaves(self) -> np.ndarray:
        """(A,) int64 rollouts that each ask may grow into, those that were given up not counted: n where nobody said."""
        said = self.why.get(LEAVES)
        return self.n if said is None else np.where(np.isnan(said), self.n, said).astype(np.int64)

    def rooted(self, n: np.ndarray, leaves: np.ndarray | None = None) -> Plan:
        """The plan with n (A,) roots, which may grow by forks into leaves (A,), None = what was asked before."""
        leaves = self.leaves if leaves is None else leaves
        return replace(self, n=n, why={**self.why, LEAVES: np.asarray(leaves, float)})

    def asking(self, n: np.ndarray) -> Plan:
        """The plan with n (A,) rollouts asked; what an ask may grow into changes by as many."""
        grown = {LEAVES: np.maximum(self.leaves + n - self.n, 0).astype(float)} if LEAVES in self.why else {}
        return replace(self, n=n, why={**self.why, **grown})

    @property
    def from_prompt(self) -> np.ndarray:
        """(A,) bool: asks for rollouts to be trained on that begin at their prompt, hinted or not, and inside no other."""
        inside = np.array([isinstance(s, Node | Resume) for s in self.start], bool)
        return (self.purpose == "train") & ~inside & (self.n > 0)

    @property
    def plain(self) -> np.ndarray:
        """(A,) bool: those of them that begin at the plain prompt."""
        hinted = np.array([s is not None for s in self.start], bool)
        return self.from_prompt & (self.context == "") & ~hinted

    @property
    def later(self) -> np.ndarray:
        """(A,) int64 rollouts of each ask that were put off to the next round."""
        columns = [np.nan_to_num(c) for name, c in self.why.items() if name.endswith(LATER)]
        return np.sum(columns, axis=0).astype(np.int64) if columns else np.zeros(len(self), np.int64)

    def at_once(self, rows: np.ndarray) -> Plan:
        """The plan with all of the asks rows (A,) bool asked now: what was put off, and what was left to forks."""
        return self._settled(rows, np.maximum(self.leaves, self.n + self.later))

    def without(self, rows: np.ndarray) -> Plan:
        """The plan without the asks rows (A,) bool: they stay as asks of none."""
        return self._settled(rows, np.zeros(len(self), np.int64))

    def _settled(self, rows: np.ndarray, n: np.ndarray) -> Plan:
        """The asks rows are for n (A,) rollouts, now and in all."""
        why = {
            k: np.where(rows, n if k == LEAVES else 0.0, c)
            for k, c in self.why.items()
            if k == LEAVES or k.endswith(LATER)
        }
        return replace(self, n=np.where(rows, n, self.n), why={**self.why, **why})

    def asks(self) -> Iterator[Ask]:
        """The plan row by row, for people and for asks that need Python."""
        for i in range(len(self)):
            yield Ask(
                int(self.prompt[i]),
                int(self.n[i]),
                int(self.max_tokens[i]) or None,
                self.start[i],
                str(self.purpose[i]),
                str(self.context[i]),
                {name: float(column[i]) for name, column in self.why.items()},
            )

    @staticmethod
    def concat(plans: Sequence[Plan]) -> Plan:
        """All asks of several rounds; `why` columns missing in one of them are NaN there."""
        if len(plans) == 1:
            return plans[0]
        names = sorted({name for p in plans for name in p.why})
        why = {name: np.concatenate([p.why.get(name, np.full(len(p), np.nan)) for p in plans]) for name in names}
        notes = {name: value for p in plans for name, value in p.notes.items()}
        columns = ("prompt", "n", "max_tokens", "start", "purpose", "context", "ordinal", "round")
        return Plan(
            **{c: np.concatenate([getattr(p, c) for p in plans]) for c in columns},
            why=why,
            notes=notes,
            folded_through=plans[0].folded_through,
            step=plans[0].step,
        )

    def __repr__(self) -> str:
        return f"Plan(step {self.step}: {self.n_rollouts} rollouts of {len(np.unique(self.prompt))} prompts)"

    def _repr_html_(self, shown: int = 8) -> str:
        rows = [
            (
                self.prompt[i], self.n[i], self.purpose[i], cut(self.context[i], 40),
                ", ".join(f"{name} {c[i]:.3g}" for name, c in self.why.items() if np.isfinite(c[i])),
            )
            for i in range(min(len(self), shown))
        ]  # fmt: skip
        head = ("prompt", "asked", "purpose", "context", "because")
        return table(repr(self), head, rows) + rest(len(self) - shown)
