"""What a rollout goes on from: a prompt with or without extra text, a part of another rollout, or one left unfinished.

Unfinished rollouts are kept as token ids with the version that sampled each token and its log-probability then, never
as text: tokenising again may cut a text differently, and a log-probability of another policy is not the sampler's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.types import Ragged, Rollouts, Text

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
    rollout that goes on, with its random stream; ended: it had drawn its stop token, so there is nothing to go on with."""

    prefix: list[int]
    trail: Trail = NOTHING
    inside: str = ""
    at: int = -1
    source: str = ""
    stream: str = ""
    ended: bool = False


class Unfinished(NamedTuple):
    """A rollout carried out of its step. prompt: id; stream: name of its random stream; start: the text it began after;
    ended: it has stopped itself and waits for others of its group."""

    prompt: str
    trail: Trail
    stream: str
    start: Text | None = None
    ended: bool = False


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


def save(left: Mapping[str, Unfinished], folder: Path) -> None:
    """Write unfinished rollouts into an existing folder, as plain arrays; nothing where there are none."""
    if not left:
        return
    mine = list(left.values())
    texts = {
        "id": list(left),
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
        started=np.array([u.start is not None for u in mine], bool),
        **{name: _bytes(values) for name, values in texts.items()},
        **columns,
    )


def load(folder: Path) -> dict[str, Unfinished]:
    """What `save` wrote; nothing where it wrote nothing."""
    if not (folder / FILE).exists():
        return {}
    with np.load(folder / FILE, allow_pickle=False) as kept:
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
            )
            for i, (name, trail) in enumerate(zip(text["id"], parts, strict=True))
        }


def _bytes(values: Sequence[str]) -> np.ndarray:
    """Texts of any characters as bytes: numpy's own texts lose the zeros at their ends."""
    return np.frombuffer(json.dumps(values).encode("ascii"), np.uint8)
