"""What a method is tried on: short runs in the scripted world, drafts whose rollouts came back, frontiers, variations."""

from __future__ import annotations

import types
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np

from workbench.pipeline import Pipeline, States, catalog, run
from workbench.pipeline.draws import generator
from workbench.stages import Card, Method, State
from workbench.testing.scripted import ScriptedWorld, Uneven
from workbench.types import Advantage, Budget, Draft, Frontier, Plan, Ragged, Step

BUDGET = Budget(prompts=6, rollouts=24)
N_PROMPTS = 24
"""Prompts of the scripted world."""


def pipeline_of(method: Method, *before: Method) -> Pipeline:
    """The method behind the first one of the catalog that has both an estimate and a loss."""
    known = [cls() for cls in catalog.methods().values() if not cls.needs]
    base = next(m for m in known if {"estimate", "loss"} <= set(m.verbs))
    return Pipeline(*([] if base.name == method.name else [base]), *before, method)


def world_for(method: Method) -> ScriptedWorld:
    """A scripted world that offers what the method needs."""
    return ScriptedWorld(N_PROMPTS, method.needs)


def played(method: Method, n_steps: int, *before: Method) -> list[tuple[States, Step]]:
    """The steps of a run with the method in the pipeline, each with the states after it."""
    return list(run(pipeline_of(method, *before), world_for(method), BUDGET, steps=n_steps, seed=3))


history = lru_cache(maxsize=8)(played)
"""The same, kept: most promises look at the same few steps."""


@dataclass(frozen=True, eq=False)
class Witness(Method):
    """Keeps the plans that it sees while steps are made, with what methods remember in them."""

    card = Card("witness", "Keeps the plans of a trial", source="ours")
    plans: list[Plan] = field(default_factory=list)

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """As it was."""
        self.plans.append(draft.plan)
        return advantage


@lru_cache(maxsize=8)
def _seen(method: Method, n_steps: int, *before: Method) -> tuple[States, Step, Plan]:
    """The last step of a run, the states after it, and its plan as it was when its advantages were made."""
    witness = Witness()
    states, done = played(method, n_steps, *before, witness)[-1]
    return states, done, witness.plans[-1]


def draft_after(method: Method, *before: Method) -> tuple[State, Draft]:
    """A state with some evidence, and a draft whose rollouts came back."""
    states, done, plan = _seen(method, 3, *before)
    draft = Draft(
        4,
        BUDGET,
        np.ones(N_PROMPTS, bool),
        done.prompts,
        fresh=done.prompts,
        plan=plan,
        rollouts=done.rollouts,
    )
    return states[method.name], draft


def uneven_draft(method: Method) -> Draft:
    """Groups of 1 to 4 rollouts where the method does not say otherwise; every fifth reward is null."""
    draft = draft_after(method, *([] if "allocate" in method.verbs else [Uneven()]))[1]
    failed = np.arange(len(draft.rollouts)) % 5 == 4
    null = {name: np.where(failed, np.nan, getattr(draft.rollouts, name)) for name in ("reward", "correct")}
    return draft.with_(rollouts=draft.rollouts.with_(**null))


def rng(verb: str = "test") -> np.random.Generator:
    """The generator of one call; the same for every call at the same verb."""
    return generator(5, 4, 0, verb, "contract")


def frontier(b: int) -> Frontier:
    """b paused rollouts of 1 to 5 tokens, four to a group."""
    lengths = 1 + np.arange(b) % 5
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    noise = np.random.default_rng(b).random(int(offsets[-1])).astype(np.float32)
    index = np.arange(b)
    top = np.log(np.random.default_rng(b).dirichlet(np.ones(12), b)).astype(np.float32)
    return Frontier(
        prompt=index // 4 % N_PROMPTS,
        group=index // 4,
        branch=index,
        parent=np.full(b, -1),
        n_tokens=lengths,
        tokens=Ragged(np.arange(offsets[-1], dtype=np.int32), offsets),
        logp=Ragged(-noise, offsets),
        entropy=Ragged(noise, offsets),
        tail=np.full(b, "x", dtype=object),
        capacity=16,
        extra={"top_tokens": top.argsort(1)[:, ::-1].astype(np.int32), "top_logp": -np.sort(-top, axis=1)},
        n_prompts=(b + 3) // 4,
    )


def variations(cls: type[Method]) -> list[Method]:
    """The method once with each setting changed, where a changed value can be guessed from its type."""
    hints, out = get_type_hints(cls), []
    for f in fields(cls):  # type: ignore[arg-type]
        hint, default = hints[f.name], f.default
        options = get_args(hint) if get_origin(hint) in (types.UnionType,) else (hint,)
        if isinstance(default, bool):
            other: object = not default
        elif get_origin(options[0]) is Literal:
            other = next(v for v in get_args(options[0]) if v != default)
        elif isinstance(default, int | float):
            other = default / 2 or 0.5 if isinstance(default, float) else default + 1
        elif float in options:
            other = 0.5
        else:
            continue
        with suppress(ValueError):  # a changed value may be refused
            out.append(cls(**{f.name: other}))
    return out
