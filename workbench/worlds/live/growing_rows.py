"""Rows of tree rollouts: a rollout on its way, the rows of a step that it becomes, and the tests made on the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from workbench.types import Ragged, Rollouts
from workbench.types.checkpoint import MARKS

UNVERIFIED = ("pruned", "carried")
"""What the finish of an unfinished rollout is: nobody verifies it."""

LOST_FINISHES = ("pruned", "aborted")
"""What the finish of a rollout is that was given up: its place in the group is free."""


@dataclass(eq=False)
class GrowingRow:
    """One rollout on its way. row: the asked rollout it stems from; parent: branch it forked from, -1 for none; start:
    tokens of its path that were there before it was asked; goal: tokens at which it waits for the others; seen: by number of a
    checkpoint, its tokens when it last paused there; propensity: chance of having got so far; marks: tokens made when it
    paused after a marker; stream: the name that its draws are keyed by, where it is not its id."""

    row: int
    id: str
    limit: int
    parent: int = -1
    fork_at: int = -1
    start: int = 0
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    finish: str = ""
    reason: str = ""
    goal: int = 0
    seen: dict[int, int] = field(default_factory=dict)
    forks: int = 0
    forced: bool = False
    propensity: float = 1.0
    marks: list[int] = field(default_factory=list)
    memory: dict[str, np.ndarray] = field(default_factory=dict)
    stream: str = ""

    @property
    def arrived(self) -> bool:
        """Whether it waits for the others."""
        return len(self.tokens) >= self.goal


class Decision(NamedTuple):
    """A test at a checkpoint: of which branch, at which token, with what figures and outcome ("no" changed nothing)."""

    node_id: str
    at_token: int
    kind: str
    outcome: str
    inputs: Mapping[str, float]


def rollouts_of(made: Sequence[GrowingRow], rows: Rollouts, keeps: Collection[str] | None) -> Rollouts:
    """Every branch made as a rollout, in the order of the asked rows and of birth; columns of tokens hold the whole path.

    length counts the whole path. keeps: what the checkpoints keep, None where nothing branches or prunes; else a cut branch has finish "pruned", or what its cut says,
    and extra cut_reason (R,) str says why; extra forced (R,) bool marks branches whose first own token was not drawn,
    propensity (R,) float64 is the chance that no cut stopped it earlier; marks, where a checkpoint keeps them, is
    ragged: the numbers of tokens after which one stood; what a checkpoint keeps of a branch's scratch stands under its name."""
    order = sorted(range(len(made)), key=lambda i: (made[i].row, i))
    mine = [made[i] for i in order]
    base = rows.take(np.array([b.row for b in mine], np.int64))
    kept: dict[str, np.ndarray | Ragged] = {}
    if keeps is not None:  # in all rounds of a step or in none
        kept["cut_reason"] = np.array([b.reason for b in mine], dtype=object)
        kept["forced"] = np.array([b.forced for b in mine], bool)
        kept["propensity"] = np.array([b.propensity for b in mine], float)
        for name in keeps:
            scratch = [np.ravel(b.memory.get(name, ())) for b in mine]
            kept[name] = (
                Ragged.of([b.marks for b in mine], np.int32) if name == MARKS else Ragged.of(scratch, np.float32)
            )
    return base.with_(
        id=np.array([b.id for b in mine], dtype=object),
        parent=np.array(
            [made[b.parent].id if b.parent >= 0 else base.parent[k] for k, b in enumerate(mine)], dtype=object
        ),
        fork_at=np.array([b.fork_at if b.parent >= 0 else base.fork_at[k] for k, b in enumerate(mine)], np.int64),
        length=np.array([len(b.tokens) for b in mine], np.int64),
        finish=np.array([b.finish for b in mine], dtype=object),
        tokens=Ragged.of([b.tokens for b in mine], np.int32),
        logp=Ragged.of([b.logp for b in mine], np.float32),
        entropy=Ragged.of([b.entropy for b in mine], np.float32),
        extra={**base.extra, **kept},
    )


def decision_columns(decisions: Sequence[Decision]) -> dict[str, list]:
    """The rows of the table `decisions`, as the store's writer takes them."""
    return {
        "node_id": [d.node_id for d in decisions],
        "at_token": [d.at_token for d in decisions],
        "kind": [d.kind for d in decisions],
        "inputs": [dict(d.inputs) for d in decisions],
        "outcome": [d.outcome for d in decisions],
    }
