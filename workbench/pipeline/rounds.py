"""The rounds of a step: select, allocate, amend, generate and reward, until nothing more is wanted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from workbench.numerics.apportion import apportion
from workbench.pipeline.draws import generator
from workbench.pipeline.frontier import Hook, branch_of, prune_of
from workbench.pipeline.pipeline import Pipeline, States
from workbench.stages import Branch, Method, Prune, World
from workbench.types import Budget, Draft, Event, Picked, Plan, Rollouts

MAX_ROUNDS = 64
"""A step that still wants more after this many rounds ends with a warning."""


class PromptSettings(NamedTuple):
    """What the researcher has set for single prompts, beside `available`. pinned (K,) int64 rows that are in every step,
    before anybody selects; boost (N,) float64 weighs what is allocated to a prompt, None = 1 for all."""

    pinned: np.ndarray = np.empty(0, np.int64)
    boost: np.ndarray | None = None


NO_PROMPT_SETTINGS = PromptSettings()


class Clock:
    """Seconds by phase: each lap books the time since the one before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(("decide", "generate", "score", "estimate", "update"), 0.0)
        self.began = self.last = time.perf_counter()

    def lap(self, phase: str) -> None:
        """Book the time since the last lap under a phase."""
        now = time.perf_counter()
        self.seconds[phase] += now - self.last
        self.last = now

    @property
    def total(self) -> float:
        """Seconds since the step began."""
        return time.perf_counter() - self.began


def boosted(plan: Plan, factor: np.ndarray) -> Plan:
    """The plan with its training rollouts shared out anew, in proportion to n x factor (A,) and as many in all; nobody
    falls below two, or below what was asked where that is less."""
    rows = (plan.purpose == "train") & (plan.n > 0)
    if (factor[rows] == 1).all():
        return plan
    n = plan.n.copy()
    weight, total, low = n[rows] * factor[rows], int(n[rows].sum()), np.minimum(n[rows], 2)
    share = apportion(weight, total)
    n[rows] = share if (share >= low).all() else apportion(weight, total, floor=low)
    return plan.with_n(n)


def first_draft(budget: Budget, step: int, available: np.ndarray, prompt_settings: PromptSettings) -> Draft:
    """A step before its first round: pinned prompts are in, the selector is asked for the rest."""
    return Draft(
        step, budget, available, prompt_settings.pinned, wanted=max(budget.prompts - len(prompt_settings.pinned), 0)
    )


def rehearse(
    pipeline: Pipeline,
    states: States,
    budget: Budget,
    *,
    step: int,
    seed: int = 0,
    available: np.ndarray,
    prompt_settings: PromptSettings = NO_PROMPT_SETTINGS,
) -> Plan:
    """What the first round of a step would ask for: nothing is generated and nothing remembered. Raises what the methods
    raise where they cannot plan such a step."""
    draft = first_draft(budget, step, available, prompt_settings)
    return _decide(pipeline, states, draft, [], seed, prompt_settings)[1]


def _decide(
    pipeline: Pipeline,
    states: States,
    draft: Draft,
    earlier: list[Plan],
    seed: int,
    prompt_settings: PromptSettings = NO_PROMPT_SETTINGS,
) -> tuple[Draft, Plan]:
    """One round's select, allocate and amend: the draft with its fresh prompts, and the plan (empty = nothing more)."""
    step, round_ = draft.step, draft.round
    picked, selector = Picked(np.empty(0, np.int64)), pipeline.decider("select")
    fresh = picked.rows
    if draft.wanted > 0:
        rng = generator(seed, step, round_, "select", selector.name)
        picked = Picked.of(bound(selector, "select", states)(draft, rng))
        fresh = picked.rows
        allowed = np.isin(fresh, draft.candidates())
        if len(np.unique(fresh)) != len(fresh) or not allowed.all() or len(fresh) > draft.wanted:
            raise ValueError(
                f"{type(selector).__name__}.select returned {len(fresh)} rows for {draft.wanted} wanted prompts"
                f" ({len(fresh) - len(np.unique(fresh))} twice, {int((~allowed).sum())} not among the candidates)"
            )
    if round_ == 0 and not len(fresh) and not len(draft.prompts):
        free, n = int(draft.available.sum()), len(draft.available)
        raise ValueError(f"step {step}: no prompt could be chosen ({free} of {n} are available)")
    prompts = np.concatenate([draft.prompts, fresh])
    draft = draft.with_(fresh=fresh if round_ else prompts, prompts=prompts)
    method = pipeline.decider("allocate")
    plan = bound(method, "allocate", states)(draft, generator(seed, step, round_, "allocate", method.name))
    plan = _with_figures(plan, picked, selector.name, len(draft.available))
    if prompt_settings.boost is not None:
        plan = boosted(plan, prompt_settings.boost[plan.prompt])
    for method in pipeline.actors("amend"):
        plan = bound(method, "amend", states)(plan, draft, generator(seed, step, round_, "amend", method.name))
    if pipeline.actors("branch"):  # forks fill a group up to what was asked for
        plan = plan.with_n(plan.n, plan.n_leaves)
    return draft, replace(
        plan,
        ordinal=_ordinals(plan, earlier),
        round=np.full(len(plan), round_, np.int64),
        folded_through=step - 1,
        step=step,
    )


