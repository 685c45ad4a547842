"""Promises about settings, card and state: frozen records in, new states out."""

from __future__ import annotations

import ast
import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np

from workbench.pipeline import advance
from workbench.stages import VERBS, Effect, Method
from workbench.testing.promise import case, promise
from workbench.testing.scripted import ScriptedWorld, Uneven, barren, equal, pool_of
from workbench.testing.trials import N_PROMPTS, history, pipeline_of, rng, variations, world_for
from workbench.types import Budget, Draft, Plan

MAY_HAVE = frozenset(
    ("card", "needs", "effects", "acts_if", "init", "observe", "reveal", "checkpoint", "belief", "verbs")
)
"""Public names of a method's class beside its settings and its verbs: a misspelt verb would never be called."""


@promise()
def frozen(cls: type[Method]) -> None:
    """Its defaults make a frozen record."""
    method = cls()
    assert method == cls()
    assert hash(method) == hash(cls())
    for f in fields(method):  # type: ignore[arg-type]
        try:
            setattr(method, f.name, f.default)
        except FrozenInstanceError:
            continue
        raise AssertionError(f"its setting {f.name} can be changed; write @dataclass(frozen=True)")
    assert method.settings == {}


@promise()
def pickled(cls: type[Method]) -> None:
    """It can be pickled."""
    for method in [cls(), *variations(cls)]:
        assert pickle.loads(pickle.dumps(method)) == method


@promise()
def rebuilt(cls: type[Method]) -> None:
    """It is made again from its settings, and from what it prints."""
    for method in [cls(), *variations(cls)]:
        with case(method=method):
            assert len(method.settings) == (method != cls())
            assert cls(**method.settings) == method
            printed = ast.parse(repr(method), mode="eval").body
            assert isinstance(printed, ast.Call)
            assert ast.unparse(printed.func) == cls.__name__
            assert cls(**{str(k.arg): ast.literal_eval(k.value) for k in printed.keywords}) == method


@promise()
def documented(cls: type[Method]) -> None:
    """Its card says where it comes from and what to watch."""
    card = cls.card
    assert card.slug.isidentifier(), f"the slug {card.slug!r} cannot be written in a pipeline"
    assert card.slug == card.slug.lower()
    assert card.source in ("code", "C*", "paper", "notes", "ours"), f"source is {card.source!r}"
    assert card.title
    assert card.watch, "watch is empty: what should one look at when it runs?"
    if card.source != "ours":
        # a paper whose number is not known is found by its code
        assert [len(p) for p in card.arxiv.split(".")] == [4, 5] or (not card.arxiv and card.code), card.arxiv
        published = card.source in ("code", "C*")  # what is known from a paper alone may have no code to point at
        assert card.code.startswith("https://") or (not card.code and not published), card.code
    assert isinstance(card.deviations, tuple)


@promise()
def known_verbs(cls: type[Method]) -> None:
    """It acts somewhere, and only at known verbs."""
    method = cls()
    assert method.verbs
    own = {n for n in vars(cls) if not n.startswith("_")} - {f.name for f in fields(method)}  # type: ignore[arg-type]
    unknown = sorted(own - set(VERBS) - MAY_HAVE - set(method.acts_if.values()))
    assert not unknown, f"{', '.join(unknown)} would never be called; the verbs are {', '.join(VERBS)}"


@promise("amend")
def shares(cls: type[Method]) -> None:
    """It says so where it takes a share of what was asked for a prompt."""
    method, texts = cls(), np.full(N_PROMPTS, "one two three\nfour", dtype=object)
    pool = replace(pool_of(N_PROMPTS), extra={"reference": texts, "strategies": texts})
    draft = Draft(1, Budget(prompts=1, rollouts=8), np.ones(N_PROMPTS, bool), np.zeros(1, np.int64))
    plan = method.amend(method.init(pool), Plan([0], [8]), draft, rng())  # type: ignore[attr-defined]
    shared = bool((plan.n_leaves[plan.is_plain] < 8).any() or not plan.is_plain.any())
    assert (Effect.DEFERS_ROLLOUTS in method.effects) == shared


@promise()
def pure(cls: type[Method]) -> None:
    """A state that was observed from stays as it was."""
    method = cls()
    state = method.init(world_for(method).pool)
    for _, done in history(method, 4):
        before, seen = copy.deepcopy(state), done.rollouts.reward.copy()
        after = method.observe(state, done)
        assert equal(state, before), "observe wrote into the old state"
        assert equal(done.rollouts.reward, seen), "observe wrote into the step"
        state = after


@promise()
def folds(cls: type[Method]) -> None:
    """Folding recorded steps gives the states of the run."""
    method = cls()
    for before in ((), (Uneven(),)):
        steps = history(method, 6, *before)
        pipeline = pipeline_of(method, *before)
        for t in (0, 3, 5):
            with case(before=before, steps=t + 1):
                assert equal(pipeline.fold(world_for(method).pool, [done for _, done in steps[: t + 1]]), steps[t][0])


@promise()
def variations_fold(cls: type[Method]) -> None:
    """Folding gives the states of the run under other settings too."""
    for method in variations(cls):
        with case(method=method):
            try:
                steps = history(method, 3)
            except ValueError as error:  # a setting may ask for columns that are not there, or for an error
                assert len(str(error)) > 30, f"the error {str(error)!r} names no way out"
                continue
            folded = pipeline_of(method).fold(world_for(method).pool, [done for _, done in steps])
            assert equal(folded, steps[-1][0])


@promise()
def states_pickle(cls: type[Method]) -> None:
    """Its state can be pickled."""
    method = cls()
    state = history(method, 4)[-1][0][method.name]
    assert equal(pickle.loads(pickle.dumps(state)), state)


@promise()
def no_evidence(cls: type[Method]) -> None:
    """A step in which no verifier worked is no error."""
    method = cls()
    pool = world_for(method).pool
    state = method.observe(method.init(pool), barren(history(method, 4)[0][1]))
    _check_columns(method.reveal(state), len(pool))


@promise()
def reveals(cls: type[Method]) -> None:
    """It reveals a finite column for each prompt, low <= mean <= high within 0 and 1."""
    method = cls()
    pool = world_for(method).pool
    _check_columns(method.reveal(method.init(pool)), len(pool))
    for states, _ in history(method, 4):
        _check_columns(method.reveal(states[method.name]), len(pool))


@promise()
def one_prompt(cls: type[Method]) -> None:
    """A pool of one prompt is a pool."""
    method = cls()
    world = ScriptedWorld(1, method.needs, null=0)
    pipeline = pipeline_of(method)
    states, done = advance(pipeline, pipeline.init(world.pool), world, Budget(prompts=1, rollouts=4), step=1)
    assert done.prompts.tolist() == [0]
    _check_columns(method.reveal(states[method.name]), 1)


def _check_columns(columns: Mapping[str, np.ndarray], n: int) -> None:
    for name, column in columns.items():
        assert column.shape == (n,), f"{name} has shape {column.shape}, not ({n},)"
        assert np.isfinite(column).all(), f"{name} is not finite"
    if columns:
        assert {"mean", "low", "high"} <= set(columns), f"it reveals {', '.join(columns)}, without mean, low and high"
        assert (columns["low"] >= 0).all()
        assert (columns["low"] <= columns["mean"] + 1e-12).all()
        assert (columns["mean"] <= columns["high"] + 1e-12).all()
        assert (columns["high"] <= 1).all()
