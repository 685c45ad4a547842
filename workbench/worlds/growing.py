"""Grow rollouts from checkpoint to checkpoint: look at what is alive, cut, fork, go on. Knows no model.

A branch is one rollout: it inherits the path before its fork and makes the rest itself. Its draws are keyed by its own id
and the position, so that a tree without forks is the flat rollouts token for token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from workbench.stages import Branch, Checkpoint, Prune
from workbench.types import Cut, Frontier, Ragged, Rollouts
from workbench.worlds.engines import Session, Until
from workbench.worlds.engines.draws import streams

CAPACITY = 512
"""Branches that may be alive at once."""

UNJUDGED = ("pruned", "carried")
"""What the finish of an unfinished rollout is: nobody verifies it."""


@dataclass(eq=False)
class Grown:
    """One rollout on its way. row: the asked rollout it stems from; parent: branch it forked from, -1 for none; start:
    tokens of its path that were there before it was asked; propensity: chance of having got so far; marks: tokens made
    when it paused after a marker; stream: the name that its draws are keyed by, where it is not its id."""

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
    seen: int = 0
    forks: int = 0
    forced: bool = False
    propensity: float = 1.0
    marks: list[int] = field(default_factory=list)
    memory: dict[str, object] = field(default_factory=dict)
    stream: str = ""


class Decision(NamedTuple):
    """A test at a checkpoint: of which branch, at which token, with what figures and outcome ("no" changed nothing)."""

    node_id: str
    at_token: int
    kind: str
    outcome: str
    inputs: Mapping[str, float]


class Growth:
    """Grows the rows of a session to their ends; afterwards branches (in order of birth) and decisions hold it all."""

    def __init__(
        self,
        session: Session,
        branches: Sequence[Grown],
        rows: Rollouts,
        *,
        seed: int,
        branch: Branch | None,
        prune: Prune | None,
        decode: Callable[[list[list[int]]], list[str]],
        markers: Callable[[tuple[str, ...]], frozenset[int]] = lambda texts: frozenset(),
        capacity: int = CAPACITY,
        ended: Callable[[Sequence[Grown]], None] | None = None,
    ) -> None:
        self.session, self.branches, self.rows = session, list(branches), rows
        self.seed, self.branch, self.prune, self.decode, self.capacity = seed, branch, prune, decode, capacity
        self.decisions: list[Decision] = []
        self.ended = ended  # told of branches that came to their own end, while others go on
        keys = [f"{p}|{c}|{u}" for p, c, u in zip(rows.prompt, rows.context, rows.purpose, strict=True)]
        self.groups = np.unique(np.array(keys, dtype=str), return_inverse=True)[1].astype(np.int64)
        self.n_prompts = len(np.unique(rows.prompt))
        hooks = [h.checkpoint for h in (branch, prune) if h is not None]
        self.pause = Checkpoint.union(hooks) if hooks else Checkpoint(every=1 << 30)
        self.until = Until(markers(self.pause.markers), self.pause.entropy)
        self.alive = [i for i, b in enumerate(self.branches) if not b.finish]
        self.seconds = 0.0

    def run(self) -> None:
        """All checkpoints until nothing is alive."""
        while self.alive:
            self._advance()
            if self.alive:
                self._decide()

    def _advance(self) -> None:
        mine = [self.branches[i] for i in self.alive]
        limit = np.array([min(self.pause.every, b.limit - len(b.tokens)) for b in mine])
        made = self.session.advance(limit, self.until)
        self.seconds += made.seconds
        for k, b in enumerate(mine):
            b.tokens += made.tokens.row(k).tolist()
            b.logp += made.logp.row(k).tolist()
            b.entropy += made.entropy.row(k).tolist()
            b.finish = str(made.finish[k]) or ("length" if len(b.tokens) >= b.limit else "")
            if len(made.tokens.row(k)) and b.tokens[-1] in self.until.markers:
                b.marks.append(len(b.tokens))
        if self.ended is not None and (over := [b for b in mine if b.finish]):
            self.ended(over)
        here = [i for k, i in enumerate(self.alive) if made.finish[k] != "stop"]  # rows still in the session
        on = [k for k, i in enumerate(here) if not self.branches[i].finish]
        if len(on) < len(here):
            self.session.keep(np.array(on, np.int64), self._keys([here[k] for k in on]))
        self.alive = [here[k] for k in on]

    def _decide(self) -> None:
        frontier = self._frontier()
        b = len(frontier)
        cut = Cut(np.ones(b, np.int64), np.full(b, "", dtype=object), np.ones(b))
        if self.prune is not None:
            cut = self.prune(frontier)
            self._remember(cut.memory)
        width, at, token = np.ones(b, np.int64), np.full(b, -1), np.full(b, -1)
        figures: Mapping[str, np.ndarray] = {}
        if self.branch is not None:
            fork = self.branch(frontier)
            self._remember(fork.memory)
            width, at, token, figures = fork.width, fork.at, fork.token, fork.why
        order = [k for k in range(b) if cut.width[k] > 0 and width[k] > 0]
        for k in range(b):
            me = self.branches[self.alive[k]]
            me.propensity *= float(cut.propensity[k])
            if cut.width[k] == 0:
                me.finish, me.reason = (
                    "pruned" if cut.finish is None else str(cut.finish[k]),
                    str(cut.reason[k]) or "cut",
                )
            elif width[k] == 0:  # a method that branches may also give a row no future
                me.finish, me.reason = "pruned", "no_branch"
        room = max(self.capacity - len(order), 0)
        new: list[tuple[int, Grown, int, int]] = []  # place of the parent, child, tokens to take back, forced token
        for k in order:
            wanted = min(int(width[k]) - 1, room)
            room -= wanted
            first = [*np.atleast_1d(token[k]).tolist()][:wanted]
            first += [first[-1] if token.ndim == 1 and first else -1] * (wanted - len(first))
            new += [self._child(k, int(at[k]), t) for t in first]
            self._note(k, figures, wanted, cut)
        for k in sorted(set(range(b)) - set(order)):
            self._note(k, figures, 0, cut)
        first = len(self.branches)
        self.branches += [child for _, child, _, _ in new]
        alive = [self.alive[k] for k in order] + list(range(first, len(self.branches)))
        if alive != self.alive:
            places = np.array(order + [k for k, _, _, _ in new], np.int64)
            self.session.keep(places, self._keys(alive))
        self.alive = alive
        for row, (_, child, back, forced) in enumerate(new, len(order)):
            self.session.rewind(row, back, child.tokens[-1] if len(child.tokens) > child.start else None)
            if forced >= 0:
                self.session.force(row, forced)
        for i in self.alive:
            self.branches[i].seen = len(self.branches[i].tokens)

    def _child(self, k: int, at: int, token: int) -> tuple[int, Grown, int, int]:
        parent = self.branches[self.alive[k]]
        length = len(parent.tokens)
        at = length if at < 0 else min(max(at, parent.start), length)
        owner, place = parent, self.alive[k]
        while owner.parent >= 0 and at < owner.fork_at:  # before its own fork the path is its parent's
            place, owner = owner.parent, self.branches[owner.parent]
        owner.forks += 1
        child = Grown(
            owner.row, f"{owner.id}/{at}.{owner.forks}", parent.limit, place, at, parent.start,
            parent.tokens[:at], parent.logp[:at], parent.entropy[:at], seen=at, forced=token >= 0,
            propensity=parent.propensity, marks=[m for m in parent.marks if m <= at], memory=dict(parent.memory),
        )  # fmt: skip
        return k, child, length - at, token

    def _keys(self, branches: Sequence[int]) -> np.ndarray:
        return streams(self.seed, [self.branches[i].stream or self.branches[i].id for i in branches])

    def _frontier(self) -> Frontier:
        mine = [self.branches[i] for i in self.alive]
        rows = np.array([b.row for b in mine], np.int64)
        extra: dict[str, np.ndarray] = {}
        if self.pause.top:
            extra["top_tokens"], extra["top_logp"] = self.session.top(self.pause.top)
        if self.pause.hidden:
            extra["hidden"] = self.session.hidden()
        names = dict.fromkeys(name for b in self.branches for name in b.memory)
        blank = {n: next(b.memory[n] for b in self.branches if n in b.memory) for n in names}
        return Frontier(
            prompt=self.rows.prompt[rows],
            group=self.groups[rows],
            branch=np.array(self.alive, np.int64),
            parent=np.array([b.parent for b in mine], np.int64),
            n_tokens=np.array([len(b.tokens) for b in mine], np.int64),
            tokens=Ragged.of([b.tokens for b in mine], np.int32),
            logp=Ragged.of([b.logp for b in mine], np.float32),
            entropy=Ragged.of([b.entropy for b in mine], np.float32),
            tail=np.array(self.decode([b.tokens[b.seen :] for b in mine]), dtype=object),
            capacity=max(self.capacity - len(mine), 0),
            extra=extra,
            memory={n: np.array([b.memory.get(n, _zero(blank[n])) for b in mine]) for n in names},
            born=np.array([max(b.fork_at, 0) for b in mine], np.int64),
            n_prompts=self.n_prompts,
        )

    def _remember(self, memory: Mapping[str, np.ndarray]) -> None:
        for name, column in memory.items():
            for i, value in zip(self.alive, column, strict=True):
                self.branches[i].memory[name] = value

    def _note(self, k: int, figures: Mapping[str, np.ndarray], forks: int, cut: Cut) -> None:
        me = self.branches[self.alive[k]]
        if self.prune is not None:
            outcome = "no" if cut.width[k] > 0 else str(cut.reason[k]) or "cut"
            inputs = {"propensity": float(cut.propensity[k])} | _figures(cut.why, k)
            self.decisions.append(Decision(me.id, len(me.tokens), "prune", outcome, inputs))
        if self.branch is not None:
            outcome = f"fork:{forks}" if forks else "no"
            self.decisions.append(Decision(me.id, len(me.tokens), "branch", outcome, _figures(figures, k)))


def _figures(why: Mapping[str, np.ndarray], k: int) -> dict[str, float]:
    """What was known of row k."""
    return {n: float(c[k]) for n, c in why.items() if not np.isnan(c[k])}


def _zero(value: object) -> object:
    return np.zeros_like(np.asarray(value))[()]


def rollouts_of(growth: Growth, rows: Rollouts) -> Rollouts:
    """Every branch as a rollout, in the order of the asked rows and of birth; columns of tokens hold the whole path.

    length counts the whole path. Where anything branches or prunes: a cut branch has finish "pruned", or what its cut says,
    and extra cut_reason (R,) str says why; extra forced (R,) bool marks branches whose first own token was not drawn,
    propensity (R,) float64 is the chance that no cut stopped it earlier; marks, where a method pauses at markers, is
    ragged: the numbers of tokens after which one stood; what a checkpoint keeps of a branch's scratch stands under its name."""
    made = growth.branches
    order = sorted(range(len(made)), key=lambda i: (made[i].row, i))
    mine = [made[i] for i in order]
    base = rows.take(np.array([b.row for b in mine], np.int64))
    marks: dict[str, np.ndarray | Ragged] = {}
    if growth.branch is not None or growth.prune is not None:  # in all rounds of a step or in none
        marks["cut_reason"] = np.array([b.reason for b in mine], dtype=object)
        marks["forced"] = np.array([b.forced for b in mine], bool)
        marks["propensity"] = np.array([b.propensity for b in mine], float)
        if growth.pause.markers:
            marks["marks"] = Ragged.of([b.marks for b in mine], np.int32)
        for name in growth.pause.keeps:
            marks[name] = Ragged.of([np.ravel(b.memory.get(name, ())) for b in mine], np.float32)
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
        extra={**base.extra, **marks},
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
