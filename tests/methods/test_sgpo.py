import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.counts import classify
from tests.vectors.counts import sgpo_plan as plan
from workbench.methods.grpo import Grpo
from workbench.methods.sgpo import Sgpo, group_size
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, pool_of
from workbench.types import Budget, Draft, Pool
from workbench.worlds.sim.world import SimWorld


def test_edges() -> None:
    assert group_size([0.0, 1 / 1024, 1.0, 1 / 3], 2, 8).tolist() == [8, 8, 2, 2]
    assert group_size([1 / 64, 1 / 16], 2, 64).tolist() == [64, 16]
    assert classify([], 0.75).tolist() == []
    empty = plan([], 8)
    assert [p.rollouts_per_pass for p in empty.phases] == [0, 0, 0]
    assert empty.profile_rollouts == 0


def test_only_unsolved_prompts() -> None:
    got = plan([0] * 20, 8)
    assert [(p.prompts, p.n_unsolved_mixed, p.rollouts_per_pass) for p in got.phases] == [
        ([], 2, 4),
        ([], 2, 8),
        ([], 2, 16),
    ]


def test_errors() -> None:
    with pytest.raises(ValueError, match="9 successes of 8"):
        plan([9], 8)
    with pytest.raises(ValueError, match="buckets are rising group sizes"):
        Sgpo(buckets=(4, 2))
    with pytest.raises(ValueError, match="passes must be 1 or more, got 0"):
        Sgpo(passes=0)


@given(st.lists(st.integers(0, 8), max_size=40), st.floats(0, 1))
def test_every_learnable_prompt_has_one_phase(successes: list[int], fraction: float) -> None:
    got = plan(successes, 8, fraction=fraction)
    trained = sorted(row for phase in got.phases for row in phase.prompts)
    assert trained == np.flatnonzero(got.decision == "learnable").tolist()
    for phase in got.phases:
        assert all(got.group_size[row] == phase.group_size for row in phase.prompts)
        assert phase.rollouts_per_pass == phase.group_size * (len(phase.prompts) + phase.n_unsolved_mixed)


@given(st.floats(0.01, 1), st.floats(0.01, 1))
def test_harder_prompts_never_get_smaller_groups(p: float, q: float) -> None:
    easy, hard = max(p, q), min(p, q)
    assert group_size(hard) >= group_size(easy)


def profiled(successes: list[int]) -> Pool:
    extra = {"profile_successes": np.array(successes), "profile_n": np.full(len(successes), 8)}
    return Pool(**{**vars(pool_of(len(successes))), "extra": extra})


def draft_of(pool: Pool, prompts: int, rollouts: int) -> Draft:
    return Draft(
        1, Budget(prompts, rollouts), np.ones(len(pool), bool), np.empty(0, np.int64), wanted=min(prompts, len(pool))
    )


def test_phases_go_from_small_groups_to_large_ones() -> None:
    pool = profiled([4] * 6 + [2] * 3 + [1] * 3 + [8] * 4)
    state, draft, rng = Sgpo().init(pool), draft_of(pool, 3, 24), np.random.default_rng(0)
    for phase, (low, high, size) in enumerate([(0, 6, 2), (6, 9, 4), (9, 12, 8)]):
        rows = Sgpo().select(state._replace(phase=phase), draft, rng).rows
        assert ((rows >= low) & (rows < high)).all()
        made = Sgpo().allocate(state._replace(phase=phase), draft.with_(fresh=rows, prompts=rows), rng)
        assert made.n.tolist() == [size] * len(rows)


def test_trivial_prompts_come_last_and_short_phases_are_filled() -> None:
    pool = profiled([4, 2, 1, 8, 8])
    state, draft = Sgpo().init(pool), draft_of(pool, 5, 40)
    rows = Sgpo().select(state, draft, np.random.default_rng(0)).rows
    assert rows[:3].tolist() == [0, 1, 2]
    assert sorted(rows[3:].tolist()) == [3, 4]


def test_as_many_prompts_as_the_budget_pays_for() -> None:
    pool = profiled([1] * 20)
    state, draft = Sgpo().init(pool)._replace(phase=2), draft_of(pool, 10, 40)
    rows = Sgpo().select(state, draft, np.random.default_rng(0)).rows
    assert len(rows) == 5
    made = Sgpo().allocate(state, draft.with_(fresh=rows, prompts=rows), np.random.default_rng(0))
    assert made.n.tolist() == [8] * 5


def test_a_share_of_the_unsolved_is_mixed_in_and_fixed() -> None:
    pool = profiled([0] * 40 + [4] * 2)
    method, state = Sgpo(), Sgpo().init(pool)
    first = method._members(state, 0)
    assert first[:40].sum() == 4
    assert first[40:].all()
    assert (method._members(state, 0) == first).all()
    assert method._members(state, 1)[:40].sum() == 4


def test_the_profile_is_made_in_the_loop_and_paid_for() -> None:
    world = ScriptedWorld(24)  # prompt 1 can never be verified
    steps = list(run(Pipeline(Grpo(), Sgpo()), world, Budget(6, 48), steps=12))
    purposes = [set(step.rollouts.purpose) for _, step in steps]
    assert purposes == [{"profile"}] * 4 + [{"train"}] * 8
    state = steps[3][0]["sgpo"]
    assert (state.profile.made == 8).all()
    assert state.profile.tried[1] == 0
    for _, step in steps[:4]:
        assert not step.advantage.keep.any()
    for _, step in steps[4:]:
        assert step.plan.n_rollouts <= 48
        assert set(step.plan.n.tolist()) <= {2, 4, 8}


def test_phases_follow_each_other() -> None:
    pool = profiled([4] * 12 + [2] * 12 + [1] * 12)
    world = ScriptedWorld(36, null=0)
    world.pool = pool
    phases = [states["sgpo"].phase for states, _ in run(Pipeline(Grpo(), Sgpo()), world, Budget(6, 24), steps=9)]
    # 12 prompts a pass: 12 groups of 2, 6 of 4 and 3 of 8 are paid by a step of 24 rollouts
    assert phases == [1, 1, 2, 2, 2, 2, 0, 1, 1]


def test_a_simulated_run_spends_less_than_equal_groups() -> None:
    world = SimWorld(n_prompts=96, seed=1)
    steps = [step for _, step in run(Pipeline(Grpo(), Sgpo()), world, Budget(16, 128), steps=30)]
    assert all(step.plan.n_rollouts <= 128 for step in steps)
    trained = [step for step in steps if (step.plan.purpose == "train").any()]
    assert len(trained) == 24
    assert np.mean([len(step.prompts) for step in trained]) > 16
