"""Partial rollouts and other starts: a prompt with or without extra text, a part of a rollout, one left unfinished.

Unfinished rollouts are kept as token ids with the version that sampled each token and its log-probability then, never
as text: tokenising again may cut a text differently, and a log-probability of another policy is not the sampler's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.types import Node, Plan, Pool, Ragged, Resume, Rollouts, Text

FILE = "unfinished.npz"


class Trail(NamedTuple):
    """T tokens of a rollout: tokens int32, logp and entropy float32 (nats, when sampled), version int32 that sampled each."""

    tokens: np.ndarray
    logp: np.ndarray
    entropy: np.ndarray
    version: np.ndarray

    def first(self, n: int) -> Trail:
        """The first n tokens."""
        return Trail(*(column[:n] for column in self))

    @property
    def n(self) -> int:
        """Number of tokens T."""
        return len(self.tokens)


DTYPES = Trail(*map(np.dtype, (np.int32, np.float32, np.float32, np.int32)))  # type: ignore[arg-type]
NOTHING = Trail(*(np.empty(0, d) for d in DTYPES))


class Begin(NamedTuple):
    """Where the rows of an ask begin: after the tokens of prefix and those of trail.

    inside, at: the rollout of this step whose first `at` tokens these are, "" and -1 for none. source: the carried
    rollout that goes on, with its random stream; ended: it had drawn its stop token, so there is nothing to go on with;
    temperature: that it was sampled at, NaN = nothing was."""

    prefix: list[int]
    trail: Trail = NOTHING
    inside: str = ""
    at: int = -1
    source: str = ""
    stream: str = ""
    ended: bool = False
    temperature: float = np.nan


class Unfinished(NamedTuple):
    """A rollout carried out of its step. prompt: id; stream: name of its random stream; start: the text it began after;
    ended: it has stopped itself and waits for others of its group. temperature: of the sampler that made its last token."""

    prompt: str
    trail: Trail
    stream: str
    start: Text | None = None
    ended: bool = False
    temperature: float = np.nan


def versions(rollouts: Rollouts) -> Ragged:
    """(R, ragged) int32 policy version of every token: extra token_version, or version where a rollout has only one."""
    found = rollouts.extra.get("token_version")
    if isinstance(found, Ragged):
        return found
    assert rollouts.tokens is not None
    lengths = rollouts.tokens.lengths
    return Ragged(np.repeat(rollouts.version, lengths).astype(np.int32), rollouts.tokens.offsets)


def trails(rollouts: Rollouts, rows: Sequence[int] | np.ndarray) -> list[Trail]:
    """The tokens of some rollouts."""
    assert rollouts.tokens is not None and rollouts.logp is not None and rollouts.entropy is not None
    columns = (rollouts.tokens, rollouts.logp, rollouts.entropy, versions(rollouts))
    return [
        Trail(*(np.asarray(c.row(int(i)), d) for c, d in zip(columns, DTYPES, strict=True)))  # type: ignore[arg-type]
        for i in rows
    ]


def joined(before: Sequence[Trail], now: Sequence[Ragged]) -> list[Ragged]:
    """tokens, logp and entropy of R rows: what each had before, then what it made now."""
    if not any(b.n for b in before):
        return list(now)
    return [
        Ragged.of([np.concatenate([b[k], made]) for b, made in zip(before, column.rows(), strict=True)], DTYPES[k])  # type: ignore[arg-type]
        for k, column in enumerate(now)
    ]


def sampled_by(before: Sequence[Trail], tokens: Ragged, version: int) -> Ragged:
    """(R, ragged) int32: the version that sampled each token, the present one where the row did not have it before."""
    made = np.full(len(tokens.values), version, np.int32)
    for start, b in zip(tokens.offsets, before, strict=False):
        made[start : start + b.n] = b.version
    return Ragged(made, tokens.offsets)


class Starts:
    """The rollouts that others may go on from: those of the present step, and those that earlier steps left unfinished.

    texts: rollout id -> the text it began after, None for the prompt. unfinished: id -> rollout. source: id of a row under
    way -> the unfinished rollout whose rest it is. trails: the tokens of this step's rollouts. mixed: whether rows of this
    step may hold tokens of several versions."""

    def __init__(self) -> None:
        self.texts: dict[str, Text | None] = {}
        self.unfinished: dict[str, Unfinished] = {}
        self.source: dict[str, str] = {}
        self.trails: dict[str, Trail] = {}
        self.mixed = False
        self.step = -1

    def twin(self) -> Starts:
        """For a step that is generated beside the training of another: it sees what is unfinished now."""
        other = copy(self)
        other.step = -1
        return other

    def open(self, step: int) -> None:
        """Rounds of this step from now on."""
        if step != self.step:
            self.step, self.trails, self.mixed = step, {}, bool(self.unfinished)

    def begin(self, plan: Plan, a: int, pool: Pool, prefix: Callable[[int, Text | None], list[int]]) -> Begin:
        """Where the rows of an ask begin; prefix(row, text) gives the tokens of a prompt. ValueError for rollouts that are
        not there to go on from."""
        start, row = plan.start[a], int(plan.prompt[a])
        if isinstance(start, Node):
            inside, _, place = start.id.rpartition("@")
            if inside not in self.trails or not place.isdigit():
                raise ValueError(f"{start!r}: a node is 'rollout id@tokens' of a rollout of this step")
            trail = self.trails[inside].first(int(place))
            return Begin(prefix(row, self.text_of(start)), trail, inside, trail.n)
        if not isinstance(start, Resume):
            return Begin(prefix(row, start))
        left = self.unfinished.get(start.rollout)
        if left is None or left.prompt != pool.ids[row]:
            here = [i for i, u in self.unfinished.items() if u.prompt == pool.ids[row]]
            raise ValueError(
                f"{start!r} of prompt {pool.ids[row]}: no such rollout was carried out of an earlier step and is still "
                f"unfinished; of this prompt there are {', '.join(here[:5]) or 'none'}"
            )
        if start.rollout in self.source.values():
            raise ValueError(f"{start!r}: another ask goes on with this rollout already; it can be resumed once")
        text = prefix(row, left.start)
        return Begin(
            text, left.trail, source=start.rollout, stream=left.stream, ended=left.ended, temperature=left.temperature
        )

    def placed(self, rows: Rollouts, begins: Sequence[Begin]) -> Rollouts:
        """Asked rows with the place where they leave another one; the first row of a resumed ask is the one carried."""
        first = np.searchsorted(rows.ask, np.arange(len(begins)))
        for a, begin in enumerate(begins):
            if begin.source and first[a] < len(rows) and rows.ask[first[a]] == a:
                self.source[str(rows.id[first[a]])] = begin.source
        inside = np.array([b.inside for b in begins], dtype=object)
        at = np.array([b.at for b in begins], np.int64)
        return rows.with_(parent=inside[rows.ask], fork_at=at[rows.ask])

    def names(self, rows: Rollouts, begins: Sequence[Begin]) -> list[str]:
        """The random stream of each row: its own id, or that of the rollout it is the rest of."""
        return [begins[a].stream if i in self.source else i for i, a in zip(rows.id, rows.ask, strict=True)]

    def text_of(self, start: Text | Node | Resume) -> Text | None:
        """The text that a rollout with this start began after."""
        if isinstance(start, Node):
            return self.texts.get(start.id.rpartition("@")[0])
        return self.unfinished[start.rollout].start if isinstance(start, Resume) else start

    def note(self, rows: Rollouts, plan: Plan) -> None:
        """Remember generated rows, for asks that start inside one of them."""
        for i, a in zip(rows.id, rows.ask, strict=True):
            if plan.start[a] is not None:  # inside a rollout: what that one began with
                self.texts[i] = self.text_of(plan.start[a])  # type: ignore[arg-type] - an array of objects
            else:  # a step that is sampled again may have begun it after a text
                self.texts.pop(i, None)
        self.trails |= dict(zip(rows.id, trails(rows, np.arange(len(rows))), strict=True))

    def carry(self, rollouts: Rollouts, carried: np.ndarray, pool: Pool) -> None:
        """Keep the rows that a step leaves unfinished, carried (R,) bool, and forget what it went on with."""
        rows = np.flatnonzero(carried)
        sources = {i: self.source.pop(i) for i in rollouts.id if i in self.source}
        left = {i: u for i, u in self.unfinished.items() if i not in sources.values()}
        for row, trail in zip(rows, trails(rollouts, rows) if len(rows) else (), strict=True):
            name = str(rollouts.id[row])
            stream = self.unfinished[sources[name]].stream if name in sources else name
            prompt, ended = str(pool.ids[rollouts.prompt[row]]), rollouts.finish[row] == "stop"
            temperature = float(rollouts.temperature[row])
            left[name] = Unfinished(prompt, trail, stream, self.texts.get(name), ended, temperature)
        self.unfinished = left  # a new one: a twin keeps what it has seen

    def give_up(self, step: int) -> None:
        """A step was sampled and will not be trained: what it went on with is unfinished as before."""
        for name in [i for i in self.source if i.partition(":")[0].rpartition("-")[2] == str(step)]:
            del self.source[name]

    def save(self, folder: Path) -> None:
        """Write what is unfinished into an existing folder, as plain arrays; nothing where there is nothing."""
        if not self.unfinished:
            return
        mine = list(self.unfinished.values())
        texts = {
            "id": list(self.unfinished),
            "prompt": [u.prompt for u in mine],
            "stream": [u.stream for u in mine],
            "text": [u.start.prefix if u.start else "" for u in mine],
            "role": [u.start.role if u.start else "" for u in mine],
        }
        columns = {
            name: np.concatenate([u.trail[k] for u in mine]).astype(DTYPES[k]) for k, name in enumerate(Trail._fields)
        }
        np.savez(
            folder / FILE,
            length=np.array([u.trail.n for u in mine], np.int64),
            ended=np.array([u.ended for u in mine], bool),
            temperature=np.array([u.temperature for u in mine], float),
            started=np.array([u.start is not None for u in mine], bool),
            **{name: _bytes(values) for name, values in texts.items()},  # type: ignore[arg-type]
            **columns,  # type: ignore[arg-type]
        )

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote."""
        self.unfinished = _read(folder / FILE) if (folder / FILE).exists() else {}
        self.source.clear()
        self.texts |= {name: left.start for name, left in self.unfinished.items()}


def _read(file: Path) -> dict[str, Unfinished]:
    with np.load(file, allow_pickle=False) as kept:
        text = {n: json.loads(kept[n].tobytes()) for n in ("id", "prompt", "stream", "text", "role")}
        ends = np.cumsum(kept["length"])[:-1]
        parts = zip(*(np.split(kept[name], ends) for name in Trail._fields), strict=True)
        return {
            name: Unfinished(
                text["prompt"][i],
                Trail(*trail),
                text["stream"][i],
                Text(text["text"][i], text["role"][i]) if kept["started"][i] else None,
                bool(kept["ended"][i]),
                float(kept["temperature"][i]) if "temperature" in kept else np.nan,  # not kept by earlier programs
            )
            for i, (name, trail) in enumerate(zip(text["id"], parts, strict=True))
        }


def _bytes(values: Sequence[str]) -> np.ndarray:
    """Texts of any characters as bytes: numpy's own texts lose the zeros at their ends."""
    return np.frombuffer(json.dumps(values).encode("ascii"), np.uint8)