def _with_figures(plan: Plan, picked: Picked, selector: str, n_prompts: int) -> Plan:
    """The plan with the numbers that its prompts were chosen by; NaN where the selector did not choose the prompt.

    A name that the allocation has too gets the selector's in front."""
    why = {}
    for name, figure in picked.why.items():
        known = np.full(n_prompts, np.nan)
        known[picked.rows] = figure
        why[name if name not in plan.why else f"{selector}.{name}"] = known[plan.prompt]
    return replace(plan, why={**why, **plan.why}) if why else plan


def gather(
    pipeline: Pipeline,
    states: States,
    world: World,
    draft: Draft,
    prompt_settings: PromptSettings,
    seed: int,
    clock: Clock,
    events: list[Event],
) -> Draft:
    """All rounds of a step: decide and generate until nothing more is wanted or the budget is spent."""
    plans: list[Plan] = []
    parts: list[Rollouts] = []
    for round_ in range(MAX_ROUNDS):
        draft = draft.with_(round=round_, wanted=min(draft.wanted, len(draft.candidates())))
        draft, plan = _decide(pipeline, states, draft, plans, seed, prompt_settings)
        clock.lap("decide")
        if not plan.n_rollouts:
            return draft
        got = world.sample(plan, *_branching(pipeline, states, seed, draft.step, round_))
        for m in pipeline.actors("reward"):
            got = bound(m, "reward", states)(got)
        clock.lap("generate")
        plans.append(plan)
        parts.append(got)
        rollouts = join(parts, plans)
        draft = draft.with_(plan=Plan.concat(plans), rollouts=rollouts)
        wanted = max((bound(m, "more", states)(draft) for m in pipeline.actors("more")), default=0)
        budget = draft.budget
        # every process of a run has its own clock
        late = bool(budget.seconds) and world.broadcast(clock.total >= budget.seconds)
        if (budget.tokens and int(rollouts.length.sum()) >= budget.tokens) or late:
            for n, what in (
                (wanted, "more prompts were wanted"),
                (int(plan.n_deferred.sum()), "rollouts were put off"),
            ):
                if n:
                    events.append(Event("note", "budget", f"{n} {what}, but the step's budget is spent"))
            return draft
        draft = draft.with_(wanted=wanted)
    events.append(Event("warning", "rounds", f"stopped after {MAX_ROUNDS} rounds with {draft.wanted} still wanted"))
    return draft


def join(parts: list[Rollouts], plans: list[Plan]) -> Rollouts:
    """The rollouts of several rounds as one table: ask counts on, one group per (prompt, context, purpose)."""
    shift = np.cumsum([0] + [len(p) for p in plans])
    asks = [
        np.where(r.ask < 0, -1, r.ask + s) for r, s in zip(parts, shift, strict=False)
    ]  # -1: made by no ask of this step
    rows = Rollouts.concat([r.with_(ask=ask) for r, ask in zip(parts, asks, strict=True)])
    keys = [f"{p}|{c}|{u}" for p, c, u in zip(rows.prompt, rows.context, rows.purpose, strict=True)]
    _, first, inverse = np.unique(np.array(keys, dtype=str), return_index=True, return_inverse=True)
    in_order = np.empty(len(first), np.int64)
    in_order[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rows.with_(group=in_order[inverse])


def _ordinals(plan: Plan, earlier: list[Plan]) -> np.ndarray:
    """(A,) rollouts of the same prompt and purpose asked before each ask of this step."""
    before: dict[tuple[int, str], int] = {}
    for p in earlier:
        for prompt, n, purpose in zip(p.prompt, p.n, p.purpose, strict=True):
            before[prompt, purpose] = before.get((prompt, purpose), 0) + n
    ordinal = np.zeros(len(plan), np.int64)
    for i, (prompt, n, purpose) in enumerate(zip(plan.prompt, plan.n, plan.purpose, strict=True)):
        ordinal[i] = before.get((prompt, purpose), 0)
        before[prompt, purpose] = ordinal[i] + n
    return ordinal


def _branching(
    pipeline: Pipeline, states: States, seed: int, step: int, round_: int
) -> tuple[Branch | None, Prune | None]:
    """The branch and prune hooks of all methods as two functions of a frontier, or None where nobody acts."""

    def hook(verb: str, method: Method) -> Hook:
        act = bound(method, verb, states)
        rng = generator(seed, step, round_, verb, method.name)  # drawn from pause by pause
        return Hook(method.checkpoint, lambda frontier: act(replace(frontier, round=round_), rng))

    forks, cuts = ([hook(verb, m) for m in pipeline.actors(verb)] for verb in ("branch", "prune"))
    return branch_of(forks) if forks else None, prune_of(cuts) if cuts else None


def bound(method: Method, verb: str, states: States) -> Callable[..., Any]:
    """A verb of a method with its state filled in."""
    return partial(getattr(method, verb), states[method.name])
