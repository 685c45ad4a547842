import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.estimates import mc_advantages
from workbench.methods.mc_grpo import McGrpo
from workbench.testing.scripted import draft_of, rollouts_of
from workbench.types import Advantage, Draft, Plan

RNG = np.random.default_rng(0)
reward = st.sampled_from([0.0, 0.25, 1.0, 1.5, None])


def estimated(method: McGrpo, groups: list) -> Advantage:
    rollouts = rollouts_of(groups)
    return method.estimate((), Advantage.start(rollouts), draft_of(rollouts), RNG)


def test_even_groups_take_the_lower_median() -> None:
    got = mc_advantages([[3.0, 0.0, 1.0, 2.0]], mad_eps=0.0)
    assert got.median.tolist() == [1.0]
    assert got.mad.tolist() == [1.0]
    assert [a.tolist() for a in got.advantages] == [[2.0, -1.0, 0.0, 1.0]]
    assert got.pivot.tolist() == [2]


def test_nulls_leave_before_the_median() -> None:
    got = mc_advantages([[None, 5.0, 1.0, 3.0], [None, None, None, None]], mad_eps=1.0)
    assert got.median.tolist()[0] == 3.0
    assert np.isnan(got.median[1])
    assert got.pivot.tolist() == [3, -1]
    assert np.allclose(got.advantages, [[0, 2 / 3, -2 / 3, 0], [0, 0, 0, 0]])
    assert [k.tolist() for k in got.keep] == [[False, True, True, False], [False] * 4]


def test_rescaling_counts_what_is_scored() -> None:
    got = mc_advantages([[1.0, 0.0, 0.0, None]], mad_eps=1.0, rescale_nonzero=True)
    assert [a.tolist() for a in got.advantages] == [[3.0, 0.0, 0.0, 0.0]]


def test_rows_of_different_lengths() -> None:
    got = mc_advantages([[2.0, 0.0, 0.0], [1.0]])
    assert [a.tolist() for a in got.advantages] == [[2000.0, 0.0, 0.0], [0.0]]
    assert [k.tolist() for k in got.keep] == [[True, False, True], [False]]
    assert got.pivot.tolist() == [1, 0]


def test_the_floor_tames_binary_rewards() -> None:
    assert estimated(McGrpo(), [[2, 0, 0]]).value.tolist() == [10.0, 0.0, 0.0]
    assert estimated(McGrpo(mode="paper"), [[2, 0, 0]]).value.tolist() == [2000.0, 0.0, 0.0]
    assert estimated(McGrpo(mode="code"), [[2, 0, 0]]).value.tolist() == [6000.0, 0.0, 0.0]


def test_the_pivot_is_dropped_and_the_baseline_shown() -> None:
    got = estimated(McGrpo(), [[2, 0, 0], [None, 1, 1], [0.5]])
    assert got.reason.tolist() == ["", "pivot", "", "null_reward", "pivot", "", "pivot"]
    assert np.allclose(got.baseline, [0, 0, 0, np.nan, 1, 1, 0.5], equal_nan=True)


@given(st.lists(st.lists(reward, min_size=1, max_size=6), min_size=1, max_size=5))
def test_one_scored_rollout_of_each_group_is_the_pivot(groups: list) -> None:
    got = estimated(McGrpo(), groups)
    scored = [sum(r is not None for r in g) for g in groups]
    assert (got.reason == "pivot").sum() == sum(n > 0 for n in scored)
    assert got.keep.sum() == sum(max(n - 1, 0) for n in scored)
    assert (got.value[got.reason == "pivot"] == 0).all()
    assert (np.abs(got.value) <= 10).all()  # the floor bounds what a group can say
    sign = np.sign(np.nan_to_num(rollouts_of(groups).reward - got.baseline))
    assert (np.sign(got.value) == np.where(np.isfinite(got.baseline), sign, 0)).all()


@given(
    st.lists(st.lists(reward, min_size=1, max_size=6), min_size=1, max_size=5),
    st.sampled_from(["safe", "paper", "code"]),
)
def test_the_method_is_the_function(groups: list, mode: str) -> None:
    got = estimated(McGrpo(mode=mode), groups)
    want = mc_advantages(groups, 1e-3, mode == "code", 0.1 if mode == "safe" else 0.0)
    assert np.allclose(got.value, np.concatenate(list(want.advantages)))
    assert (got.keep == np.concatenate(list(want.keep))).all()


def draft(plan: Plan | None = None) -> Draft:
    return draft_of(rollouts_of([[1]])).with_(plan=plan, rollouts=None)


def test_one_more_for_every_group_and_once() -> None:
    plan = Plan([3, 4, 3, 5, 6], [2, 2, 2, 0, 4], purpose=np.array(["train"] * 4 + ["probe"], dtype=object))
    assert McGrpo().amend((), plan, draft(), RNG).n.tolist() == [3, 3, 2, 0, 4]
    assert plan.n.tolist() == [2, 2, 2, 0, 4]
    later = Plan([3, 7], [2, 2])
    assert McGrpo().amend((), later, draft(plan), RNG).n.tolist() == [2, 3]
    hinted = Plan([3], [2], context=np.array(["hint"], dtype=object))
    assert McGrpo().amend((), hinted, draft(plan), RNG).n.tolist() == [3]
    assert McGrpo().amend((), Plan([], []), draft(), RNG).n_rollouts == 0


@pytest.mark.parametrize("sizes", [[1, 2, 3], [4]])
def test_amended_groups_keep_their_size_in_the_loss(sizes: list[int]) -> None:
    asked = McGrpo().amend((), Plan(np.arange(len(sizes)), sizes), draft(), RNG).n
    got = estimated(McGrpo(), [list(np.linspace(0, 1, n)) for n in asked])
    assert got.keep.sum() == sum(sizes)
