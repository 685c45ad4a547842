"""The nouns of a training step: plain frozen records over numpy columns.

One row per rollout, in memory, in the store and in the pure functions. Ragged columns are
(values, offsets), never lists of lists. Nothing here knows a model, an engine or a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch

    from workbench.pauses import Checkpoint

LEAVES = "leaves"
"""Column of a plan's `why`: rollouts that an ask may grow into, its forks included."""

PURPOSES = ("train", "probe", "profile", "reference", "teacher", "eval")
FATES = ("trained", "dropped", "pruned", "discarded", "carried", "failed")


class Ragged(NamedTuple):
    """A column whose rows differ in length: values (sum of lengths,), offsets (R + 1,) int64."""

    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, rows: Iterable[Sequence | np.ndarray], dtype: np.typing.DTypeLike) -> Ragged:
        """Pack rows of different lengths; no rows give an empty column."""
        arrays = [np.asarray(row, dtype=dtype) for row in rows]
        offsets = np.concatenate([[0], np.cumsum([len(a) for a in arrays])]).astype(np.int64)
        values = np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
        return cls(values, offsets)

    @property
    def lengths(self) -> np.ndarray:
        """(R,) int64 number of values in each row."""
        return np.diff(self.offsets)

    @property
    def n_rows(self) -> int:
        """Number of rows R."""
        return len(self.offsets) - 1

    def row(self, i: int) -> np.ndarray:
        """A view of the values of row i."""
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def rows(self) -> Iterator[np.ndarray]:
        """Views of all rows, in order."""
        return (self.row(i) for i in range(self.n_rows))

    def take(self, rows: np.ndarray) -> Ragged:
        """The rows named by an index or boolean mask, packed again."""
        rows = np.arange(self.n_rows)[rows]
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Ragged(self.values[np.repeat(self.offsets[rows], lengths) + inside], offsets)

    def mean(self) -> np.ndarray:
        """(R,) float64 mean of each row; an empty row gives NaN."""
        row = np.repeat(np.arange(self.n_rows), self.lengths)
        total = np.bincount(row, self.values, minlength=self.n_rows)
        return np.where(self.lengths > 0, total / np.maximum(self.lengths, 1), np.nan)

    @staticmethod
    def concat(parts: Sequence[Ragged]) -> Ragged:
        """The rows of all parts, in order."""
        lengths = np.concatenate([p.lengths for p in parts])
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Ragged(np.concatenate([p.values for p in parts]), offsets)


def _frozen(mapping: Mapping) -> Mapping:
    return MappingProxyType(dict(mapping))


def _take(column: Any, rows: np.ndarray) -> Any:
    if isinstance(column, Ragged):
        return column.take(rows)
    if isinstance(column, Mapping):
        return {name: _take(part, rows) for name, part in column.items()}
    return None if column is None else column[rows]


def _blank(column: np.ndarray | Ragged, n: int) -> np.ndarray | Ragged:
    """n rows of a column of which nothing is known: NaN, False, "" or 0 by its type, empty where it is ragged."""
    if isinstance(column, Ragged):
        return Ragged(column.values[:0], np.zeros(n + 1, np.int64))
    column = np.asarray(column)
    fill = {"f": np.nan, "O": "", "U": ""}.get(column.dtype.kind, 0)
    return np.full((n, *column.shape[1:]), fill, dtype=column.dtype)


