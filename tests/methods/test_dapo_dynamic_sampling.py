import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.counts import accumulate
from tests.vectors.estimates import dynamic_sampling_keep, keep_group
from workbench.methods.dapo_dynamic_sampling import DapoDynamicSampling, overlong_penalty
from workbench.methods.grpo import Grpo
from workbench.methods.mc_grpo import McGrpo
from workbench.methods.mopps import Mopps
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, draft_of, rollouts_of
from workbench.types import Advantage, Budget, Draft

RNG = np.random.default_rng(0)


def estimated(method: DapoDynamicSampling, draft: Draft) -> Advantage:
    return method.estimate((), Advantage.start(draft.rollouts), draft, RNG)


def test_groups_are_judged_by_range_and_without_nulls() -> None:
    assert keep_group([[0.1, 0.1, 0.1], [1, None, 1], [1, None, 0], [], [None]]).tolist() == [0, 0, 1, 0, 0]
    assert keep_group([[1], [0, 1], []]).tolist() == [False, True, False]
    assert keep_group([[1], [0, 1], []], keep_singletons=True).tolist() == [True, True, False]
    assert dynamic_sampling_keep([1, None, 0, 1], ["a", "a", "b", "b"]) == {"a": False, "b": True}


MIXED, FLAT = [1, 0], [1, 1]


def test_accumulate_at_its_edges() -> None:
    assert tuple(accumulate([], 2).values()) == ("short", 0, [], [], 0)
    assert tuple(accumulate([[], [("a", MIXED)]], 1, 10).values()) == ("full", 2, ["a"], [], 2)
    assert tuple(accumulate([[], [("a", MIXED)]], 1, 1).values()) == ("short", 1, [], [], 0)
    assert accumulate([[("a", FLAT)]] * 30 + [[("b", MIXED)]], 1, 0).train == ["b"]
    assert accumulate([[("a", [1])]], 1, keep_singletons=True).status == "full"
    assert accumulate([[("a", MIXED), ("b", MIXED), ("c", MIXED)]], 2).surplus == ["c"]


@given(st.lists(st.lists(st.sampled_from([MIXED, FLAT]), max_size=4), max_size=5), st.integers(1, 6), st.integers(0, 5))
def test_accumulate_never_exceeds_batch_or_limit(rounds: list, wanted: int, limit: int) -> None:
    named = [[(f"{i}.{j}", g) for j, g in enumerate(batch)] for i, batch in enumerate(rounds)]
    got = accumulate(named, wanted, limit)
    assert len(got.train) <= wanted
    assert (got.status == "full") == (len(got.train) == wanted)
    assert limit <= 0 or got.gen_batches <= limit
    assert not got.surplus or got.status == "full"


def test_without_a_buffer_the_penalty_is_a_step() -> None:
    assert overlong_penalty([9, 10, 11], 10, 0, 0.5).tolist() == [0.0, 0.0, -0.5]


def test_reasons_and_whole_groups() -> None:
    rollouts = rollouts_of([[1, 1], [0, 0], [1, 0, None], [1], [1, 0], [0, 1, 1]])
    got = estimated(DapoDynamicSampling(), draft_of(rollouts, prompts=2))
    assert got.reason.tolist() == (
        ["zero_variance_all"] * 2
        + ["zero_variance_none"] * 2
        + ["", "", "null_reward"]
        + ["singleton"]
        + [""] * 2
        + ["surplus"] * 3
    )


def test_other_metrics() -> None:
    rollouts = rollouts_of([[0.2, 0.4], [0.3, 0.3]])
    assert estimated(DapoDynamicSampling(), draft_of(rollouts)).keep.tolist() == [False] * 4
    got = estimated(DapoDynamicSampling(metric="reward"), draft_of(rollouts))
    assert got.reason.tolist() == ["", "", "zero_variance_equal", "zero_variance_equal"]
    with pytest.raises(ValueError, match="metric 'fun' is not recorded; there are correct, reward"):
        estimated(DapoDynamicSampling(metric="fun"), draft_of(rollouts))


def test_short_batches() -> None:
    draft = draft_of(rollouts_of([[1, 0], [1, 1], [0, 0]]), prompts=2)
    assert estimated(DapoDynamicSampling(), draft).keep.sum() == 2
    assert estimated(DapoDynamicSampling(on_short="fill_zero_variance"), draft).keep.tolist() == [1, 1, 1, 1, 0, 0]
    with pytest.raises(ValueError, match="1 of 2 groups are mixed after 1 rounds"):
        estimated(DapoDynamicSampling(on_short="error"), draft)


def test_more_asks_for_whole_rounds_until_the_limit() -> None:
    draft = draft_of(rollouts_of([[1, 0], [1, 1], [0, 0]]), prompts=2)
    assert DapoDynamicSampling().more((), draft) == 2
    assert DapoDynamicSampling(gen_prompts=7).more((), draft) == 7
    assert DapoDynamicSampling(max_rounds=1).more((), draft) == 0
    assert DapoDynamicSampling().more((), draft.with_(round=9)) == 0
    assert DapoDynamicSampling(max_rounds=0).more((), draft.with_(round=40)) == 2
    assert DapoDynamicSampling().more((), draft.with_(available=np.zeros(64, bool))) == 0
    assert DapoDynamicSampling().more((), draft_of(rollouts_of([[1, 0], [0, 1]]), prompts=2)) == 0


@pytest.mark.parametrize("others", [(), (Mopps(),), (McGrpo(),), (Mopps(), McGrpo())])
def test_the_batch_is_filled_by_the_pipelines_own_selector(others: tuple) -> None:
    pipeline = Pipeline(Grpo(), *others, DapoDynamicSampling())
    budget = Budget(prompts=5, rollouts=20)
    steps = [step for _, step in run(pipeline, ScriptedWorld(60, null=0), budget, steps=3)]
    assert max(step.plan.round.max() for step in steps) >= 1
    for step in steps:
        trained = step.rollouts.take(step.advantage.keep)
        assert len(np.unique(trained.group)) == 5
        assert len(step.prompts) == 5 * (step.plan.round.max() + 1)


def test_a_pivot_that_left_does_not_settle_its_group() -> None:
    rollouts = rollouts_of([[1, 0]])
    start = Advantage.start(rollouts).drop(np.array([False, True]), "pivot")
    got = DapoDynamicSampling().estimate((), start, draft_of(rollouts, prompts=1), RNG)
    assert got.keep.tolist() == [True, False]


def test_a_group_of_which_nothing_is_left_takes_no_place() -> None:
    rollouts = rollouts_of([[1, 0], [1, 0]])
    start = Advantage.start(rollouts).drop(rollouts.group == 0, "not_admitted")
    got = DapoDynamicSampling().estimate((), start, draft_of(rollouts, prompts=1), RNG)
    assert got.keep.tolist() == [False, False, True, True]
