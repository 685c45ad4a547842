"""Second passes behind hints: plain evidence stays plain, groups keep their size, what is asked follows the rewards."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.estimates import group_after_repair
from workbench.methods import adhint, nudgerl
from workbench.methods.adhint import Adhint
from workbench.methods.echo import Echo
from workbench.methods.ettrl import Ettrl
from workbench.methods.grpo import Grpo
from workbench.methods.nudgerl import Nudgerl
from workbench.methods.sage_hint import SageHint
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld
from workbench.types import Budget, Draft, Plan, Rollouts

BUDGET = Budget(prompts=6, rollouts=48)
rewards = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=12)


def world(**options: float) -> ScriptedWorld:
    """Prompt i of 24 succeeds at rate i / 23 and has a reference of ten words, but every fourth has none."""
    made = ScriptedWorld(24, frozenset({"plain_logp", "hint_tokens", "token_entropy"}), **options)
    some = np.array(["" if i % 4 == 3 else " ".join(f"w{k}" for k in range(10)) for i in range(24)], dtype=object)
    plans = np.empty(24, dtype=object)
    for i in range(24):
        plans[i] = () if i % 4 == 3 else ("count up", "work backwards", "guess")
    made.pool = replace(made.pool, extra={"reference": some, "strategies": plans})
    return made


def steps_of(method: object, steps: int = 6, **options: float) -> list:
    return list(run(Pipeline(Grpo(), method), world(**options), BUDGET, steps=steps, seed=1))


@pytest.mark.parametrize("method", [Adhint(), Nudgerl(), SageHint(), SageHint(mode="paper"), SageHint(mode="code")])
def test_a_pool_without_the_column_is_refused_and_named(method: object) -> None:
    with pytest.raises(ValueError, match=r"needs .*(reference|strategies).*extra columns of its pool: none"):
        Pipeline(Grpo(), method).check(ScriptedWorld(6))


@pytest.mark.parametrize("method", [Adhint(), Nudgerl(), SageHint(), SageHint(mode="paper"), SageHint(mode="code")])
def test_hinted_rollouts_are_no_evidence_and_prompts_without_hints_are_left_alone(method: object) -> None:
    hinted = 0
    for _, step in steps_of(method, steps=14):
        r = step.rollouts
        rows, _, tried = step.evidence(24)
        plain = (r.context == "") & np.isfinite(r.correct) & (r.ask >= 0)
        assert tried.sum() == plain.sum()
        assert set(rows) == set(r.prompt[plain])
        assert not (r.prompt[r.context != ""] % 4 == 3).any()
        hinted += int((r.context != "").sum())
    assert hinted > 0


def test_adhint_asks_half_of_the_group_behind_a_hint_where_the_plain_half_failed_somewhere() -> None:
    for _, step in steps_of(Adhint(), null=0.0):
        r = step.rollouts
        for p in step.prompts:
            plain, helped = (r.prompt == p) & (r.context == ""), (r.prompt == p) & (r.context != "")
            if p % 4 == 3:
                assert (plain.sum(), helped.sum()) == (8, 0)
            elif np.clip(r.reward[plain], 0, 1).mean() == 1:
                assert (plain.sum(), helped.sum()) == (4, 0)
            else:
                difficulty = 1 - np.clip(r.reward[plain], 0, 1).mean()
                assert (plain.sum(), helped.sum()) == (4, 4)
                assert set(r.context[helped]) == {f"adhint:{int((0.1 + 0.8 * difficulty) * 10 + 1e-9)}"}


def test_nudgerl_spends_exactly_what_was_allocated() -> None:
    for _, step in steps_of(Nudgerl()):
        counts = np.bincount(step.rollouts.prompt, minlength=24)
        assert counts[step.prompts].tolist() == [8] * 6


def test_nudgerl_with_every_hint_dropped_is_the_plain_group() -> None:
    plain = list(run(Pipeline(Grpo()), world(), BUDGET, steps=2, seed=1))
    nudged = list(run(Pipeline(Grpo(), Nudgerl(p_drop=1.0)), world(), BUDGET, steps=2, seed=1))
    for (_, a), (_, b) in zip(plain, nudged, strict=True):
        assert a.rollouts.id.tolist() == b.rollouts.id.tolist()
        assert a.advantage.value.tolist() == b.advantage.value.tolist()


def test_sage_climbs_until_a_success_and_trains_the_last_group_only() -> None:
    climbed = 0
    for _, step in steps_of(SageHint(), steps=8, null=0.0):
        r, keep = step.rollouts, step.advantage.keep
        for p in step.prompts:
            groups = [r.correct[(r.prompt == p) & (r.context == c)] for c in ("", "sage:1", "sage:2", "sage:3")]
            groups = [g for g in groups if len(g)]
            climbed += len(groups) - 1
            assert all(not (g > 0).any() for g in groups[:-1])
            kept = set(r.context[(r.prompt == p) & keep])
            assert kept == {"" if len(groups) == 1 else f"sage:{len(groups) - 1}"}
    assert climbed > 0


def test_sage_light_moves_levels_by_the_last_accuracy() -> None:
    # prompt 0 never succeeds: one level more at every visit, up to three
    states = [s["sage_hint"] for s, _ in steps_of(SageHint(mode="paper"), steps=40, null=0.0)]
    levels = [int(s.level[0]) for s in states]
    assert levels[-1] == 3
    assert all(b - a in (0, 1) for a, b in pairwise(levels))
    assert states[-1].level[23] == 0


@given(rewards, st.floats(0, 3))
def test_nudge_advantages_sum_to_zero_and_ignore_a_shift(group: list[float], lam: float) -> None:
    context = [("dropout", "h0", "h1")[i % 3] for i in range(len(group))]
    made = nudgerl.nudge_advantages(group, context, lam)
    shifted = nudgerl.nudge_advantages(np.array(group) + 4, context, lam)
    assert abs(made.advantages.sum()) < 1e-9
    assert np.allclose(made.advantages, shifted.advantages, atol=1e-7)


@given(rewards, rewards)
def test_adhint_never_turns_a_sign(naive: list[float], hinted: list[float]) -> None:
    value = adhint.difficulty_reweighted_advantages(naive, hinted).advantages
    everything = np.array(naive + hinted)
    centred = everything - everything.mean()
    assert np.all((value == 0) | (np.sign(value) == np.sign(centred)))


def test_a_hint_is_never_the_whole_reference() -> None:
    assert [adhint.hint_tokens(1.0, n) for n in (0, 1, 2, 10)] == [0, 0, 1, 9]


@given(rewards)
def test_a_failed_repair_changes_nothing(group: list[float]) -> None:
    made = group_after_repair(group, [0], [0.0])
    assert made.rewards.tolist() == group
    assert made.replaced == []


def test_hints_fold_from_recorded_steps() -> None:
    for method in (Adhint(), Nudgerl(), SageHint(), SageHint(mode="code")):
        pipeline = Pipeline(Grpo(), method)
        live = list(run(pipeline, world(), BUDGET, steps=5, seed=2))
        folded = pipeline.fold(world().pool, [step for _, step in live])[method.name]
        for a, b in zip(live[-1][0][method.name], folded, strict=True):
            assert np.array_equal(np.asarray(a, dtype=object), np.asarray(b, dtype=object)) or np.array_equal(
                np.asarray(a, float), np.asarray(b, float), equal_nan=True
            )


@pytest.mark.parametrize("forking", [Echo(), Ettrl()])
def test_what_waits_for_a_hint_is_told_apart_from_what_waits_for_forks(forking: Echo | Ettrl) -> None:
    pool, hints, rng = world().pool, Adhint(), np.random.default_rng(0)
    draft = Draft(1, BUDGET, np.ones(24, bool), np.zeros(1, np.int64))
    first = forking.amend((), hints.amend(hints.init(pool), Plan([0], [8]), draft, rng), draft, rng)
    made = Rollouts.of_plan(first, pool, 0)
    draft = draft.with_(round=1, plan=first, rollouts=made.with_(reward=np.zeros(len(made))))
    none = np.empty(0, np.int64)
    second = hints.amend(hints.init(pool), Plan(none, none), draft, rng)
    assert (second.n.tolist(), second.context.tolist()) == ([4], ["adhint:9"])
    assert forking.amend((), second, draft, rng).n.sum() <= 8 - len(made)