def _concat(parts: Sequence[Any], sizes: Sequence[int]) -> Any:
    first = parts[0]
    if isinstance(first, Ragged):
        return Ragged.concat(parts)
    if isinstance(first, Mapping):
        like = {name: part[name] for part in reversed(parts) for name in part}
        whole = [
            {n: part[n] if n in part else _blank(like[n], k) for n in like}
            for part, k in zip(parts, sizes, strict=True)
        ]
        return {name: _concat([part[name] for part in whole], sizes) for name in sorted(like)}
    return None if first is None else np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Pool:
    """The prompts a run may ask for: N rows with stable ids.

    ids (N,) str is a content hash plus the source row, equal across runs and machines.
    text, answer (N,) str are shown and verified; prefix (N,) str is a prefilled start of the answer.
    stratum (N,) str names the family of a prompt; features maps a name to (N, d) floats.
    """

    ids: np.ndarray
    text: np.ndarray
    answer: np.ndarray
    prefix: np.ndarray
    stratum: np.ndarray
    features: Mapping[str, np.ndarray] = field(default_factory=dict)
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.ids)
        for name in ("text", "answer", "prefix", "stratum"):
            if len(getattr(self, name)) != n:
                raise ValueError(f"pool has {n} ids but {len(getattr(self, name))} in column {name!r}")
        unique, counts = np.unique(self.ids, return_counts=True)
        if len(unique) != n:
            twice = unique[counts > 1][:3].tolist()
            raise ValueError(f"prompt ids must be unique; {twice} appear more than once")
        object.__setattr__(self, "features", _frozen(self.features))
        object.__setattr__(self, "extra", _frozen(self.extra))

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: np.ndarray) -> Pool:
        """The pool of the rows named by an index or mask."""
        return Pool(**{f.name: _take(getattr(self, f.name), rows) for f in fields(self)})

    def __repr__(self) -> str:
        names, counts = np.unique(self.stratum, return_counts=True)
        strata = ", ".join(f"{n} {c}" for n, c in list(zip(names, counts, strict=True))[:6])
        return f"Pool({len(self)} prompts: {strata}{', ...' if len(names) > 6 else ''})"

    def _repr_html_(self, shown: int = 8) -> str:
        columns = (self.ids, self.stratum, self.text, self.answer)
        rows = [
            (_cut(i, 40), s, _cut(t), _cut(a, 40)) for i, s, t, a in zip(*(c[:shown] for c in columns), strict=True)
        ]
        return _html_table(repr(self), ("id", "family", "prompt", "answer"), rows) + _rest(len(self) - shown)


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
        object.__setattr__(self, "why", _frozen(self.why))
        object.__setattr__(self, "notes", _frozen(self.notes))

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
                self.prompt[i], self.n[i], self.purpose[i], _cut(self.context[i], 40),
                ", ".join(f"{name} {c[i]:.3g}" for name, c in self.why.items() if np.isfinite(c[i])),
            )
            for i in range(min(len(self), shown))
        ]  # fmt: skip
        head = ("prompt", "asked", "purpose", "context", "because")
        return _html_table(repr(self), head, rows) + _rest(len(self) - shown)


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
        object.__setattr__(self, "rewards", _frozen(self.rewards))
        object.__setattr__(self, "extra", _frozen(self.extra))

    def __len__(self) -> int:
        return len(self.id)

    @classmethod
    def asked(cls, plan: Plan, pool: Pool, version: int = 0) -> Rollouts:
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
        return Rollouts(**{f.name: _take(getattr(self, f.name), rows) for f in fields(self)})

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
        return Rollouts(**{f.name: _concat([getattr(p, f.name) for p in parts], sizes) for f in fields(Rollouts)})

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
            (g, {1.0: "✓", 0.0: "✗"}.get(c, "–"), "–" if r != r else f"{r:.3f}", n, f, _cut(t))
            for g, c, r, n, f, t in zip(
                self.group[:shown], self.correct, self.reward, self.length, self.finish, self.text, strict=False
            )
        ]
        head = ("group", "correct", "reward", "tokens", "finish", "completion")
        return _html_table(repr(self), head, rows) + _rest(len(self) - shown)


def _cut(text: object, limit: int = 120) -> str:
    """A text on one line, control characters drawn, cut for a cell."""
    line = "".join(
        c if c.isprintable() else "␣" if c.isspace() else "\N{SYMBOL FOR SUBSTITUTE}" for c in str(text)[:limit]
    )
    return line + ("…" if len(str(text)) > limit else "")


def _html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for a notebook cell; everything in it is escaped."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(v))}</td>" for v in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><tr>{top}</tr>{body}</table>"


def _rest(n: int) -> str:
    """How many rows a table leaves out."""
    return f"<p>and {n:,} more</p>" if n > 0 else ""


def _rebuilt(columns: dict) -> Rollouts:
    return Rollouts(**columns)


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
    update: Mapping[str, float | np.ndarray] = field(default_factory=dict)
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
        return _html_table(head, ("fate", "reason", "rollouts"), rows) + self.rollouts._repr_html_()


class Event(NamedTuple):
    """Something worth telling: kind (warning, failure, note), subject, message, how often."""

    kind: str
    subject: str
    message: str
    count: int = 1


class Look(NamedTuple):
    """What one checkpoint makes of a frontier: due (B,) bool, rows that paused for it; tail (B,) str, their text since it
    paused them last."""

    due: np.ndarray
    tail: np.ndarray


