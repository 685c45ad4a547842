import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.counts import roc_select
from workbench.methods.grpo import Grpo
from workbench.methods.grpo_roc import GrpoRoc, format_penalty, keep_counts
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import draft_of, rollouts_of
from workbench.types import Advantage, Budget
from workbench.worlds.sim.world import SimWorld

RNG = np.random.default_rng(0)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40), st.integers(0, 3), st.integers(0, 3))
def test_what_is_kept_adds_up_and_exists(z: int, s: int, n: int, min_zero: int, min_nonzero: int) -> None:
    got = keep_counts(z, s, n, min_zero, min_nonzero)
    assert bool(got.dropped) == (z + s < n)
    assert got.zero + got.nonzero == (0 if z + s < n else n)
    assert 0 <= got.zero <= z
    assert 0 <= got.nonzero <= s
    if not got.dropped and min_zero + min_nonzero <= n:
        assert got.nonzero >= min(min_nonzero, s)
        assert got.zero >= min(min_zero, z)


def test_odd_numbers_are_split() -> None:
    got = keep_counts(10, 4, 7)
    assert (int(got.zero), int(got.nonzero)) == (5, 2)


def test_small_groups_go_whole() -> None:
    keep = roc_select([1, 0, 1, 0, 1], [0, 0, 0, 0, 0], ["a", "a", "a", "b", "b"], 3)
    assert keep.tolist() == [True, True, True, False, False]
    assert roc_select([], [], [], 3).tolist() == []
    assert roc_select([None, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0], 2, 1, 1).tolist() == [False, True, True, False]


def test_unbalanced_tags_cost_one() -> None:
    assert format_penalty([1, 1, 9], [0, 1, 9], [0, 1, 9], [1, 0, 2]).tolist() == [1, 1, 1]


@given(st.lists(st.sampled_from([0, 1]), min_size=4, max_size=12), st.integers(2, 8), st.randoms())
def test_dirtier_successes_never_stay_before_cleaner_ones(rewards: list, n: int, random) -> None:
    penalty = np.array([random.random() for _ in rewards])
    reward = np.array(rewards)
    keep = roc_select(reward, penalty, np.zeros(len(reward), int), n)
    kept, dropped = penalty[keep & (reward > 0)], penalty[~keep & (reward > 0)]
    assert kept.max(initial=-1) <= dropped.min(initial=2) or not keep.any()
    failures = np.flatnonzero(reward <= 0)
    assert keep[failures].tolist() == sorted(keep[failures].tolist(), reverse=True)


def test_the_clean_success_is_kept_and_the_baseline_is_of_the_kept() -> None:
    rollouts = rollouts_of([[1, 1, 1, 0, 0, 0, 0, 0], [1, 1]])
    text = np.full(10, "no tags", dtype=object)
    text[2] = "<answer>4</answer>"
    rollouts = rollouts.with_(text=text)
    for mode in ("code", "paper"):
        got = GrpoRoc(mode=mode).estimate((), Advantage.start(rollouts), draft_of(rollouts), RNG)
        assert got.keep.sum() == 4
        assert got.keep[2] or mode == "paper"
        assert (got.reason[8:] == "zero_variance").all()
        assert np.allclose(got.baseline[got.keep], 0.5)
        assert abs(got.value.sum()) < 1e-9


def test_shares_are_checked() -> None:
    with pytest.raises(ValueError, match="keep_share=0"):
        GrpoRoc(keep_share=0)


def test_thirty_steps_of_a_simulation() -> None:
    world = SimWorld(n_prompts=40, n_eval=8)
    for _, done in run(Pipeline(Grpo(), GrpoRoc()), world, Budget(8, 64), steps=30):
        n = np.bincount(done.rollouts.group[done.advantage.keep], minlength=8)
        assert set(n.tolist()) <= {0, 4}
