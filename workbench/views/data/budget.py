"""Rollout and token budget of a run: the ledger, the cost of each prompt, the savings, the logs of decisions.

One `Spending` per run, shared by all viewers of a server, fed with the steps that are new. The logs are asked a page
at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.views.data.records import Columns, Stack, column
from workbench.views.data.run import kind_of, stacked

if TYPE_CHECKING:
    from workbench.views.data.run import RunData

UNITS = ("rollouts", "tokens")
OTHER = "other purposes"
"""Kind of what was generated for anything but training and evaluation: probes, profiles, references."""

PARTS = ("with signal", "zero advantage", "lost", OTHER)
"""What a prompt's cost is divided into; lost = dropped, pruned, discarded or failed."""


class Entry(NamedTuple):
    """A line of the ledger: how many rollouts and tokens of a purpose met a fate, for a reason."""

    purpose: str
    kind: str
    reason: str
    rollouts: int
    tokens: int


class Cost(NamedTuple):
    """What prompts (N,) or strata cost, by part: in rollouts and in tokens."""

    rollouts: Mapping[str, np.ndarray]
    tokens: Mapping[str, np.ndarray]

    def total(self, unit: str) -> np.ndarray:
        """(N,) sum over the parts."""
        return np.sum(list(getattr(self, unit).values()), axis=0)

    def wasted(self, unit: str) -> np.ndarray:
        """(N,) what taught nothing: zero advantage and lost."""
        parts = getattr(self, unit)
        return parts["zero advantage"] + parts["lost"]

    def by(self, code: np.ndarray, n: int) -> Cost:
        """Sums over the prompts of each code (N,) below n."""
        return Cost(*({k: np.bincount(code, v, n).astype(np.int64) for k, v in parts.items()} for parts in self))


def budget(data: RunData) -> Spending:
    """Where a run's budget went, with the newest step taken in."""
    with data.source.lock:
        data.refresh()
        found = data.kept.get(Spending)
        if found is None or found.n != len(data.prompts):
            found = data.kept[Spending] = Spending(data.prompts.stratum)
        found.refresh(data)
        return found


class Spending:
    """stacks: amounts of training by step and kind, per unit; ledger: sums by purpose, kind and reason.

    cost: of each prompt. strata, code: names of strata in order, and the one of each prompt (N,)."""

    def __init__(self, stratum: np.ndarray) -> None:
        self.n, self.step = len(stratum), 0
        self.strata, self.code = np.unique(stratum.astype(str), return_inverse=True)
        self.stacks = dict.fromkeys(UNITS, Stack())
        self.used_again = 0
        self.asked = Columns("step", "asked", "spent", "prompts", "useful", "tokens")
        self.savings = Columns(
            "step", "generated", "kept", "pruned", "discarded", "probe", "flat_equivalent", "saved", "spared"
        )
        self.cost = Cost(*({p: np.zeros(self.n, np.int64) for p in PARTS} for _ in UNITS))
        self.tests: dict[tuple[str, str], float] = {}
        self._evaluated = -1
        self._ledger: dict[tuple[str, str, str], np.ndarray] = {}

    def refresh(self, data: RunData) -> None:
        """Take in the steps and evaluations that are new."""
        if len(data.evaluation.step) and data.evaluation.step[-1] > self._evaluated:
            for r in data.ask("page_evaluation", since=self._evaluated).to_pylist():
                self._enter(("eval", "evaluation", ""), r)
                self._evaluated = r["step"]
        if data.step == self.step:
            return
        names = ("page_spent", "page_asked", "savings_by_step", "page_prompt_costs", "decisions_by_kind")
        spent, asked, saved, costs, tests = (data.ask(q, since=self.step) for q in names)
        rows = [r for r in spent.to_pylist() if not r["used_again"]]
        self.used_again += sum(r["rollouts"] for r in spent.to_pylist() if r["used_again"])
        for r in rows:
            reason = "" if r["purpose"] != "train" or r["reason"] == "zero_advantage" else r["reason"] or ""
            self._enter((r["purpose"], kind(r), reason), r)
        fresh = column(asked, "step", np.int64)
        for unit in UNITS:
            self.stacks[unit] = stacked(self.stacks[unit], fresh, [(r["step"], kind(r), r[unit]) for r in rows])
        self.asked, self.savings = self.asked.extended(asked), self.savings.extended(saved)
        at = column(costs, "position", np.int64)
        what = [part(*r) for r in zip(*(costs[c].to_pylist() for c in ("purpose", "fate", "zero")), strict=True)]
        for p in PARTS:
            on = np.array([w == p for w in what], bool)
            for unit, kept in zip(UNITS, self.cost, strict=True):
                np.add.at(kept[p], at[on], column(costs, unit, np.int64)[on])
        for r in tests.to_pylist():
            key = r["kind"], r["outcome"]
            self.tests[key] = self.tests.get(key, 0) + r["tests"]
        self.step = data.step

    def _enter(self, key: tuple[str, str, str], r: Mapping) -> None:
        self._ledger[key] = self._ledger.get(key, 0) + np.array([r["rollouts"], r["tokens"] or 0], np.int64)

    @property
    def by_stratum(self) -> Cost:
        """What each of `strata` cost."""
        return self.cost.by(self.code, len(self.strata))

    @property
    def ledger(self) -> list[Entry]:
        """Sums over the run, training first, the most tokens first."""
        rows = [Entry(*key, int(n), int(t)) for key, (n, t) in self._ledger.items()]
        order = {"train": 0, "eval": 2}
        return sorted(rows, key=lambda e: (order.get(e.purpose, 1), e.purpose, -e.tokens, e.kind, e.reason))

    def spent(self, unit: str, purposes: tuple[str, ...] | None = None) -> int:
        """Sum of the ledger over these purposes, or all but evaluation; carried rollouts count where they end."""
        return sum(
            getattr(e, unit)
            for e in self.ledger
            if e.kind != "carried to a later step" and (e.purpose in purposes if purposes else e.purpose != "eval")
        )


def kind(r: Mapping) -> str:
    """Under which colour a row of `page_spent` is stacked."""
    return kind_of(r["fate"], r["reason"], r["outcome"]) if r["purpose"] == "train" else OTHER


def part(purpose: str, fate: str, zero: bool) -> str:
    """Which of PARTS a row of `page_prompt_costs` belongs to."""
    if purpose != "train":
        return OTHER
    return "lost" if fate != "trained" else "zero advantage" if zero else "with signal"


def asks(data: RunData, first: int, limit: int, step: int | None) -> tuple[list[dict[str, Any]], int]:
    """A page of the log of asks, rows of `page_asks` with the newest step first, and how many there are."""
    rows = data.ask("page_asks", first=first, limit=limit, step=step).to_pylist()
    return rows, rows[0]["total"] if rows else 0


def decisions(data: RunData, first: int, limit: int, step: int | None, done: bool) -> tuple[list[dict[str, Any]], int]:
    """A page of the log of tests inside rollouts, rows of `page_decisions`, newest step first, and how many there are."""
    rows = data.ask("page_decisions", first=first, limit=limit, step=step, done=done).to_pylist()
    return rows, rows[0]["total"] if rows else 0
