"""Tree rollouts: rows grow from checkpoint to checkpoint, are cut, forked, and go on. Knows no model.

A branch is one rollout: it inherits the path before its fork and makes the rest itself. Its draws are keyed by its own id
and the position, so that a tree without forks is the flat rollouts token for token.

Branches grow together, lap by lap: a lap ends at the nearest place at which a checkpoint pauses one of them by its length.
Those that pause earlier, at a marker or by entropy, are looked at and catch up while the others wait. So what one checkpoint
sees does not depend on where others pause; where paths begin at different lengths, this takes more laps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from workbench.stages import Branch, Prune
from workbench.types import Cut, Fork, Frontier, Paused, Ragged, Rollouts
from workbench.types.checkpoint import MARKS, NOWHERE, Checkpoint, Pauses
from workbench.worlds.engines import Session, Until
from workbench.worlds.engines.draws import streams
from workbench.worlds.live.growing_rows import LOST_FINISHES, Decision, GrowingRow

CAPACITY = 512
"""Branches that may be alive at once."""


class Growth:
    """Grows the rows of a session to their ends; afterwards branches (in order of birth) and decisions hold it all.

    leaves (A,): rollouts that an ask may grow into, those given up not counted; forks beyond what the asks of a group sum to
    are refused, and the refusal noted. None = no bound but capacity."""

    def __init__(
        self,
        session: Session,
        branches: Sequence[GrowingRow],
        rows: Rollouts,
        *,
        seed: int,
        branch: Branch | None,
        prune: Prune | None,
        decode: Callable[[list[list[int]]], list[str]],
        markers: Callable[[tuple[str, ...]], frozenset[int]] = lambda texts: frozenset(),
        capacity: int = CAPACITY,
        leaves: np.ndarray | None = None,
        ended: Callable[[Sequence[GrowingRow]], None] | None = None,
    ) -> None:
        self.session, self.branches, self.rows = session, list(branches), rows
        self.seed, self.branch, self.prune, self.decode, self.capacity = seed, branch, prune, decode, capacity
        self.decisions: list[Decision] = []
        self.ended = ended  # told of branches that came to their own end, while others go on
        keys = [f"{p}|{c}|{u}" for p, c, u in zip(rows.prompt, rows.context, rows.purpose, strict=True)]
        self.groups = np.unique(np.array(keys, dtype=str), return_inverse=True)[1].astype(np.int64)
        asks, first = np.unique(rows.ask, return_index=True)
        bound = np.full(len(asks), NOWHERE) if leaves is None else np.asarray(leaves, np.int64)[asks]
        self.leaves = np.bincount(self.groups[first], bound).astype(np.int64)
        self.n_prompts = len(np.unique(rows.prompt))
        self.pauses = Pauses.of(h.checkpoint for h in (branch, prune) if h is not None)
        self.marks = [markers(part.markers) for part in self.pauses.parts]
        self.until = Until(frozenset[int]().union(*self.marks), self.pauses.entropy)
        kept = [m for part, m in zip(self.pauses.parts, self.marks, strict=True) if MARKS in part.keeps]
        self.kept_marks = frozenset[int]().union(*kept)
        self.alive = [i for i, b in enumerate(self.branches) if not b.finish]
        self.seconds = 0.0

    @property
    def keeps(self) -> Collection[str] | None:
        """Names of what the checkpoints keep of a branch's scratch; None where nothing branches or prunes."""
        return None if self.branch is None and self.prune is None else self.pauses.keeps

    def run(self) -> None:
        """All checkpoints until nothing is alive."""
        while self.alive:
            self._advance()
            if self.alive:
                self._decide()

    def _advance(self) -> None:
        mine = [self.branches[i] for i in self.alive]
        if all(b.arrived for b in mine):
            lap = int(self.pauses.ahead(_lengths(mine)).min())
            for b in mine:
                b.goal = len(b.tokens) + lap
        limit = np.array([min(b.goal, b.limit) - len(b.tokens) for b in mine])
        made = self.session.advance(limit, self.until)
        self.seconds += made.seconds
        for k, b in enumerate(mine):
            b.tokens += made.tokens.row(k).tolist()
            b.logp += made.logp.row(k).tolist()
            b.entropy += made.entropy.row(k).tolist()
            b.finish = str(made.finish[k]) or ("length" if len(b.tokens) >= b.limit else "")
            if len(made.tokens.row(k)) and b.tokens[-1] in self.kept_marks:
                b.marks.append(len(b.tokens))
        if self.ended is not None and (over := [b for b in mine if b.finish]):
            self.ended(over)
        here = [i for k, i in enumerate(self.alive) if made.finish[k] != "stop"]  # rows still in the session
        on = [k for k, i in enumerate(here) if not self.branches[i].finish]
        if len(on) < len(here):
            self.session.keep(np.array(on, np.int64), self._keys([here[k] for k in on]))
        self.alive = [here[k] for k in on]

    def _due(self) -> list[np.ndarray]:
        """(B,) bool for each checkpoint: branches that paused there and were not looked at since."""
        mine = [self.branches[i] for i in self.alive]
        arrived = np.array([b.arrived for b in mine])
        whole = bool(arrived.all())
        up = arrived if whole else ~arrived  # who paused early is looked at before the others go on
        last = np.array([b.tokens[-1] if b.tokens else -1 for b in mine])
        entropy = np.array([b.entropy[-1] if b.entropy else 0.0 for b in mine], np.float32)
        due = []
        for part, marks in zip(self.pauses.parts, self.marks, strict=True):
            at = part.counted(_lengths(mine)) & whole
            if marks:
                at |= up & np.isin(last, list(marks))
            if part.entropy is not None:
                at |= up & (entropy > part.entropy)
            due.append(at)
        return due

    def _decide(self) -> None:
        due = self._due()
        if not any(d.any() for d in due):
            return
        frontier = self._frontier(due)
        cut, cut_seen = self._cut(frontier)
        fork, fork_seen = self._fork(frontier)
        for k, i in enumerate(self.alive):
            me = self.branches[i]
            me.propensity *= float(cut.propensity[k])
            if cut.width[k] == 0:
                me.finish = "pruned" if cut.finish is None else str(cut.finish[k])
                me.reason = str(cut.reason[k]) or "cut"
            elif fork.width[k] == 0:  # a method that branches may also give a row no future
                me.finish, me.reason = "pruned", "no_branch"
        order = [k for k, i in enumerate(self.alive) if not self.branches[i].finish]
        new, refused = self._children(order, fork)
        made = np.bincount([k for k, _, _, _ in new], minlength=len(frontier))
        for k, i in enumerate(self.alive):
            me, n = self.branches[i], int(made[k])
            if cut_seen[k]:
                outcome = "no" if cut.width[k] > 0 else str(cut.reason[k]) or "cut"
                self._note(me, "prune", outcome, {"propensity": float(cut.propensity[k])} | _figures(cut.why, k))
            if fork_seen[k]:
                outcome = f"fork:{n}" if n else "suppressed" if refused[k] else "no"
                denied = {"refused": float(refused[k])} if refused[k] else {}
                self._note(me, "branch", outcome, denied | _figures(fork.why, k))
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

    def _cut(self, frontier: Frontier) -> tuple[Cut, np.ndarray]:
        """What prune says, and (B,) bool of whom."""
        b, shown = len(frontier), self._shown(self.prune, frontier)
        if self.prune is None or shown is None:
            return Cut(np.ones(b, np.int64), np.full(b, "", dtype=object), np.ones(b)), np.zeros(b, bool)
        cut = self.prune(shown)
        self._remember(cut.memory)
        return cut, shown.due

    def _fork(self, frontier: Frontier) -> tuple[Fork, np.ndarray]:
        """What branch says, and (B,) bool of whom."""
        b, shown = len(frontier), self._shown(self.branch, frontier)
        if self.branch is None or shown is None:
            return Fork(np.ones(b, np.int64), np.full(b, -1), np.full(b, -1)), np.zeros(b, bool)
        fork = self.branch(shown)
        self._remember(fork.memory)
        return fork, shown.due

    def _shown(self, hook: Branch | Prune | None, frontier: Frontier) -> Frontier | None:
        """The frontier as a hook sees it; None where nothing paused for it. One that acts for several methods tells them
        apart itself."""
        if hook is None:
            return None
        if isinstance(hook.checkpoint, Checkpoint):
            shown = frontier.of(hook.checkpoint)
        else:
            due = np.any([frontier.paused[part].due for part in hook.checkpoint.parts], axis=0)
            shown = replace(frontier, due=due)
        return shown if shown.due.any() else None

    def _children(self, order: Sequence[int], fork: Fork) -> tuple[list[tuple[int, GrowingRow, int, int]], np.ndarray]:
        """(place of the parent, child, tokens to take back, forced token) of each fork there is room for, and (B,) int64
        forks that were refused."""
        new: list[tuple[int, GrowingRow, int, int]] = []
        refused = np.zeros(len(self.alive), np.int64)
        left, room = max(self.capacity - len(order), 0), self._room()
        for k in order:
            group = self.groups[self.branches[self.alive[k]].row]
            wanted = int(fork.width[k]) - 1
            n = min(wanted, left, int(room[group]))
            left, room[group], refused[k] = left - n, room[group] - n, wanted - n
            first = [*np.atleast_1d(fork.token[k]).tolist()][:n]
            first += [first[-1] if fork.token.ndim == 1 and first else -1] * (n - len(first))
            new += [self._child(k, int(fork.at[k]), t) for t in first]
        return new, refused

    def _child(self, k: int, at: int, token: int) -> tuple[int, GrowingRow, int, int]:
        parent = self.branches[self.alive[k]]
        length = len(parent.tokens)
        at = length if at < 0 else min(max(at, parent.start), length)
        owner, place = parent, self.alive[k]
        while owner.parent >= 0 and at < owner.fork_at:  # before its own fork the path is its parent's
            place, owner = owner.parent, self.branches[owner.parent]
        owner.forks += 1
        child = GrowingRow(
            owner.row, f"{owner.id}/{at}.{owner.forks}", parent.limit, place, at, parent.start,
            parent.tokens[:at], parent.logp[:at], parent.entropy[:at], goal=at + parent.goal - length,
            seen={part: min(n, at) for part, n in parent.seen.items()}, forced=token >= 0, propensity=parent.propensity,
            marks=[m for m in parent.marks if m <= at], memory=dict(parent.memory),
        )  # fmt: skip
        return k, child, length - at, token

    def _room(self) -> np.ndarray:
        """(G,) int64 forks that each group may still have."""
        held = [self.groups[b.row] for b in self.branches if b.finish not in LOST_FINISHES]
        return np.maximum(self.leaves - np.bincount(held, minlength=len(self.leaves)), 0)

    def _keys(self, branches: Sequence[int]) -> np.ndarray:
        return streams(self.seed, [self.branches[i].stream or self.branches[i].id for i in branches])

    def _frontier(self, due: Sequence[np.ndarray]) -> Frontier:
        """What is alive, and what each checkpoint makes of it; from now on the branches that are due were looked at."""
        mine = [self.branches[i] for i in self.alive]
        rows, n = np.array([b.row for b in mine], np.int64), _lengths(mine)
        extra: dict[str, np.ndarray] = {}
        if self.pauses.top:
            extra["top_tokens"], extra["top_logp"] = self.session.top(self.pauses.top)
        if self.pauses.hidden:
            extra["hidden"] = self.session.hidden().copy()  # what engines return may be the memory they go on in
        paused = {}
        for number, (part, at) in enumerate(zip(self.pauses.parts, due, strict=True)):
            tail, here = np.full(len(mine), "", dtype=object), np.flatnonzero(at)
            if part.text:
                tail[here] = self.decode([mine[k].tokens[mine[k].seen.get(number, mine[k].start) :] for k in here])
                for k in here:
                    mine[k].seen[number] = int(n[k])
            paused[part] = Paused(at, tail)
        names = dict.fromkeys(name for b in self.branches for name in b.memory)
        blank = {name: next(b.memory[name] for b in self.branches if name in b.memory) for name in names}
        return Frontier(
            prompt=self.rows.prompt[rows],
            group=self.groups[rows],
            branch=np.array(self.alive, np.int64),
            parent=np.array([b.parent for b in mine], np.int64),
            n_tokens=n,
            tokens=Ragged.of([b.tokens for b in mine], np.int32),
            logp=Ragged.of([b.logp for b in mine], np.float32),
            entropy=Ragged.of([b.entropy for b in mine], np.float32),
            tail=np.full(len(mine), "", dtype=object),
            capacity=max(self.capacity - len(mine), 0),
            extra=extra,
            memory={m: np.array([b.memory.get(m, _zero(blank[m])) for b in mine]) for m in names},
            born=np.array([max(b.fork_at, 0) for b in mine], np.int64),
            n_prompts=self.n_prompts,
            due=np.any(due, axis=0),
            room=self._room()[self.groups[rows]],
            paused=paused,
        )

    def _remember(self, memory: Mapping[str, np.ndarray]) -> None:
        for name, column in memory.items():
            for i, value in zip(self.alive, column, strict=True):
                if value is not None:
                    self.branches[i].memory[name] = value

    def _note(self, branch: GrowingRow, kind: str, outcome: str, inputs: Mapping[str, float]) -> None:
        self.decisions.append(Decision(branch.id, len(branch.tokens), kind, outcome, inputs))


def _lengths(branches: Sequence[GrowingRow]) -> np.ndarray:
    """(B,) int64 tokens of each path."""
    return np.array([len(b.tokens) for b in branches], np.int64)


def _figures(why: Mapping[str, np.ndarray], k: int) -> dict[str, float]:
    """What was known of row k."""
    return {n: float(c[k]) for n, c in why.items() if not np.isnan(c[k])}


def _zero(value: object) -> object:
    return np.zeros_like(np.asarray(value))[()]
