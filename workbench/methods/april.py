"""APRIL: ask for more groups than are needed, stop when enough are complete, carry the unfinished ones over."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, NamedTuple

import numpy as np

from workbench.stages import Card, Checkpoint, Effect, Method
from workbench.types import Advantage, Cut, Draft, Frontier, Plan, Pool, Resume, Step

CARD = Card(
    slug="april",
    title="APRIL: active partial rollouts",
    arxiv="2509.18521",
    code="https://github.com/RLsys-Foundation/APRIL",
    source="code",
    deviations=(
        "a surplus group that completes together with the last one needed is kept for the next step; the code drops it",
        "the age of a token is counted from its segments; the code adds only the last one",
        "rollouts are stopped at checkpoints, `every` tokens apart, the first of them after `every` tokens even where enough "
        "groups wait complete, so more groups than needed may be complete by then",
        "the budget of a step is what is submitted, `share` of its groups are trained (32 of 64 in the paper); no groups are "
        "rejected and asked again",
    ),
    unspent="prompts that were chosen wait for those of the buffer, which come first",
    watch="off-policy share and age of trained tokens, size of the buffer, lengths trained against lengths asked",
)


class Group(NamedTuple):
    """A prompt under way: its rollouts (id, tokens so far), those that have ended included, and the step it began in."""

    prompt: int
    rollouts: tuple[tuple[str, int], ...]
    born: int


@dataclass(frozen=True)
class April(Method):
    """A step stops when `share` of its groups are complete; the others go on in the next step, the oldest first.

    The state is the buffer: groups in the order of their submission. max_age: steps after which a group is not taken up
    again (0 = never given up). Stands behind an estimator, with twice the prompts in the budget that shall be trained:
    Pipeline(Grpo(), April()).
    """

    share: float = 0.5
    every: int = 16
    max_age: int = 0

    card = CARD
    needs: ClassVar[frozenset[str]] = frozenset({"resume"})
    effects = frozenset({Effect.CARRIES_GROUPS, Effect.PLANS_AFTER_STEP})

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share={self.share} of the groups cannot be trained; 1 waits for all")

    @property
    def checkpoint(self) -> Checkpoint:
        """Every `every` tokens."""
        return Checkpoint(every=self.every)

    def init(self, pool: Pool) -> tuple[Group, ...]:
        """Nothing is under way."""
        return ()

    def observe(self, state: tuple[Group, ...], step: Step) -> tuple[Group, ...]:
        """What was not taken up stays in front; what was carried out of the step goes to the end."""
        taken = {s.rollout for s in step.plan.start if isinstance(s, Resume)}
        resumed = [any(name in taken for name, _ in g.rollouts) for g in state]
        born = {g.prompt: g.born for g, again in zip(state, resumed, strict=True) if again}
        r, out = step.rollouts, np.flatnonzero(step.fate == "carried")
        groups: dict[int, list[tuple[str, int]]] = {}
        for k in out[np.argsort(r.ask[out], kind="stable")]:
            groups.setdefault(int(r.prompt[k]), []).append((str(r.id[k]), int(r.length[k])))
        left = [g for g, again in zip(state, resumed, strict=True) if not again]
        left += [Group(p, tuple(rows), born.get(p, step.step)) for p, rows in groups.items()]
        return tuple(g for g in left if not self.max_age or step.step - g.born < self.max_age)

    def amend(self, state: tuple[Group, ...], plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """The buffer first; as many fresh prompts as there is room for besides."""
        if draft.round or not state:
            return plan
        resumed = state[: draft.budget.prompts]
        asks = (plan.purpose == "train") & (plan.n > 0)
        fresh = [p for p in dict.fromkeys(plan.prompt[asks].tolist()) if p not in {g.prompt for g in state}]
        room = draft.budget.prompts - len(resumed)
        plan = plan.settled(asks & ~np.isin(plan.prompt, fresh[:room]), np.zeros(len(plan), np.int64))
        names = [(g.prompt, name) for g in resumed for name, _ in g.rollouts]
        start = np.empty(len(names), dtype=object)
        for i, (_, name) in enumerate(names):
            start[i] = Resume(name)
        more = Plan(np.array([p for p, _ in names]), np.ones(len(names), np.int64), start=start)
        return Plan.concat([more, plan])

    def prune(self, state: tuple[Group, ...], frontier: Frontier, rng: np.random.Generator) -> Cut:
        """Stop everything once enough groups have ended."""
        b, alive = len(frontier), len(np.unique(frontier.prompt))
        stop = b > 0 and frontier.round == 0 and frontier.n_prompts - alive >= ceil(self.share * frontier.n_prompts)
        reason, finish = (np.full(b, "carried" if stop else "", dtype=object) for _ in range(2))
        return Cut(np.full(b, int(not stop)), reason, np.ones(b), finish=finish)

    def estimate(
        self, state: tuple[Group, ...], advantage: Advantage, draft: Draft, rng: np.random.Generator
    ) -> Advantage:
        """Of the complete groups those that were first are trained; all others wait, with what they have."""
        r = draft.rollouts
        mine = (r.purpose == "train") & (r.context == "") & (r.ask >= 0)
        prompts, group = np.unique(r.prompt[mine], return_inverse=True)
        if not len(prompts):
            return advantage
        before = {name: tokens for g in state for name, tokens in g.rollouts}
        starts = draft.plan.start if draft.plan is not None else np.full(int(r.ask.max()) + 1, None, dtype=object)
        had = np.array([before.get(s.rollout, 0) if isinstance(s, Resume) else 0 for s in starts], np.int64)
        ticks, first = np.zeros(len(prompts), np.int64), np.full(len(prompts), len(starts))
        np.maximum.at(ticks, group, (r.length - had[np.maximum(r.ask, 0)])[mine])
        np.minimum.at(first, group, r.ask[mine])
        complete = np.bincount(group, r.finish[mine] == "carried", len(prompts)) == 0
        order = np.lexsort((first, ticks, ~complete))[: ceil(self.share * len(prompts))]
        trained = np.zeros(len(prompts), bool)
        trained[order] = complete[order]
        waits = np.zeros(len(r), bool)
        waits[np.flatnonzero(mine)] = ~trained[group]
        return advantage.drop(waits, "carried")
