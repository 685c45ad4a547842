"""Training steps: in the making (`Draft`), with advantages per rollout (`Advantage`), and finished (`Step`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from workbench.types.columns import Ragged
from workbench.types.html import table
from workbench.types.plan import Budget, Node, Plan
from workbench.types.rollouts import Rollouts

FATES = ("trained", "dropped", "pruned", "discarded", "carried", "failed")


class Event(NamedTuple):
    """Something worth telling: kind (warning, failure, note), subject, message, how often."""

    kind: str
    subject: str
    message: str
    count: int = 1


@dataclass(frozen=True, eq=False)
class Advantage:
    """What an estimator says of R rollouts.

    value (R,) float64; keep (R,) bool: False leaves the loss, never the store; reason (R,) str says why it was
    dropped; weight (R,) float64 multiplies the loss; baseline (R,) float64 is what the reward was compared with.
    tokens: ragged per-token advantages that replace value where an estimator has them.
    """

    value: np.ndarray
    keep: np.ndarray
    weight: np.ndarray
    baseline: np.ndarray
    reason: np.ndarray
    tokens: Ragged | None = None

    @classmethod
    def start(cls, rollouts: Rollouts) -> Advantage:
        """Before any estimator: value 0; null rewards and rollouts not made for training are out of the loss."""
        null, other = ~np.isfinite(rollouts.reward), rollouts.purpose != "train"
        why = rollouts.extra.get("cut_reason", "pruned")
        empty = np.where(rollouts.finish == "pruned", why, "null_reward")
        empty = np.where(rollouts.finish == "carried", "carried", empty)
        reason = np.where(other, "purpose", np.where(null, empty, "")).astype(object)
        r = len(rollouts)
        return cls(np.zeros(r), ~(null | other), np.ones(r), np.full(r, np.nan), reason)

    def drop(self, rows: np.ndarray, reason: str) -> Advantage:
        """Take rows out of the loss; a row that is already out keeps its first reason."""
        rows = np.asarray(rows, bool) & self.keep
        return replace(self, keep=self.keep & ~rows, reason=np.where(rows, reason, self.reason))

    def revalued(self, rows: np.ndarray, value: np.ndarray, baseline: np.ndarray) -> Advantage:
        """The rows (R,) bool get a new value (R,) and baseline (R,), each of their tokens the value; the others keep what
        they have, tokens too."""
        value, baseline = np.where(rows, value, self.value), np.where(rows, baseline, self.baseline)
        tokens = self.tokens
        if tokens is not None:
            row = np.repeat(np.arange(len(value)), tokens.lengths)
            tokens = Ragged(np.where(rows[row], value[row], tokens.values), tokens.offsets)
        return replace(self, value=value, baseline=baseline, tokens=tokens)

    def scaled(self, factor: np.ndarray) -> Advantage:
        """Values and those of tokens times factor (R,)."""
        tokens = self.tokens
        if tokens is not None:
            tokens = Ragged(tokens.values * np.repeat(factor, tokens.lengths), tokens.offsets)
        return replace(self, value=self.value * factor, tokens=tokens)


@dataclass(frozen=True, eq=False)
class Draft:
    """A step in the making: all that a deciding verb may look at.

    prompts (P,) int64 rows chosen so far, fresh those chosen in this round; wanted = how many prompts the
    selector is asked for now; available (N,) bool = what the researcher has not taken out of the pool.
    plan and rollouts hold what earlier rounds of this step asked and got; both are None before the first one.
    """

    step: int
    budget: Budget
    available: np.ndarray
    prompts: np.ndarray
    round: int = 0
    wanted: int = 0
    fresh: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    plan: Plan = None  # type: ignore[assignment]
    rollouts: Rollouts = None  # type: ignore[assignment]

    @property
    def spent(self) -> int:
        """Rollouts of this step that earlier rounds made, within what each ask may grow into, or put off to this one; probes,
        which come on top, left out."""
        if self.plan is None:
            return 0
        if self.rollouts is None:
            return int(self.plan.n[self.plan.purpose != "probe"].sum())
        made = np.bincount(self.rollouts.ask[self.rollouts.ask >= 0], minlength=len(self.plan))
        later = np.where(self.plan.round == self.round - 1, self.plan.n_deferred, 0)
        return int((np.minimum(made, self.plan.n_leaves) + later)[self.plan.purpose != "probe"].sum())

    def deferred(self, method: str) -> tuple[np.ndarray, np.ndarray]:
        """(K,) asks of the round before, rows of the plan, of which a method put off (K,) int64 rollouts to this round."""
        if self.plan is None or self.rollouts is None or method not in self.plan.deferred:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        later = self.plan.deferred[method]
        rows = np.flatnonzero((later > 0) & (self.plan.round == self.round - 1))
        return rows, later[rows]

    def candidates(self) -> np.ndarray:
        """(M,) int64 rows of the pool that may still be chosen in this step, ascending."""
        free = self.available.copy()
        free[self.prompts] = False
        return np.flatnonzero(free)

    def with_(self, **columns) -> Draft:
        """A copy with some fields replaced."""
        return replace(self, **columns)


@dataclass(frozen=True, eq=False)
class Step:
    """A finished step, and all that methods ever learn from.

    prompts (P,) int64; plan and rollouts over all rounds; advantage per rollout; fate (R,) str is one of FATES,
    fate_reason (R,) str says why ("zero_advantage" for trained rows on which the policy term does not act).
    update: scalars of the optimiser step and per-rollout columns. seconds: of each phase.
    """

    step: int
    prompts: np.ndarray
    plan: Plan
    rollouts: Rollouts
    advantage: Advantage
    fate: np.ndarray
    fate_reason: np.ndarray
    update: Mapping[str, float | np.ndarray | str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    events: Sequence[Event] = ()

    def evidence(self, n_prompts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Plain outcomes by prompt: rows (K,) int64 ascending, successes (K,) and tries (K,) float64.

        Hinted, repaired, teacher, probe and evaluation rollouts are no evidence; neither are null rewards, rows that no
        ask of this step made (ask < 0: replayed, or of another node), nor continuations of a chosen place (`Node`).
        """
        seen = self.rollouts.plain & (self.rollouts.ask >= 0)
        inside = np.array([isinstance(s, Node) for s in self.plan.start], bool)
        if inside.any():
            seen = seen & ~inside[np.maximum(self.rollouts.ask, 0)]
        prompt = self.rollouts.prompt[seen]
        tries = np.bincount(prompt, minlength=n_prompts)
        solved = np.bincount(prompt, self.rollouts.correct[seen], minlength=n_prompts)
        rows = np.flatnonzero(tries)
        return rows, solved[rows], tries[rows].astype(float)

    def __repr__(self) -> str:
        fates, counts = np.unique(self.fate, return_counts=True)
        spent = ", ".join(f"{c} {f}" for f, c in zip(fates, counts, strict=True))
        return f"Step({self.step}: {self.rollouts!r}; {spent})"

    def _repr_html_(self) -> str:
        kinds, counts = np.unique(
            [f"{f}\t{r}" for f, r in zip(self.fate, self.fate_reason, strict=True)], return_counts=True
        )
        rows = [(*str(kind).split("\t", 1), int(n)) for kind, n in zip(kinds, counts, strict=True)]
        took = ", ".join(f"{phase} {s:.2f} s" for phase, s in self.seconds.items() if s >= 0.005)
        head = f"step {self.step}: {len(self.prompts)} prompts{f'; {took}' if took else ''}"
        return table(head, ("fate", "reason", "rollouts"), rows) + self.rollouts._repr_html_()
