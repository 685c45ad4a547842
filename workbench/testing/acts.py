"""Promises about the verbs: what each returns, that a generator alone decides, and that budgets add up."""

from __future__ import annotations

import copy
import types
from dataclasses import replace
from functools import partial

import numpy as np

from workbench.pipeline.frontier import Hook, branch_of, prune_of
from workbench.pipeline.rounds import join
from workbench.stages import Method, State
from workbench.testing.promise import case, promise
from workbench.testing.scripted import ScriptedWorld, equal, pool_of
from workbench.testing.trials import N_PROMPTS, draft_after, frontier, rng
from workbench.types import (
    Advantage,
    Budget,
    Cut,
    Draft,
    Fork,
    Frontier,
    Paused,
    Picked,
    Plan,
    Resume,
    Rollouts,
)
from workbench.types.checkpoint import Checkpoint

WITHOUT_RNG = ("more", "reward", "admit")
ELSEWHERE = Checkpoint(every=7)


def calls(method: Method) -> dict[str, tuple[type, tuple]]:
    """Verb -> (what it must return, its arguments but the generator), for the verbs at which the method acts."""
    state, draft = draft_after(method)
    assert draft.rollouts is not None
    wanting = draft.with_(prompts=draft.prompts[:0], wanted=5, rollouts=None, plan=None)
    plan = Plan(draft.fresh, np.full(len(draft.fresh), 4))
    found = {
        "select": (Picked, (state, wanting)),
        "allocate": (Plan, (state, draft.with_(rollouts=None, plan=None))),
        "amend": (Plan, (state, plan, draft.with_(rollouts=None, plan=None))),
        "more": (int, (state, draft)),
        "branch": (Fork, (state, frontier(4))),
        "prune": (Cut, (state, frontier(4))),
        "reward": (Rollouts, (state, draft.rollouts)),
        "admit": (np.ndarray, (state, draft.rollouts, draft)),
        "replay": (Rollouts, (state, draft.rollouts, draft)),
        "estimate": (Advantage, (state, Advantage.start(draft.rollouts), draft)),
    }
    return {verb: call for verb, call in found.items() if verb in method.verbs}


def act(method: Method, verb: str, *arguments: object) -> object:
    """Call a verb with the generator of the contract, where the verb takes one."""
    return getattr(method, verb)(*arguments, *([] if verb in WITHOUT_RNG else [rng(verb)]))


def plain(thing: object) -> object:
    """A record as a plain mapping, so that read-only columns can be copied."""
    if isinstance(thing, Draft | Plan | Rollouts | Advantage | Frontier):
        return {name: plain(value) for name, value in vars(thing).items()}
    return dict(thing) if isinstance(thing, types.MappingProxyType) else thing


@promise()
def returns(cls: type[Method]) -> None:
    """Its verbs return what they declare, and change nothing that they are given."""
    method = cls()
    for verb, (kind, arguments) in calls(method).items():
        before = copy.deepcopy([plain(a) for a in arguments])
        result = act(method, verb, *arguments)
        assert isinstance(result, kind), f"{verb} returned {type(result).__name__}"
        assert equal([plain(a) for a in arguments], before), f"{verb} changed what it was given"


@promise()
def generator_decides(cls: type[Method]) -> None:
    """Its generator alone decides: the same draws give the same answer."""
    method = cls()
    for verb, (_, arguments) in calls(method).items():
        assert equal(act(method, verb, *arguments), act(method, verb, *arguments)), verb


@promise("select")
def selects_candidates(cls: type[Method]) -> None:
    """It selects distinct candidates, at most as many as are wanted."""
    method = cls()
    state, whole = draft_after(method)
    for wanted in (0, 1, 5, 24, 100):
        for free in (1, 10, 24):
            with case(wanted=wanted, free=free):
                available = np.arange(N_PROMPTS) >= N_PROMPTS - free
                draft = whole.with_(
                    available=available, prompts=np.array([23]), wanted=wanted, rollouts=None, plan=None
                )
                rows, why = method.select(state, draft, rng())  # type: ignore[attr-defined]
                assert np.issubdtype(rows.dtype, np.integer)
                assert len(np.unique(rows)) == len(rows) <= wanted
                assert np.isin(rows, draft.candidates()).all()
                assert all(len(figure) == len(rows) for figure in why.values())


@promise("select")
def says_why(cls: type[Method]) -> None:
    """It says by which finite figures it selected."""
    method = cls()
    state, draft = draft_after(method)
    draft = draft.with_(prompts=draft.prompts[:0], wanted=4, rollouts=None, plan=None)
    why = method.select(state, draft, rng()).why  # type: ignore[attr-defined]
    assert why
    assert all(np.isfinite(figure).all() for figure in why.values())


