"""What every method of the catalog promises. No method is named here: a new file is under contract at once."""

from __future__ import annotations

import ast
import copy
import pickle
import types
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields, replace
from functools import partial
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from workbench.pipeline import Pipeline, advance, catalog, run
from workbench.pipeline.draws import generator
from workbench.pipeline.frontier import Asked, branch_of, prune_of
from workbench.pipeline.rounds import join
from workbench.stages import VERBS, Card, Method
from workbench.testing.scripted import ScriptedWorld, Uneven, barren, equal, pool_of
from workbench.types import (
    Advantage,
    Batch,
    Budget,
    Cut,
    Draft,
    Fork,
    Frontier,
    Look,
    Loss,
    Picked,
    Plan,
    Ragged,
    Resume,
    Rollouts,
    Step,
)
from workbench.types.checkpoint import Checkpoint

METHODS = catalog.methods()
BUDGET = Budget(prompts=6, rollouts=24)
every_method = pytest.mark.parametrize("slug", METHODS)


def acting(verb: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("slug", [s for s in METHODS if verb in METHODS[s]().verbs])


def pipeline_of(method: Method, *before: Method) -> Pipeline:
    """The method behind the first one of the catalog that has both an estimate and a loss."""
    base = next(cls() for cls in METHODS.values() if {"estimate", "loss"} <= set(cls().verbs) and not cls.needs)
    return Pipeline(*([] if base.name == method.name else [base]), *before, method)


def world_for(method: Method, **options: object) -> ScriptedWorld:
    return ScriptedWorld(offers=method.needs, **options)


def history(method: Method, steps: int = 4, *before: Method) -> tuple[ScriptedWorld, list]:
    world = world_for(method)
    return world, list(run(pipeline_of(method, *before), world, BUDGET, steps=steps, seed=3))


def draft_after(method: Method, *before: Method) -> tuple[object, Draft]:
    """A state with some evidence, and a draft whose rollouts came back."""
    _, steps = history(method, 3, *before)
    states, done = steps[-1]
    available = np.ones(24, bool)
    rollouts = done.rollouts
    draft = Draft(4, BUDGET, available, done.prompts, fresh=done.prompts, plan=done.plan, rollouts=rollouts)
    return states[method.name], draft


def rng(verb: str = "test") -> np.random.Generator:
    return generator(5, 4, 0, verb, "contract")


def variations(cls: type[Method]) -> list[Method]:
    """The method once with each setting changed, where a changed value can be guessed from its type."""
    hints, out = get_type_hints(cls), []
    for f in fields(cls):
        hint, default = hints[f.name], f.default
        options = get_args(hint) if get_origin(hint) in (types.UnionType,) else (hint,)
        if isinstance(default, bool):
            other = not default
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


# construction


@every_method
def test_defaults_make_a_frozen_record(slug: str) -> None:
    method = METHODS[slug]()
    assert method == METHODS[slug]()
    for f in fields(method):
        with pytest.raises(FrozenInstanceError):
            setattr(method, f.name, f.default)
    assert method.settings == {}


@every_method
def test_pickles(slug: str) -> None:
    for method in [METHODS[slug](), *variations(METHODS[slug])]:
        assert pickle.loads(pickle.dumps(method)) == method


@every_method
def test_settings_rebuild_the_method(slug: str) -> None:
    for method in variations(METHODS[slug]):
        assert len(method.settings) == 1
        assert catalog.make(slug, **method.settings) == method


@every_method
def test_repr_rebuilds_the_method(slug: str) -> None:
    for method in [METHODS[slug](), *variations(METHODS[slug])]:
        assert catalog.read(ast.parse(repr(method), mode="eval").body) == method


@every_method
def test_card_is_complete(slug: str) -> None:
    card: Card = METHODS[slug].card
    module = __import__(METHODS[slug].__module__, fromlist=["CARD"])
    assert module.CARD is card
    assert card.slug == slug == METHODS[slug].__module__.rsplit(".", 1)[-1]
    assert card.source in ("code", "C*", "paper", "notes", "ours")
    assert card.title
    assert card.watch
    if card.source != "ours":
        # a paper whose number is not known is found by its code
        assert [len(p) for p in card.arxiv.split(".")] == [4, 5] or (not card.arxiv and card.code), card.arxiv
        published = card.source in ("code", "C*")  # what is known from a paper alone may have no code to point at
        assert card.code.startswith("https://") or (not card.code and not published)
    assert isinstance(card.deviations, tuple)


@every_method
def test_acts_somewhere_and_only_at_known_verbs(slug: str) -> None:
    method = METHODS[slug]()
    assert method.verbs
    own = {n for n in vars(METHODS[slug]) if not n.startswith("_")} - {f.name for f in fields(method)}
    assert own - set(VERBS) <= {
        "card",
        "needs",
        "init",
        "observe",
        "reveal",
        "checkpoint",
        "belief",
        "overlaps",
        "hinting",
        "across",
        "anew",
        "splits",
        "rooting",
        "verbs",
    }


@acting("amend")
def test_a_method_that_takes_a_share_of_an_ask_says_so(slug: str) -> None:
    method, texts = METHODS[slug](), np.full(24, "one two three\nfour", dtype=object)
    pool = replace(pool_of(24), extra={"reference": texts, "strategies": texts})
    draft = Draft(1, Budget(prompts=1, rollouts=8), np.ones(24, bool), np.zeros(1, np.int64))
    plan = method.amend(method.init(pool), Plan([0], [8]), draft, rng())
    assert method.splits == bool((plan.leaves[plan.plain] < 8).any() or not plan.plain.any())


# state


@every_method
def test_observe_is_pure(slug: str) -> None:
    method = METHODS[slug]()
    world, steps = history(method)
    state = method.init(world.pool)
    for _, done in steps:
        before, seen = copy.deepcopy(state), pickle.loads(pickle.dumps(done.rollouts.reward))
        after = method.observe(state, done)
        assert equal(state, before)
        assert equal(done.rollouts.reward, seen)
        state = after


@every_method
@pytest.mark.parametrize("uneven", [False, True])
def test_folding_equals_running(slug: str, uneven: bool) -> None:
    method = METHODS[slug]()
    before = (Uneven(),) if uneven else ()
    world, steps = history(method, 6, *before)
    pipeline = pipeline_of(method, *before)
    for t in (0, 3, 5):
        folded = pipeline.fold(world.pool, [done for _, done in steps[: t + 1]])
        assert equal(folded, steps[t][0])


@every_method
def test_variations_fold_too(slug: str) -> None:
    for method in variations(METHODS[slug]):
        try:
            world, steps = history(method, 3)
        except ValueError as error:  # a setting may ask for columns that are not there, or for an error
            assert len(str(error)) > 30
            continue
        assert equal(pipeline_of(method).fold(world.pool, [done for _, done in steps]), steps[-1][0])


@every_method
def test_states_pickle(slug: str) -> None:
    method = METHODS[slug]()
    _, steps = history(method)
    state = steps[-1][0][slug]
    assert equal(pickle.loads(pickle.dumps(state)), state)


@every_method
def test_no_evidence_is_no_error(slug: str) -> None:
    method = METHODS[slug]()
    world, steps = history(method)
    state = method.observe(method.init(world.pool), barren(steps[0][1]))
    check_columns(method.reveal(state), len(world.pool))


def check_columns(columns: dict, n: int) -> None:
    for name, column in columns.items():
        assert column.shape == (n,), name
        assert np.isfinite(column).all(), name
    if columns:
        assert {"mean", "low", "high"} <= set(columns)
        assert (columns["low"] >= 0).all()
        assert (columns["low"] <= columns["mean"] + 1e-12).all()
        assert (columns["mean"] <= columns["high"] + 1e-12).all()
        assert (columns["high"] <= 1).all()


@every_method
def test_reveal_gives_a_column_per_prompt(slug: str) -> None:
    method = METHODS[slug]()
    world, steps = history(method)
    check_columns(method.reveal(method.init(world.pool)), len(world.pool))
    for states, _ in steps:
        check_columns(method.reveal(states[slug]), len(world.pool))


@every_method
def test_one_prompt_is_a_pool(slug: str) -> None:
    method = METHODS[slug]()
    world = ScriptedWorld(1, method.needs, null=0)
    states, done = advance(
        pipeline_of(method), pipeline_of(method).init(world.pool), world, Budget(prompts=1, rollouts=4), step=1
    )
    assert done.prompts.tolist() == [0]
    check_columns(method.reveal(states[slug]), 1)


# verbs


def calls(method: Method) -> dict[str, tuple[type, tuple]]:
    """verb -> (what it must return, its arguments but the generator)."""
    state, draft = draft_after(method)
    wanting = draft.with_(prompts=draft.prompts[:0], wanted=5, rollouts=None, plan=None)
    plan = Plan(draft.fresh, np.full(len(draft.fresh), 4))
    return {
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


WITHOUT_RNG = ("more", "reward", "admit")


def call(method: Method, verb: str, arguments: tuple) -> object:
    return getattr(method, verb)(*arguments, *([] if verb in WITHOUT_RNG else [rng(verb)]))


@every_method
def test_verbs_return_what_they_declare_and_change_nothing(slug: str) -> None:
    method = METHODS[slug]()
    for verb, (kind, arguments) in calls(method).items():
        if verb not in method.verbs:
            continue
        before = copy.deepcopy([vars_of(a) for a in arguments])
        result = call(method, verb, arguments)
        assert isinstance(result, kind), f"{verb} returned {type(result).__name__}"
        assert equal([vars_of(a) for a in arguments], before), f"{verb} changed what it was given"


def vars_of(thing: object) -> object:
    """A record as a plain mapping, so that read-only columns can be copied."""
    if isinstance(thing, Draft | Plan | Rollouts | Advantage | Frontier):
        return {name: vars_of(value) for name, value in vars(thing).items()}
    return dict(thing) if isinstance(thing, types.MappingProxyType) else thing


@every_method
def test_the_generator_alone_decides(slug: str) -> None:
    method = METHODS[slug]()
    for verb, (_, arguments) in calls(method).items():
        if verb in method.verbs:
            assert equal(call(method, verb, arguments), call(method, verb, arguments)), verb


@acting("select")
@pytest.mark.parametrize("wanted", [0, 1, 5, 24, 100])
@pytest.mark.parametrize("free", [1, 10, 24])
def test_select_takes_distinct_candidates(slug: str, wanted: int, free: int) -> None:
    method = METHODS[slug]()
    state, draft = draft_after(method)
    available = np.arange(24) >= 24 - free
    draft = draft.with_(available=available, prompts=np.array([23]), wanted=wanted, rollouts=None, plan=None)
    rows, why = method.select(state, draft, rng())
    assert np.issubdtype(rows.dtype, np.integer)
    assert len(np.unique(rows)) == len(rows) <= wanted
    assert np.isin(rows, draft.candidates()).all()
    assert all(len(figure) == len(rows) for figure in why.values())


@acting("select")
def test_select_says_by_what_it_chose(slug: str) -> None:
    method = METHODS[slug]()
    state, draft = draft_after(method)
    why = method.select(state, draft.with_(prompts=draft.prompts[:0], wanted=4, rollouts=None, plan=None), rng()).why
    assert why
    assert all(np.isfinite(figure).all() for figure in why.values())


@acting("allocate")
@pytest.mark.parametrize(("prompts", "rollouts"), [(6, 24), (6, 25), (6, 6), (1, 3), (24, 100)])
def test_allocate_spends_the_budget_exactly(slug: str, prompts: int, rollouts: int) -> None:
    method = METHODS[slug]()
    state, draft = draft_after(method)
    fresh = np.arange(prompts)
    draft = draft.with_(budget=Budget(prompts=prompts, rollouts=rollouts), prompts=fresh, fresh=fresh)
    plans = rounds_of(method, state, draft.with_(rollouts=None, plan=None))
    assert np.isin(np.concatenate([plan.prompt for plan in plans]), fresh).all()
    asked = sum(plan.n_rollouts for plan in plans)
    assert asked == rollouts or (method.card.unspent and 0 < asked < rollouts)


def rounds_of(method: Method, state: object, draft: Draft) -> list[Plan]:
    """What a method asks for, round after round, until it wants nothing more."""
    world, plans, parts = ScriptedWorld(), [], []
    while (plan := method.allocate(state, draft, rng())).n_rollouts:
        plan = replace(plan, ordinal=np.full(len(plan), 100 * draft.round), step=draft.step)
        plans.append(plan)
        parts.append(world.sample(plan))
        draft = draft.with_(
            fresh=draft.fresh[:0], round=draft.round + 1, plan=Plan.concat(plans), rollouts=join(parts, plans)
        )
        assert draft.round < 64
    return plans


@acting("allocate")
def test_allocate_of_nothing_is_nothing(slug: str) -> None:
    method = METHODS[slug]()
    state, draft = draft_after(method)
    assert method.allocate(state, draft.with_(fresh=np.empty(0, np.int64), round=1), rng()).n_rollouts == 0


@acting("amend")
def test_amend_keeps_the_prompts(slug: str) -> None:
    method = METHODS[slug]()
    state, draft = draft_after(method)
    plan = Plan(draft.fresh, np.arange(len(draft.fresh)))
    amended = method.amend(state, plan, draft.with_(plan=None, rollouts=None), rng())
    resumed = np.array([isinstance(s, Resume) for s in amended.start], bool)  # those were chosen in an earlier step
    assert set(amended.prompt[~resumed].tolist()) <= set(plan.prompt.tolist())


# estimate


def estimated(method: Method, draft: Draft) -> Advantage:
    """What the pipeline with this method makes of a draft."""
    advantage = Advantage.start(draft.rollouts)
    world = world_for(method)
    for m in pipeline_of(method).actors("estimate"):
        advantage = m.estimate(m.init(world.pool), advantage, draft, rng())
    return advantage


@acting("estimate")
def test_an_estimate_is_anew_where_it_says_so(slug: str) -> None:
    """Two different advantages before it: an estimate that starts anew makes the same of both."""
    method, draft = METHODS[slug](), draft_after(pipeline_of(METHODS[slug]()).methods[1])[1]
    start, state = Advantage.start(draft.rollouts), method.init(world_for(method).pool)
    assert start.keep.sum() > 8
    values = np.random.default_rng(0).standard_normal((2, len(start.keep))) * start.keep
    first, second = (method.estimate(state, replace(start, value=value), draft, rng()) for value in values)
    assert (equal(first.value, second.value) and equal(first.tokens, second.tokens)) == method.anew


def uneven_draft(method: Method) -> Draft:
    """Groups of 1 to 4 rollouts where the method does not say otherwise; every fifth reward is null."""
    draft = draft_after(method, *([] if "allocate" in method.verbs else [Uneven()]))[1]
    failed = np.arange(len(draft.rollouts)) % 5 == 4
    null = {name: np.where(failed, np.nan, getattr(draft.rollouts, name)) for name in ("reward", "correct")}
    return draft.with_(rollouts=draft.rollouts.with_(**null))


@acting("estimate")
def test_advantages_are_finite_and_nulls_stay_out(slug: str) -> None:
    method = METHODS[slug]()
    draft = uneven_draft(method)
    got = estimated(method, draft)
    r = len(draft.rollouts)
    for name in ("value", "keep", "weight", "baseline", "reason"):
        assert getattr(got, name).shape == (r,), name
    assert got.keep.dtype == bool
    assert np.isfinite(got.value).all()
    null = ~np.isfinite(draft.rollouts.reward)
    assert null.any()
    assert not got.keep[null].any()
    assert (got.value[null] == 0).all()
    assert (got.reason[null] == "null_reward").all()
    assert ((got.reason == "") == got.keep).all()


@acting("estimate")
def test_settled_groups_get_zeros(slug: str) -> None:
    method = METHODS[slug]()
    draft = uneven_draft(method)
    same = np.where(np.isfinite(draft.rollouts.reward), 0.1, np.nan)
    alike = draft.rollouts.with_(reward=same, rewards=dict.fromkeys(draft.rollouts.rewards, same))
    assert (estimated(method, draft.with_(rollouts=alike)).value == 0).all()


@acting("estimate")
def test_permuting_rollouts_permutes_advantages(slug: str) -> None:
    """Up to which of several equal rollouts of a group is meant."""
    method = METHODS[slug]()
    draft = uneven_draft(method)
    order = np.random.default_rng(1).permutation(len(draft.rollouts))
    one, two = estimated(method, draft), estimated(method, draft.with_(rollouts=draft.rollouts.take(order)))

    def rows(rollouts: Rollouts, advantage: Advantage) -> list[tuple]:
        columns = (rollouts.group, np.nan_to_num(rollouts.reward, nan=-1), advantage.value, advantage.keep)
        return sorted(zip(*(np.round(np.asarray(c, float), 9).tolist() for c in columns), strict=True))

    assert rows(draft.rollouts, one) == rows(draft.rollouts.take(order), two)


@acting("estimate")
def test_no_rollouts_are_no_error(slug: str) -> None:
    method = METHODS[slug]()
    draft = uneven_draft(method)
    none = draft.with_(rollouts=draft.rollouts.take(np.empty(0, np.int64)), fresh=draft.fresh[:0])
    assert len(estimated(method, none).value) == 0


# runs


@every_method
def test_every_rollout_has_one_fate(slug: str) -> None:
    _, steps = history(METHODS[slug](), 4, Uneven())
    for _, done in steps:
        r = done.rollouts
        assert len(np.unique(r.id)) == len(r)
        assert len(done.fate) == len(r)
        assert (r.ask >= 0).sum() == done.plan.n.sum()  # the others are replayed, or came from elsewhere
        assert ((done.fate == "trained") == (done.advantage.keep & (r.failure == ""))).all()
        assert ((done.fate == "failed") == (r.failure != "")).all()


@every_method
def test_same_seed_same_run(slug: str) -> None:
    one, two = history(METHODS[slug]())[1], history(METHODS[slug]())[1]
    for (_, a), (_, b) in zip(one, two, strict=True):
        assert equal(a.rollouts, b.rollouts)
        assert equal(a.advantage, b.advantage)


@every_method
def test_a_run_can_change_to_the_method_at_any_step(slug: str) -> None:
    method = METHODS[slug]()
    first = pipeline_of(Uneven())
    world = world_for(method)
    done = [step for _, step in run(first, world, BUDGET, steps=3)]
    second = pipeline_of(method)
    states = second.fold(world.pool, done)
    later = list(run(second, world, BUDGET, steps=2, start=4, states=states))
    states, done = later[-1][0], done + [step for _, step in later]
    assert [s.step for s in done] == [1, 2, 3, 4, 5]
    assert equal(second.fold(world.pool, done), states)
    back = first.fold(world.pool, done)
    assert isinstance(next(run(first, world, BUDGET, steps=1, start=6, states=back))[1], Step)


@every_method
def test_every_round_stays_within_the_pool(slug: str) -> None:
    """A pool smaller than the batch: everything is asked once, and the step ends."""
    method = METHODS[slug]()
    world = ScriptedWorld(4, method.needs, null=0)
    pipeline = pipeline_of(method)
    _, done = advance(pipeline, pipeline.init(world.pool), world, Budget(prompts=6, rollouts=24), step=1)
    assert sorted(done.prompts.tolist()) == [0, 1, 2, 3]


# growing rollouts


ELSEWHERE = Checkpoint(every=7)


def frontier(b: int) -> Frontier:
    lengths = 1 + np.arange(b) % 5
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    noise = np.random.default_rng(b).random(int(offsets[-1])).astype(np.float32)
    index = np.arange(b)
    top = np.log(np.random.default_rng(b).dirichlet(np.ones(12), b)).astype(np.float32)
    return Frontier(
        prompt=index // 4 % 24,
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


@pytest.mark.parametrize(
    ("slug", "verb"), [(s, v) for s, cls in METHODS.items() for v in ("branch", "prune") if v in cls().verbs]
)
def test_a_method_is_heard_where_rollouts_paused_for_it(slug: str, verb: str) -> None:
    method = METHODS[slug]()
    b, act = 40, partial(getattr(method, verb), method.init(pool_of(24)))
    shown, due = frontier(b), np.arange(b) % 3 == 0
    looks = {method.checkpoint: Look(due, np.where(due, "x", "").astype(object)), ELSEWHERE: Look(~due, shown.tail)}
    hook = {"branch": branch_of, "prune": prune_of}[verb]([Asked(method.checkpoint, lambda f: act(f, rng()))])
    answer = hook(replace(shown, looks=looks))
    assert (answer.width[~due] == 1).all()
    for column in answer.memory.values():
        assert [value is None for value in column] == (~due).tolist()
    for column in answer.why.values():
        assert np.isnan(column[~due]).all()
    silent = hook(replace(shown, looks={**looks, method.checkpoint: Look(due & False, shown.tail)}))
    assert (silent.width == 1).all()
    assert not silent.memory


@acting("branch")
@pytest.mark.parametrize("b", [0, 1, 10_000])
def test_branch_answers_every_frontier(slug: str, b: int) -> None:
    method = METHODS[slug]()
    fork = method.branch(method.init(pool_of(24)), frontier(b), rng())
    assert fork.width.shape == fork.at.shape == fork.token.shape[:1] == (b,)
    assert (fork.width >= 0).all()
    assert all(len(column) == b for column in (*fork.why.values(), *fork.memory.values()))


@acting("prune")
@pytest.mark.parametrize("b", [0, 1, 10_000])
def test_prune_answers_every_frontier(slug: str, b: int) -> None:
    method = METHODS[slug]()
    cut = method.prune(method.init(pool_of(24)), frontier(b), rng())
    assert cut.width.shape == cut.reason.shape == cut.propensity.shape == (b,)
    assert np.isin(cut.width, (0, 1)).all()
    assert ((cut.propensity > 0) & (cut.propensity <= 1)).all()
    assert ((cut.reason == "") == (cut.width == 1)).all()
    assert cut.finish is None or np.isin(cut.finish[cut.width == 0], ("pruned", "aborted", "stop", "carried")).all()
    assert all(len(column) == b for column in cut.memory.values())


# objective


def objective(verb: str) -> pytest.MarkDecorator:
    cases = [
        pytest.param(method, id=f"{slug}-{'-'.join(map(str, method.settings.values())) or 'default'}")
        for slug, cls in METHODS.items()
        for method in [cls(), *variations(cls)]
        if verb in method.verbs
    ]
    return pytest.mark.parametrize("method", cases)


def check_objective(method: Method, verb: str) -> None:
    """Finite terms and gradients; masked positions, which may hold anything, and fully masked rows get none."""
    import torch

    torch.manual_seed(0)
    b, t = 5, 7
    mask = torch.ones(b, t)
    mask[1, 3:] = 0
    mask[4] = 0
    logp = -torch.rand(b, t)
    logp[mask == 0] = -torch.inf
    logp[0, 0] = -60.0  # a token that has become all but impossible
    logp.requires_grad_()
    entropy = torch.rand(b, t, requires_grad=True)
    proximal, behaviour = -torch.rand(b, t), -torch.rand(b, t)
    proximal[mask == 0] = behaviour[mask == 0] = -torch.inf
    batch = Batch(
        logp=logp,
        behaviour=behaviour,
        proximal=proximal,
        advantage=torch.randn(b, 1).expand(b, t),
        mask=mask,
        entropy=entropy,
        row=torch.arange(b),
        extra={
            "teacher_logp": -3 * torch.rand(b, t),
            "plain_logp": logp - torch.rand(b, t),
            "student_topk_logp": (logp.clamp(min=-9)[..., None] - torch.rand(b, t, 3)).log_softmax(-1),
            "teacher_topk_logp": torch.rand(b, t, 3).log_softmax(-1),
        },
    )
    loss = getattr(method, verb)(method.init(pool_of(24)), batch)
    assert isinstance(loss, Loss)
    assert loss.term.shape == (b, t)
    assert loss.reduction in ("token_mean", "seq_mean", "const_len")
    assert torch.isfinite(loss.term).all()
    weight = mask if loss.weight is None else mask * loss.weight
    (loss.term * weight).sum().backward()
    for column in (logp, entropy):
        if column.grad is not None:
            assert torch.isfinite(column.grad).all()
            assert (column.grad[mask == 0] == 0).all()
    for name, value in loss.stats.items():
        assert torch.isfinite(value[mask > 0] if value.ndim else value).all(), name
        assert not value.requires_grad, name


@objective("loss")
def test_loss_has_finite_gradients(method: Method) -> None:
    check_objective(method, "loss")


@objective("loss")
def test_a_hint_in_front_changes_nothing_at_sampled_tokens(method: Method) -> None:
    """Its tokens have the policy's own log-probability for that of a sampler: a ratio of 1, and no say in that of others."""
    import torch

    torch.manual_seed(1)
    b, t, k = 4, 6, 3
    hint, own = (
        {name: -torch.rand(b, n) for name in ("logp", "behaviour", "proximal", "teacher_logp")} for n in (k, t)
    )
    hint = hint | {"behaviour": hint["logp"], "proximal": hint["logp"]}
    a = torch.randn(b, 1)

    def terms(columns: dict, role: torch.Tensor) -> torch.Tensor:
        batch = Batch(
            logp=columns["logp"],
            behaviour=columns["behaviour"],
            proximal=columns["proximal"],
            advantage=a.expand(role.shape),
            mask=torch.ones_like(role),
            entropy=torch.ones_like(role),
            row=torch.arange(b),
            extra={"teacher_logp": columns["teacher_logp"], "role": role},
        )
        return method.loss(method.init(pool_of(24)), batch).term

    alone = terms(own, torch.zeros(b, t))
    both = {name: torch.cat([hint[name], own[name]], 1) for name in own}
    behind = terms(both, torch.cat([torch.ones(b, k), torch.zeros(b, t)], 1))
    torch.testing.assert_close(behind[:, k:], alone)


@objective("penalty")
def test_penalty_has_finite_gradients(method: Method) -> None:
    check_objective(method, "penalty")