@dataclass(frozen=True, eq=False)
class Frontier:
    """Live branches at a checkpoint, B rows; what branch and prune may look at.

    All rows have made equally many tokens since the round began, but for those that paused early, at a marker or by entropy,
    and for forks that left a path earlier. due (B,) bool: rows that paused for the method that looks; what it says of the
    others is not heard, and its scratch of them stays.
    group (B,) int64: of the same prompt, context and purpose. branch (B,) int64 counts branches in the order of their birth,
    parent (B,) is the one it forked from, -1 for none.
    tokens, logp, entropy: of the whole path. born (B,) int64 tokens inherited. tail (B,) str is the text of rows that are due
    since the method's last look at them; capacity = branches that still fit, room (B,) int64 = forks that each row's group
    may have besides; extra holds what a method declared in `needs`, such as top_tokens and top_logp (B, m); memory is the
    methods' scratch per branch, written by Fork and Cut, inherited by forks.
    n_prompts: prompts that grow in this round, finished ones included; round of the step, from 0.
    looks: what each checkpoint makes of it, for `of`; due and tail are of all together.
    """

    prompt: np.ndarray
    group: np.ndarray
    branch: np.ndarray
    parent: np.ndarray
    n_tokens: np.ndarray
    tokens: Ragged
    logp: Ragged
    entropy: Ragged
    tail: np.ndarray
    capacity: int
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)
    born: np.ndarray = None  # type: ignore[assignment]
    n_prompts: int = 0
    round: int = 0
    due: np.ndarray = None  # type: ignore[assignment]
    room: np.ndarray = None  # type: ignore[assignment]
    looks: Mapping[Checkpoint, Look] = field(default_factory=dict)

    def __post_init__(self) -> None:
        b = len(self.branch)
        fill = {"born": np.zeros(b, np.int64), "due": np.ones(b, bool), "room": np.full(b, self.capacity)}
        for name, default in fill.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)

    def __len__(self) -> int:
        return len(self.branch)

    def of(self, checkpoint: Checkpoint) -> Frontier:
        """The frontier as one who paused rollouts at `checkpoint` sees it, with no more than was asked for there."""
        top = {n: self.extra[n][:, : checkpoint.top] for n in ("top_tokens", "top_logp") if n in self.extra}
        return replace(self, **self.looks[checkpoint]._asdict(), extra={**self.extra, **top})


@dataclass(frozen=True, eq=False)
class Fork:
    """width (B,) int64: 1 goes on, k forks into k; at and token (B,) int64: the k - 1 new ones leave the path before token
    number `at` (-1 = here), and begin with `token` (-1 = sampled); token (B, m) gives the first m of them one each. why:
    figures of the decision, (B,) each. memory: scratch by name, (B, ...) each, None leaves a row's as it was. Forks beyond
    what was asked of the group are refused."""

    width: np.ndarray
    at: np.ndarray
    token: np.ndarray
    why: Mapping[str, np.ndarray] = field(default_factory=dict)
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Cut:
    """width (B,) int64: 0 stops, 1 goes on; reason (B,) str; propensity (B,) float64 = chance of having gone on.

    finish (B,) str says how a stopped one ends, None = all pruned: pruned is not judged; aborted is judged and then given
    up; stop is judged as it stands; carried is not judged yet, and goes on in a later step. why: figures of the decision,
    (B,) each, NaN where there was none to take."""

    width: np.ndarray
    reason: np.ndarray
    propensity: np.ndarray
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)
    finish: np.ndarray | None = None
    why: Mapping[str, np.ndarray] = field(default_factory=dict)


class Batch(NamedTuple):
    """A padded micro-batch as the loss sees it: all (B, T), row (B,) the rollout of each line.

    logp carries the gradient; behaviour is the sampler's record, proximal the policy at the start of the update.
    extra: what else a world brings for methods that need it: a rollouts' per-token column (B, T), such as teacher_logp, NaN in
    lines of which it is not known,
    a per-rollout one (B, ...), or top-K log-probabilities (B, T, K), student_topk_logp (with gradient), teacher_topk_logp;
    plain_logp (B, T), the line's tokens behind the plain prompt, without the hint they were generated after (with gradient);
    role (B, T) where hints stand in front of rows, see `sampled`.
    """

    logp: torch.Tensor
    behaviour: torch.Tensor
    proximal: torch.Tensor
    advantage: torch.Tensor
    mask: torch.Tensor
    entropy: torch.Tensor
    row: torch.Tensor
    extra: Mapping[str, torch.Tensor] = MappingProxyType({})

    @property
    def sampled(self) -> torch.Tensor:
        """(B, T) the mask without the tokens of hints (role 1), which are trained but were not sampled: they have no
        behaviour policy and a ratio of 1 by construction, so that nothing is told of the ratio by them."""
        role = self.extra.get("role")
        return self.mask if role is None else self.mask * (role == 0)


class Loss(NamedTuple):
    """A loss not yet reduced: the trainer reduces over the whole optimiser step, so that means are exact.

    term (B, T); weight (B, T) or None; reduction: token_mean, seq_mean or const_len. stats are (B, T) or scalar
    tensors to be averaged over tokens: those of the objective, which are about ratios and what they clip, over tokens that
    were sampled (`Batch.sampled`), those of a penalty over all in the mask. lr_scale multiplies the learning rate of this
    step.
    """

    term: torch.Tensor
    weight: torch.Tensor | None = None
    reduction: str = "token_mean"
    stats: Mapping[str, torch.Tensor] = MappingProxyType({})
    lr_scale: float = 1.0