@promise("allocate")
def spends(cls: type[Method]) -> None:
    """It spends the budget exactly, or its card says why a part may stay unspent."""
    method = cls()
    state, whole = draft_after(method)
    for prompts, rollouts in ((6, 24), (6, 25), (6, 6), (1, 3), (24, 100)):
        with case(prompts=prompts, rollouts=rollouts):
            fresh = np.arange(prompts)
            budget = Budget(prompts=prompts, rollouts=rollouts)
            draft = whole.with_(budget=budget, prompts=fresh, fresh=fresh, rollouts=None, plan=None)
            plans = _rounds(method, state, draft)
            assert np.isin(np.concatenate([plan.prompt for plan in plans]), fresh).all()
            asked = sum(plan.n_rollouts for plan in plans)
            assert asked == rollouts or (method.card.unspent and 0 < asked < rollouts), f"it asked for {asked}"


def _rounds(method: Method, state: State, draft: Draft) -> list[Plan]:
    """What a method asks for, round after round, until it wants nothing more."""
    world, plans, parts = ScriptedWorld(N_PROMPTS), [], []
    while (plan := method.allocate(state, draft, rng())).n_rollouts:  # type: ignore[attr-defined]
        plan = replace(plan, ordinal=np.full(len(plan), 100 * draft.round), step=draft.step)
        plans.append(plan)
        parts.append(world.sample(plan))
        draft = draft.with_(
            fresh=draft.fresh[:0], round=draft.round + 1, plan=Plan.concat(plans), rollouts=join(parts, plans)
        )
        assert draft.round < 64, "it asks again and again"
    return plans


@promise("allocate")
def allocates_nothing(cls: type[Method]) -> None:
    """It allocates nothing where no prompt is fresh."""
    method = cls()
    state, draft = draft_after(method)
    draft = draft.with_(fresh=np.empty(0, np.int64), round=1)
    assert method.allocate(state, draft, rng()).n_rollouts == 0  # type: ignore[attr-defined]


@promise("amend")
def keeps_prompts(cls: type[Method]) -> None:
    """It amends a plan without adding prompts, but for those that it carried over."""
    method = cls()
    state, draft = draft_after(method)
    plan = Plan(draft.fresh, np.arange(len(draft.fresh)))
    amended = method.amend(state, plan, draft.with_(plan=None, rollouts=None), rng())  # type: ignore[attr-defined]
    resumed = np.array([isinstance(s, Resume) for s in amended.start], bool)  # those were chosen in an earlier step
    assert set(amended.prompt[~resumed].tolist()) <= set(plan.prompt.tolist())


@promise("branch", "prune")
def where_paused(cls: type[Method]) -> None:
    """Its answer counts where rollouts paused for it, and nowhere else."""
    method = cls()
    b = 40
    shown, due = frontier(b), np.arange(b) % 3 == 0
    paused = {
        method.checkpoint: Paused(due, np.where(due, "x", "").astype(object)),
        ELSEWHERE: Paused(~due, shown.tail),
    }
    for verb, hook_of in (("branch", branch_of), ("prune", prune_of)):
        if verb not in method.verbs:
            continue
        ask = partial(getattr(method, verb), method.init(pool_of(N_PROMPTS)))
        hook = hook_of([Hook(method.checkpoint, lambda f, ask=ask: ask(f, rng()))])
        answer = hook(replace(shown, paused=paused))
        assert (answer.width[~due] == 1).all()
        for column in answer.memory.values():
            assert [value is None for value in column] == (~due).tolist()
        for column in answer.why.values():
            assert np.isnan(column[~due]).all()
        silent = hook(replace(shown, paused={**paused, method.checkpoint: Paused(due & False, shown.tail)}))
        assert (silent.width == 1).all()
        assert not silent.memory


@promise("branch")
def branches(cls: type[Method]) -> None:
    """It answers a frontier of any size with a fork for each row."""
    method = cls()
    for b in (0, 1, 10_000):
        with case(rows=b):
            fork = method.branch(method.init(pool_of(N_PROMPTS)), frontier(b), rng())  # type: ignore[attr-defined]
            assert fork.width.shape == fork.at.shape == fork.token.shape[:1] == (b,)
            assert (fork.width >= 0).all()
            assert all(len(column) == b for column in (*fork.why.values(), *fork.memory.values()))


@promise("prune")
def prunes(cls: type[Method]) -> None:
    """It answers a frontier of any size with a cut for each row, its reason and its propensity."""
    method = cls()
    for b in (0, 1, 10_000):
        with case(rows=b):
            cut = method.prune(method.init(pool_of(N_PROMPTS)), frontier(b), rng())  # type: ignore[attr-defined]
            assert cut.width.shape == cut.reason.shape == cut.propensity.shape == (b,)
            assert np.isin(cut.width, (0, 1)).all()
            assert ((cut.propensity > 0) & (cut.propensity <= 1)).all()
            assert ((cut.reason == "") == (cut.width == 1)).all()
            ends = ("pruned", "aborted", "stop", "carried")
            assert cut.finish is None or np.isin(cut.finish[cut.width == 0], ends).all()
            assert all(len(column) == b for column in cut.memory.values())
