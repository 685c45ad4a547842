import numpy as np

from workbench.numerics.profiling import Profile, affordable, profile_plan
from workbench.testing.scripted import draft_of, rollouts_of
from workbench.types import Plan


def test_looks_count_their_purpose_and_nulls_as_made() -> None:
    rollouts = rollouts_of([[1, 0], [None, 1]])
    purpose = np.array(["probe", "train", "probe", "probe"], dtype=object)
    rollouts = rollouts.with_(purpose=purpose, correct=rollouts.reward)
    got = Profile.none(2).add(rollouts, "probe")
    assert [column.tolist() for column in got] == [[1, 2], [1, 1], [1, 1]]
    assert got.owed(2).tolist() == [1, 0]


def test_what_is_owed_is_asked_as_far_as_the_share_goes() -> None:
    plan = profile_plan(np.array([4, 7]), np.array([4, 2]), 100, "probe")
    assert (plan.prompt.tolist(), plan.n.tolist(), set(plan.purpose)) == ([4, 7], [4, 2], {"probe"})
    assert profile_plan(np.array([4, 7]), np.array([4, 2]), 3, "probe").n.tolist() == [2, 1]


def test_a_step_takes_in_what_it_can_pay() -> None:
    draft = draft_of(rollouts_of([[1, 0]]), prompts=5)  # a budget of 64
    assert affordable(draft, 9, 4) == 5
    assert affordable(draft, 3, 4) == 3
    assert affordable(draft.with_(plan=Plan([0], [54])), 9, 4) == 2
    assert affordable(draft.with_(plan=Plan([0], [70])), 9, 4) == 0
