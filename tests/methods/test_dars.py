from fractions import Fraction
from math import ceil, isqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.estimates import pooled_advantages
from workbench.methods.dapo_dynamic_sampling import DapoDynamicSampling
from workbench.methods.dars import Dars, allocation
from workbench.methods.grpo import Grpo
from workbench.methods.mc_grpo import McGrpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, draft_of, rollouts_of
from workbench.types import Advantage, Budget
from workbench.worlds.sim.world import SimWorld


def test_no_rollout_too_many() -> None:
    assert allocation([0], 6, 100, "HW").tolist() == [30]  # the released floats give 31
    assert allocation([1], 8, 64, "HW").tolist() == [24]


def test_edges() -> None:
    assert allocation([0, 1], 1, 32).tolist() == [0, 0]
    assert allocation([0, 3], 8, 8).tolist() == [0, 0]
    assert allocation([0, 3], 8, 4).tolist() == [0, 0]
    assert allocation([], 8, 32).tolist() == []
    assert allocation([0, 1], [4, 8], 32).tolist() == [6, 11]
    assert allocation([0.5, 2.5], 8, 32).tolist() == [24, 2]


def test_errors() -> None:
    with pytest.raises(ValueError, match="9 successes of 8"):
        allocation([9], 8, 32)
    with pytest.raises(ValueError, match="no schedule 'XX'; there are ET, HW"):
        allocation([1], 8, 32, "XX")
    with pytest.raises(ValueError, match="no schedule 'XX'"):
        Dars(schedule="XX")
    with pytest.raises(ValueError, match="needs a share of the budget"):
        Dars(first_share=0.0)


def root_up(x: Fraction) -> int:
    t = isqrt(x.numerator // x.denominator)
    return t if t * t >= x else t + 1


@given(st.integers(2, 300), st.data(), st.sampled_from(["ET", "HW"]), st.booleans())
def test_whole_numbers_agree_with_exact_arithmetic(n: int, data: st.DataObject, schedule: str, use_std: bool) -> None:
    k = data.draw(st.integers(0, n))
    a = Fraction(k, n) if k else Fraction(1, 2 * n)
    got = int(allocation([k], n, 10**6, schedule, use_std)[0])
    if 2 * a >= 1:
        assert got == 0
    elif use_std:
        exact = n**2 / (4 * a * (1 - a)) if schedule == "ET" else n**2 * (1 - a) / a
        assert got == root_up(exact) - n
    else:
        assert got == ceil(n / (4 * a * (1 - a)) if schedule == "ET" else n / (2 * a)) - n


def test_pooled_groups() -> None:
    assert pooled_advantages([], []).kept is False
    assert pooled_advantages([1, 1], []).advantage is None
    assert pooled_advantages([1, 1, 1, 0], [], upper=0.75).kept is False
    got = pooled_advantages([1, 0], [], use_std=True, eps=0.0)
    assert np.allclose(got.advantage, [np.sqrt(0.5), -np.sqrt(0.5)])
    assert got.rescued is False


def steps_of(*methods: object, prompts: int = 8, rollouts: int = 64, steps: int = 4) -> list:
    world = ScriptedWorld(24, null=0)
    return [s for _, s in run(Pipeline(Grpo(), *methods), world, Budget(prompts, rollouts), steps=steps)]


def test_hard_prompts_get_the_second_round() -> None:
    for step in steps_of(Dars()):
        stage = step.plan.why["dars_stage"]
        assert (step.plan.n[stage == 1] == 4).all()
        assert step.plan.n_rollouts <= 64
        assert (step.plan.round == stage - 1).all()
        for prompt in step.prompts:
            rows = step.rollouts.prompt == prompt
            first = rows & (stage[step.rollouts.ask] == 1)
            got = int((rows & ~first).sum())
            need = int(allocation([step.rollouts.correct[first].sum()], 4, 32)[0])
            assert got <= need
            if step.plan.n_rollouts < 64:
                assert got == need


def test_the_stages_are_one_group() -> None:
    step = steps_of(Dars())[0]
    for prompt in step.prompts:
        rows = step.rollouts.prompt == prompt
        assert len(np.unique(step.rollouts.group[rows])) == 1
        if step.advantage.keep[rows].any():
            mean = step.rollouts.reward[rows].mean()
            assert np.allclose(step.advantage.value[rows], step.rollouts.reward[rows] - mean)


def test_why_a_group_was_dropped() -> None:
    rollouts = rollouts_of([[0, 0], [1, 1], [1, 0], [None, None]])
    got = Dars().estimate((), Advantage.start(rollouts), draft_of(rollouts), np.random.default_rng(0))
    assert got.reason.tolist() == ["none_correct"] * 2 + ["solved"] * 2 + [""] * 2 + ["null_reward"] * 2
    assert got.value.tolist() == [0, 0, 0, 0, 0.5, -0.5, 0, 0]


@pytest.mark.parametrize("others", [(DapoDynamicSampling(),), (McGrpo(),), (McGrpo(), DapoDynamicSampling())])
def test_with_refills_and_pivots(others: tuple) -> None:
    for step in steps_of(Dars(), *others):
        stage = step.plan.why["dars_stage"]
        for prompt in step.prompts:
            assert (stage[step.plan.prompt == prompt] == 1).sum() == 1
            assert (stage[step.plan.prompt == prompt] == 2).sum() <= 1


def test_a_simulated_run_rescues_hard_prompts() -> None:
    world = SimWorld(n_prompts=200, seed=3)
    rescued = 0
    for _, step in run(Pipeline(Grpo(), Dars(schedule="HW")), world, Budget(16, 128), steps=30):
        stage = step.plan.why["dars_stage"][step.rollouts.ask]
        correct = step.rollouts.correct
        first = np.bincount(step.rollouts.prompt, correct * (stage == 1), minlength=200)
        second = np.bincount(step.rollouts.prompt, correct * (stage == 2), minlength=200)
        rescued += int(((first == 0) & (second > 0)).sum())
        assert step.plan.n_rollouts <= 128
    assert rescued > 10
