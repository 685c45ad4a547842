"""Rollouts: completions of prompts as columns, one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from workbench.types.columns import Ragged, concat, frozen, take
from workbench.types.html import cut, rest, table
from workbench.types.plan import Plan
from workbench.types.pool import Pool


@dataclass(frozen=True, eq=False)
class Rollouts:
    """R rollouts as columns; a row is one completion of one prompt.

    id (R,) str; prompt (R,) int64 row of the pool; ask (R,) int64 row of the plan; group (R,) int64 =
    normalisation group inside the step; step, version (R,) int64 (version = updates the sampling policy had seen).
    reward (R,) float64 is what training uses, NaN = null (the verifier failed); correct (R,) float64 is
    0, 1 or NaN and is the evidence of difficulty. rewards maps part names to (R,) float64, NaN = null.
    length (R,) int64 generated tokens. finish (R,) str: stop, length, aborted. failure (R,) str: "" or what
    failed (verifier_raised, verifier_timeout, ...). temperature (R,) float64 of the sampler that made its last token, NaN
    = none or not known. tokens int32, logp and entropy float32 (nats, of the distribution that was
    sampled), role int8 (`numerics.roles`) are ragged or None where not kept. proximal and current are further logprob
    tracks. Where the tokens of a hint stand in front, role tells them apart, length does not count them, and their logp
    and entropy are those of the policy that trains.
    extra: what else methods need, by name: (R, ...) arrays, or ragged per-token columns, empty in rows of which nothing is
    known, such as those of earlier steps.
    """

    id: np.ndarray
    prompt: np.ndarray
    ask: np.ndarray
    group: np.ndarray
    step: np.ndarray
    text: np.ndarray
    answer: np.ndarray
    reward: np.ndarray
    correct: np.ndarray
    length: np.ndarray
    finish: np.ndarray
    purpose: np.ndarray
    context: np.ndarray
    version: np.ndarray
    parent: np.ndarray
    fork_at: np.ndarray
    failure: np.ndarray
    temperature: np.ndarray = None  # type: ignore[assignment]
    rewards: Mapping[str, np.ndarray] = field(default_factory=dict)
    tokens: Ragged | None = None
    logp: Ragged | None = None
    entropy: Ragged | None = None
    role: Ragged | None = None
    proximal: Ragged | None = None
    current: Ragged | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        r = len(self.id)
        if self.temperature is None:
            object.__setattr__(self, "temperature", np.full(r, np.nan))
        for f in fields(self):
            column = getattr(self, f.name)
            if isinstance(column, np.ndarray) and len(column) != r:
                raise ValueError(f"{r} rollouts but {len(column)} in column {f.name!r}")
            if isinstance(column, Ragged) and column.n_rows != r:
                raise ValueError(f"{r} rollouts but {column.n_rows} in column {f.name!r}")
        object.__setattr__(self, "rewards", frozen(self.rewards))
        object.__setattr__(self, "extra", frozen(self.extra))

    def __len__(self) -> int:
        return len(self.id)

    @classmethod
    def of_plan(cls, plan: Plan, pool: Pool, version: int = 0) -> Rollouts:
        """The rows a plan asks for, still ungenerated: ids and provenance filled, text empty, reward null."""
        ask = np.repeat(np.arange(len(plan)), plan.n)
        k = np.arange(len(ask)) - np.repeat(np.cumsum(plan.n) - plan.n, plan.n) + plan.ordinal[ask]
        r = len(ask)
        prompt, purpose = plan.prompt[ask], plan.purpose[ask]
        prefix = np.where(purpose == "train", "", np.char.add(purpose.astype(str), "-")) if r else []
        id_ = [f"{lead}{plan.step}:{pid}:{i}" for lead, pid, i in zip(prefix, pool.ids[prompt], k, strict=True)]
        null = np.full(r, np.nan)
        return cls(
            id=np.array(id_, dtype=object),
            prompt=prompt,
            ask=ask,
            group=np.zeros(r, np.int64),
            step=np.full(r, plan.step, np.int64),
            text=np.full(r, "", dtype=object),
            answer=np.full(r, None, dtype=object),
            reward=null,
            correct=null.copy(),
            length=np.zeros(r, np.int64),
            finish=np.full(r, "", dtype=object),
            purpose=purpose,
            context=plan.context[ask],
            version=np.full(r, version, np.int64),
            parent=np.full(r, "", dtype=object),
            fork_at=np.full(r, -1, np.int64),
            failure=np.full(r, "", dtype=object),
        )

    def __reduce__(self) -> tuple:
        """Pickle and copy with plain dicts: a read-only view of one cannot be."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        return _rebuilt, ({n: dict(c) if isinstance(c, Mapping) else c for n, c in columns.items()},)

    def take(self, rows: np.ndarray) -> Rollouts:
        """The rollouts named by an index or boolean mask, with every column."""
        return Rollouts(**{f.name: take(getattr(self, f.name), rows) for f in fields(self)})

    def with_(self, **columns) -> Rollouts:
        """A copy with some columns replaced."""
        return replace(self, **columns)

    @staticmethod
    def concat(parts: Sequence[Rollouts]) -> Rollouts:
        """All rows of several rounds, in order; a named reward or extra column that some
        lack is NaN, False, "", 0 or empty in their rows."""
        parts = [p for p in parts if len(p)] or list(parts[:1])
        if len(parts) == 1:
            return parts[0]
        sizes = [len(p) for p in parts]
        for name in ("tokens", "logp", "entropy", "role", "proximal", "current"):
            if len({getattr(p, name) is None for p in parts}) > 1:
                raise ValueError(f"some of the rollouts to be joined have {name} and some have not")
        return Rollouts(**{f.name: concat([getattr(p, f.name) for p in parts], sizes) for f in fields(Rollouts)})

    @property
    def plain(self) -> np.ndarray:
        """(R,) bool: rollouts of the plain prompt for training, scored: the only evidence of difficulty."""
        return (self.context == "") & (self.purpose == "train") & np.isfinite(self.correct)

    def __repr__(self) -> str:
        if not len(self):
            return "Rollouts(none)"
        reward = np.nanmean(self.reward) if np.isfinite(self.reward).any() else np.nan
        return (
            f"Rollouts({len(self)} of {len(np.unique(self.prompt))} prompts, "
            f"mean reward {reward:.3f}, {int(self.length.sum())} tokens)"
        )

    def _repr_html_(self, shown: int = 8) -> str:
        rows = [
            (g, {1.0: "✓", 0.0: "✗"}.get(c, "–"), "–" if r != r else f"{r:.3f}", n, f, cut(t))
            for g, c, r, n, f, t in zip(
                self.group[:shown], self.correct, self.reward, self.length, self.finish, self.text, strict=False
            )
        ]
        head = ("group", "correct", "reward", "tokens", "finish", "completion")
        return table(repr(self), head, rows) + rest(len(self) - shown)


def _rebuilt(columns: dict) -> Rollouts:
    return Rollouts(**columns)
