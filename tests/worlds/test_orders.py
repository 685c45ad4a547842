"""Methods that change what is asked, two by two in both orders: each does what it does alone, within what was allocated, or
the pipeline is refused with an order in which it does."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from workbench.methods.duet import Duet
from workbench.methods.grpo import Grpo
from workbench.methods.trace import Trace
from workbench.pipeline import Pipeline, catalog, run
from workbench.stages import Method, Only
from workbench.types import Budget, Node, Ragged, Step
from workbench.worlds.live.world import LiveWorld

from .conftest import pool_of, toy_model, toy_tokenizer
from .test_equivalence import ACTIVE, Ones

BUDGET = Budget(prompts=3, rollouts=24)
AMENDING = {
    "adhint": "adhint",
    "april": "april(every=1, share=0.3)",
    "branchgrpo": "branchgrpo(every=2)",
    "echo": ACTIVE["echo"],
    "ettrl": ACTIVE["ettrl"],
    "latr": ACTIVE["latr"],
    "mc_grpo": "mc_grpo",
    "nudgerl": "nudgerl",
    "probe_set": "probe_set(prompts=2, rollouts=4)",
    "sage_hint": "sage_hint",
    "sage_hint light": "sage_hint(mode='code', up_at=0.9)",
    "scope": "scope(threshold=0.5)",
    "trace": "Only(trace(continuations=2, every=1, boundaries=()), 'amend', 'estimate')",
}
TOGETHER = ("both show hints", "stands in the pipeline more than once", "keep one of them")
"""What is said of methods that go in no order."""

ON_TOP = {"mc_grpo", "sage_hint", "scope"}
"""A pivot, a pass for each level, a repair for each failure: more than was allocated, as in their papers."""


class JudgedOnes(Ones):
    """Right with a "1"; every character is a step, some of them wrong."""

    offers = frozenset({"prm"})

    def score(self, rollouts, pool):
        """Rewards and judged steps."""
        rows = super().score(rollouts, pool)
        scores = Ragged.of([[0.1 if c in "ce" else 0.9 for c in t] for t in rows.text], float)
        lengths = Ragged.of([[1] * len(t) for t in rows.text], np.int64)
        return rows.with_(extra={**rows.extra, "step_scores": scores, "step_lengths": lengths})


def steps_of(text: str | Pipeline, *, steps: int = 2, words: int = 5) -> list[Step]:
    """Steps of toy rollouts of at most 20 tokens; references of so many words and two strategies for all prompts."""
    return [step for _, step in run(Pipeline.parse(text), _world(words), BUDGET, steps=steps, seed=4)]


def _world(words: int = 5) -> LiveWorld:
    told = {"reference": " ".join("1a2bc"[:words]), "strategies": "add\ncount"}
    pool = pool_of(range(2, 14))
    pool = replace(pool, extra={name: np.full(len(pool), text, object) for name, text in told.items()})
    task = JudgedOnes(pool, pool_of(range(50, 53)))
    world = LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=0.0, max_tokens=20)
    world.offers |= {"embedding"}
    return world


def acts(steps: list[Step]) -> Counter[str]:
    """Rollouts by what made them different; "allocated" are all for training that came of what was asked."""
    found: Counter[str] = Counter()
    for step in steps:
        r, plan = step.rollouts, step.plan
        inside = np.array([isinstance(s, Node) for s in plan.start], bool)[r.ask]
        flip = np.isfinite(plan.why.get("flip", np.full(len(plan), np.nan)))[r.ask]
        kinds = np.array([c.partition(":")[0] for c in r.context])
        found.update(kinds[kinds != ""].tolist())
        found["carried"] += int((r.finish == "carried").sum())
        found["probe"] += int((r.purpose == "probe").sum())
        found["continued"] += int(flip.sum())
        found["inner fork"] += int((inside & ~flip & (kinds == "")).sum())
        found["fork"] += int(((r.parent != "") & ~inside).sum())
        found["allocated"] += int(((r.purpose == "train") & (r.finish != "pruned") & (r.step == step.step)).sum())
    return +found


@cache
def alone(slug: str) -> Counter[str]:
    return acts(steps_of(f"grpo, {AMENDING[slug]}"))


def test_every_method_that_amends_is_named_here_and_does_something():
    assert {s for s, cls in catalog.methods().items() if hasattr(cls, "amend")} == {s.split()[0] for s in AMENDING}
    for slug in AMENDING:
        assert len(alone(slug)) > 1 or slug in (
            "mc_grpo",
            "sage_hint light",
        )  # a pivot more; a level for prompts seen before


@pytest.mark.parametrize("first", AMENDING)
def test_two_methods_do_what_each_does_alone_or_are_refused_with_the_order_in_which_they_do(first):
    for second in AMENDING:
        if first == second:
            continue
        text = f"grpo, {AMENDING[first]}, {AMENDING[second]}"
        try:
            pipeline = Pipeline.parse(text)
        except ValueError as error:
            if not any(what in str(error) for what in TOGETHER):
                order = re.search(r"write (Pipeline\(.*\))$", str(error))
                assert [m.name for m in Pipeline.parse(order[1]).chosen] == [
                    "grpo",
                    second.split()[0],
                    first.split()[0],
                ]
            continue
        made = acts(steps_of(pipeline))
        missing = (set(alone(first)) | set(alone(second))) - set(made)
        if (first, second) == ("ettrl", "sage_hint"):
            missing -= {"sage"}  # with their continuations all groups have a success
        assert not missing, f"{text}: nothing is {missing}"
        if not {first, second} & ON_TOP:
            assert made["allocated"] <= 2 * BUDGET.rollouts, text
        assert made["allocated"] >= 0.7 * min(alone(first)["allocated"], alone(second)["allocated"]), text


def test_orders_that_are_proposed_hold_for_more_than_two():
    for methods in permutations(["latr", "ettrl", "trace(continuations=2)", "adhint", "mc_grpo"]):
        text = "grpo, " + ", ".join(methods)
        for _ in range(3):
            try:
                found = Pipeline.parse(text)
                break
            except ValueError as error:
                text = re.search(r"write (Pipeline\(.*\))$", str(error))[1]
        assert {m.name for m in found.chosen} == {"grpo", "latr", "ettrl", "trace", "adhint", "mc_grpo"}


@pytest.mark.parametrize("words", [0, 1, 2])
def test_a_reference_too_short_to_be_shown_leaves_its_group_whole(words):
    for step in steps_of("grpo, adhint", words=words):
        r = step.rollouts
        for p in step.prompts:
            mine = r.prompt == p
            solved = (r.correct[mine & (r.context == "")] == 1)[:4].all()
            assert mine.sum() == (4 if words == 2 and solved else 8)
            if words < 2:
                assert (r.context[mine] == "").all()


@pytest.mark.parametrize("slug", [s for s in AMENDING if s not in ON_TOP])
def test_who_allocates_in_several_rounds_counts_what_waits_and_what_grew(slug):
    for step in steps_of(f"grpo, xrpo, {AMENDING[slug]}"):
        assert 20 <= acts([step])["allocated"] <= 24


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_continuations_of_hinted_rollouts_are_no_plain_ones(order):
    both = AMENDING["trace"], AMENDING["sage_hint light"]
    made = steps_of(f"grpo, {both[order[0]]}, {both[order[1]]}", steps=10)
    assert acts(made)["sage"] and acts(made)["continued"]
    for step in made:
        r, place = step.rollouts, {i: k for k, i in enumerate(step.rollouts.id)}
        for k in np.flatnonzero(r.parent != ""):
            assert r.context[k] == r.context[place[r.parent[k]]]
        assert acts([step])["allocated"] >= 16


def test_where_a_rollout_has_no_place_to_go_on_from_the_group_is_asked_plainly():
    nowhere = Only(Trace(continuations=2, boundaries=("~",)), "amend", "branch", "estimate")
    for step in steps_of(Pipeline(Grpo(), nowhere)):
        assert np.bincount(step.rollouts.prompt)[step.prompts].tolist() == [8, 8, 8]
        assert (step.rollouts.parent == "").all()


def test_what_a_spent_budget_leaves_unasked_is_told():
    pipeline, budget = Pipeline.parse("grpo, adhint"), replace(BUDGET, tokens=1)
    _, step = next(run(pipeline, _world(), budget, steps=1, seed=4))
    assert [e.message for e in step.events] == ["12 rollouts were put off, but the step's budget is spent"]


ROOTS = {2: 2, 3: 2, 4: 2, 6: 2, 7: 3, 8: 3, 9: 3}


@pytest.mark.parametrize("asked", ROOTS)
def test_continuations_come_out_of_what_a_prompt_was_allocated(asked):
    inside = Only(Trace(continuations=2, every=1, boundaries=()), "amend", "estimate")
    plan = _first_plan(Pipeline(Grpo(), inside), asked)
    assert plan.n.tolist() == [ROOTS[asked]] * 3
    assert plan.deferred["trace"].tolist() == [asked - ROOTS[asked]] * 3


@pytest.mark.parametrize("rollouts", [24, 25, 26, 48])
def test_trace_allocates_its_continuations_too(rollouts):
    plan = _first_plan(Pipeline(Grpo(), Trace(continuations=2, every=1, boundaries=())), rollouts / 3)
    assert plan.n_rollouts + int(plan.deferred["trace"].sum()) == rollouts
    assert (plan.deferred["trace"] <= 2 * plan.n).all()


def test_a_prompt_is_continued_within_what_duet_gave_it():
    inside: list[Method] = [Only(Trace(continuations=2, every=1, boundaries=()), "amend", "estimate")]
    continued = 0
    for step in steps_of(Pipeline(Grpo(), *inside, Duet(budget=0.5, length=4.0))):
        given = step.plan.n + step.plan.deferred["trace"]
        first = step.plan.round == 0
        assert given[first].sum() == 12
        for p, n in zip(step.plan.prompt[first], given[first], strict=True):
            assert (step.rollouts.prompt == p).sum() <= n
        continued += int(step.plan.n[~first].sum())
    assert continued > 2


def _first_plan(pipeline: Pipeline, asked: float):
    from workbench.pipeline import rehearse

    pool = pool_of(range(2, 14))
    budget = Budget(prompts=3, rollouts=round(3 * asked))
    return rehearse(pipeline, pipeline.init(pool), budget, step=1, available=np.ones(len(pool), bool))
