"""Replay world: a recorded run answers plans with rollouts that were made, and never learns.

Three ways to answer, each with what it assumes. "recorded" gives every rollout out once, from the same step or at most
`window` steps away, and counts what it cannot give. "resample" draws with replacement from the same rollouts: it assumes
that they stand for the prompt at that time. "fitted" draws outcomes at rates drawn from a `Skill`, for any prompt at
any step: it assumes that the policy learned what it learned whatever was asked of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from workbench.numerics.roles import without_hints
from workbench.numerics.success_over_time import Skill
from workbench.numerics.token_columns import TRACKS
from workbench.stages import BaseWorld, Branch, LossFn, Prune
from workbench.types import Advantage, Plan, Pool, Rollouts, Step

Serve: TypeAlias = Literal["recorded", "resample", "fitted"]


@dataclass(frozen=True)
class Recording:
    """The steps of a run, as far as a replay needs them; token columns only where they are asked for."""

    pool: Pool
    steps: Mapping[int, Step]

    @classmethod
    def of(cls, steps: Iterable[Step], pool: Pool, needs: frozenset[str] = frozenset()) -> Recording:
        """Keep steps; columns of tokens that needs does not name are let go of."""
        drop = {column: None for name, column in TRACKS.items() if name not in needs}
        kept = {}
        for step in steps:
            text = np.full(len(step.rollouts), "", dtype=object)
            rows = without_hints(step.rollouts)  # a replay gives what was generated
            kept[step.step] = replace(step, rollouts=rows.with_(**drop, role=None, text=text))
        if not kept:
            raise ValueError("there is no recorded step to replay")
        return cls(pool, kept)

    def outcomes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Plain evidence as columns: step, prompt, successes, tries; one row per (step, prompt)."""
        rows = [(s.step, *s.evidence(len(self.pool))) for s in self.steps.values()]
        step = np.concatenate([np.full(len(p), n) for n, p, _, _ in rows])
        prompt, solved, tried = (np.concatenate([r[i] for r in rows]) for i in (1, 2, 3))
        return step, prompt, solved, tried


class ReplayWorld(BaseWorld):
    """Answers plans from a recording. shortfall (N,) int64 counts rollouts asked of each prompt and not to be had.

    >>> from workbench import Store
    >>> from workbench.analysis.whatif import record
    >>> with Store.sample() as store:
    ...     world = ReplayWorld(record(store)[1])
    >>> len(world.pool)
    128
    """

    def __init__(
        self,
        recording: Recording,
        *,
        serve: Serve = "recorded",
        window: int = 0,
        skill: Skill | None = None,
        seed: int = 0,
    ) -> None:
        if serve not in ("recorded", "resample", "fitted"):
            raise ValueError(f"serve must be recorded, resample or fitted, not {serve!r}")
        if serve == "fitted" and skill is None:
            raise ValueError("serve='fitted' draws from a Skill; give one, fitted to the recording")
        self.recording, self.pool = recording, recording.pool
        self.serve, self.window, self.skill, self.seed = serve, window, skill, seed
        self.shortfall = np.zeros(len(self.pool), np.int64)
        self.asked = np.zeros(len(self.pool), np.int64)
        first = next(iter(recording.steps.values())).rollouts
        have = {name for name, column in TRACKS.items() if getattr(first, column) is not None}
        self.offers = frozenset({"text"} | have | set(first.extra) | set(self.pool.features))
        self._step = 0
        self._used: dict[int, set[int]] = {}
        self._rows = {n: _by_key(s.rollouts) for n, s in recording.steps.items()}
        self._typical = _typical(recording) if serve == "fitted" else None

    @property
    def version(self) -> int:
        """Updates the recorded policy had seen at the step being replayed."""
        step = self.recording.steps.get(self._step)
        return int(step.rollouts.version.max(initial=0)) if step is not None else 0

    def sample(self, plan: Plan, branch: Branch | None = None, prune: Prune | None = None) -> Rollouts:
        """Rollouts for a plan: fewer rows than asked where the recording has no more."""
        if branch is not None or prune is not None:
            raise NotImplementedError(
                "a recorded run cannot fork or stop rollouts; leave out methods that branch or prune"
            )
        if plan.step != self._step:
            self._step, self._used = plan.step, {}
        np.add.at(self.asked, plan.prompt, plan.n)
        if self.serve == "fitted":
            return self._fitted(plan)
        near = sorted(
            (n for n in self.recording.steps if abs(n - plan.step) <= self.window),
            key=lambda n: (abs(n - plan.step), n),
        )
        rng = np.random.default_rng([self.seed, plan.step, int(plan.round.max(initial=0))])
        parts: list[Rollouts] = []
        for a in range(len(plan)):
            key = (int(plan.prompt[a]), str(plan.context[a]), str(plan.purpose[a]))
            found = [(n, row) for n in near for row in self._rows[n].get(key, ())]
            wanted = int(plan.n[a])
            if self.serve == "resample" and found:
                taken = [found[i] for i in rng.integers(0, len(found), wanted)]
            else:
                free = [(n, row) for n, row in found if row not in self._used.get(n, ())]
                taken = free[:wanted]
                for n, row in taken:
                    self._used.setdefault(n, set()).add(row)
            self.shortfall[key[0]] += wanted - len(taken)
            for n in dict.fromkeys(n for n, _ in taken):
                rows = np.array([row for m, row in taken if m == n])
                mine = self.recording.steps[n].rollouts.take(rows)
                parts.append(mine.with_(ask=np.full(len(rows), a), step=np.full(len(rows), plan.step)))
        if not parts:
            return next(iter(self.recording.steps.values())).rollouts.take(np.empty(0, np.int64))
        made = Rollouts.concat(parts)
        return made.with_(id=_unique(made.id)) if self.serve == "resample" else made

    def _fitted(self, plan: Plan) -> Rollouts:
        rows = Rollouts.of_plan(plan, self.pool, self.version)
        assert self.skill is not None and self._typical is not None
        alpha, beta = self.skill.at(plan.step)
        # a rate for every prompt at this step from what is believed of it, then outcomes at that rate
        rate = np.random.default_rng([self.seed, plan.step, 1]).beta(alpha, beta)[rows.prompt]
        rng = np.random.default_rng([self.seed, plan.step, int(plan.round.max(initial=0)), 2])
        correct = (rng.random(len(rows)) < rate).astype(float)
        reward, length = self._typical
        return rows.with_(
            correct=correct,
            reward=reward[rows.prompt, correct.astype(np.int64)],
            length=length[rows.prompt],
            finish=np.full(len(rows), "stop", dtype=object),
        )

    def update(
        self, rollouts: Rollouts, advantage: Advantage, loss: LossFn, penalties: list[LossFn]
    ) -> Mapping[str, float | np.ndarray | str]:
        """What the recorded update of the step said, per rollout where the same rollouts were served."""
        step = self.recording.steps.get(self._step)
        if step is None:
            return {}
        place = {i: k for k, i in enumerate(step.rollouts.id)}
        rows = [place.get(i) for i in rollouts.id]
        columns = {}
        if None not in rows:
            columns = {k: np.asarray(v)[np.array(rows, np.int64)] for k, v in step.update.items() if np.ndim(v)}
        return {k: v for k, v in step.update.items() if not np.ndim(v)} | columns


def _by_key(rollouts: Rollouts) -> dict[tuple[int, str, str], list[int]]:
    """Rows that an ask of their step made, by (prompt, context, purpose), in the order in which they were asked."""
    found: dict[tuple[int, str, str], list[int]] = {}
    for row in np.flatnonzero(rollouts.ask >= 0):
        key = (int(rollouts.prompt[row]), str(rollouts.context[row]), str(rollouts.purpose[row]))
        found.setdefault(key, []).append(int(row))
    return found


def _unique(ids: np.ndarray) -> np.ndarray:
    """Ids told apart where a rollout was drawn more than once."""
    seen: dict[str, int] = {}
    out = []
    for i in ids:
        seen[i] = seen.get(i, 0) + 1
        out.append(i if seen[i] == 1 else f"{i}#{seen[i]}")
    return np.array(out, dtype=object)


def _typical(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """(N, 2) mean reward of each prompt's failures and successes, (N,) int64 mean length; of all prompts where unseen."""
    n = len(recording.pool)
    total, count, length, seen = np.zeros((n, 2)), np.zeros((n, 2)), np.zeros(n), np.zeros(n)
    for step in recording.steps.values():
        r = step.rollouts
        rows = np.flatnonzero(r.plain & np.isfinite(r.reward) & np.isin(r.correct, (0, 1)))
        at = (r.prompt[rows], r.correct[rows].astype(np.int64))
        np.add.at(total, at, r.reward[rows])
        np.add.at(count, at, 1)
        np.add.at(length, r.prompt[rows], r.length[rows])
        np.add.at(seen, r.prompt[rows], 1)
    overall = np.where(count.sum(0) > 0, total.sum(0) / np.maximum(count.sum(0), 1), (0.0, 1.0))
    reward = np.where(count > 0, total / np.maximum(count, 1), overall)
    mean = length.sum() / max(seen.sum(), 1)
    return reward, np.round(np.where(seen > 0, length / np.maximum(seen, 1), mean)).astype(np.int64)
