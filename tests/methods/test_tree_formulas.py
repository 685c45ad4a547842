"""Laws of the formulas by which rollouts are grown, cut and credited."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vectors.april_model import simulate
from tests.vectors.counts import capacity_assign, prune_subtree
from tests.vectors.losses import balanced_clip
from tests.vectors.searches import plan_branch, prune_scan
from workbench.methods import branchgrpo, ettrl, latr
from workbench.methods.arrol.pruning import posterior, survival
from workbench.methods.echo.certainty import branch_width
from workbench.methods.ettrl import Ettrl
from workbench.methods.grpo import Grpo
from workbench.numerics.estimators import group_advantages
from workbench.numerics.votes import majority_label
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld
from workbench.types import Budget

unit = st.floats(0, 1, allow_nan=False)
tokens = st.lists(st.integers(1, 4), min_size=1, max_size=8)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int | None], list[float | None]]:
    parent: list[int | None] = [None, *(draw(st.integers(0, i)) for i in range(draw(st.integers(1, 12))))]
    leaf = [i not in parent for i in range(len(parent))]
    return parent, [draw(unit) if is_leaf else None for is_leaf in leaf]


@given(trees())
def test_uniform_values_are_means_over_leaves_and_probable_ones_stay_between_them(tree: tuple) -> None:
    parent, reward = tree
    given_ = [r for r in reward if r is not None]
    flat = branchgrpo.node_values(parent, reward, [0.0] * len(parent))
    assert flat.value[0] == pytest.approx(np.mean(given_))
    assert flat.n_leaves[0] == len(given_)
    prob = branchgrpo.node_values(parent, reward, np.linspace(0, -3, len(parent)), "prob")
    assert min(given_) - 1e-9 <= prob.value[0] <= max(given_) + 1e-9


@given(trees())
def test_advantages_of_a_depth_sum_to_zero(tree: tuple) -> None:
    parent, reward = tree
    made = branchgrpo.depth_advantages(parent, branchgrpo.node_values(parent, reward, [0.0] * len(parent)).value)
    for d in np.unique(made.depth):
        assert abs(made.advantage[made.depth == d].sum()) < 1e-6


def test_a_flat_group_is_plain_grpo() -> None:
    reward = [1.0, 0.0, 0.0, 0.5]
    parent, values = [None, 0, 0, 0, 0], [None, *reward]
    made = branchgrpo.depth_advantages(parent, branchgrpo.node_values(parent, values, [0.0] * 5).value)
    assert made.advantage[1:] == pytest.approx(group_advantages(reward, [0] * 4, "grpo", 1e-8).advantages)


@given(st.lists(unit, min_size=1, max_size=30), st.floats(0.15, 0.85), unit)
def test_arrol_keeps_kappa_of_its_buffer(q: list[float], kappa: float, rho: float) -> None:
    made = survival(q, q, kappa, rho, 0.5, 0.1, 0.9)
    assert made.buffer_mean == pytest.approx(kappa, abs=1e-6)
    order = np.argsort(q)
    assert (np.diff(made.keep_prob[order]) <= 1e-9).all()  # the likelier a success, the sooner it goes


def test_arrol_refuses_a_share_that_cannot_be_reached() -> None:
    with pytest.raises(ValueError, match="kappa"):
        survival([0.5], [0.5], kappa=0.95)
    assert posterior([0, 0], [0, 0]).q.tolist() == [0.5, 0.5]


@given(
    st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=2), min_size=1, max_size=8),
    st.integers(1, 3),
    st.integers(1, 4),
)
@settings(max_examples=60)
def test_april_loses_no_token_and_no_group(lengths: list[list[int]], target: int, oversample: int) -> None:
    rounds = simulate(lengths, target, oversample, 20)
    trained = [g for r in rounds for g in r.train]
    assert sorted(trained) == list(range(len(lengths)))
    assert sum(r.train_tokens for r in rounds) == sum(map(sum, lengths))
    for r in rounds:
        assert len(r.train) + len(r.recycled) == len(r.submitted)
        if oversample == target:
            assert r.recycled == []


@given(st.lists(st.lists(st.booleans(), min_size=2, max_size=2), min_size=1, max_size=6), st.integers(1, 10))
def test_latr_never_holds_more_branches_than_there_is_room(rows: list[list[bool]], capacity: int) -> None:
    keep = np.array(rows)
    keep[:, 0] = True
    made = capacity_assign(keep, np.zeros(len(keep), bool), capacity)
    assert made.n_next <= max(capacity, len(keep))
    assert made.n_next + made.n_suppressed == keep.sum()
    assert (made.state[:, 0] == 0).all()


@given(tokens, tokens)
def test_likeness_of_token_windows(a: list[int], b: list[int]) -> None:
    assert latr.levenshtein(a, b) == latr.levenshtein(b, a)
    assert (latr.levenshtein(a, b) == 0) == (a == b)
    assert latr.rouge_l(a, a) == 1
    assert latr.suffix_match(a, a) == len(a)
    assert 0 <= latr.rouge_l(a, b) <= 1


def test_latr_prunes_a_branch_with_all_that_grew_from_it_but_never_a_root() -> None:
    assert prune_subtree([None, 0, 1, 2, 0], [1]) == {"removed": [1, 2, 3], "kept": [0, 4]}
    assert prune_subtree([None, 0], [0]) == {"removed": [], "kept": [0, 1]}
    assert latr.tree_share(10, {0: 0.25}, 5) == (0.25, 2, 8)


@settings(deadline=None)
@given(st.floats(-2, 2), st.floats(-3, 3))
def test_aepo_clips_the_value_as_ppo_does(log_ratio: float, advantage: float) -> None:
    ours = balanced_clip(log_ratio, advantage)
    ppo = balanced_clip(log_ratio, advantage, balanced=False)
    assert ours["loss"] == pytest.approx(ppo["loss"])
    if advantage > 0 and np.exp(log_ratio) > 1.2:
        assert (ours["grad_logprob"], ppo["grad_logprob"]) == (pytest.approx(-1.2 * advantage), 0)


@given(st.floats(0, 10), st.floats(0.01, 5))
def test_echo_width_stays_in_its_bounds(entropy: float, confidence: float) -> None:
    assert 1 <= branch_width(entropy, confidence).width <= 4


def test_echo_without_tokens_plans_nothing() -> None:
    assert tuple(plan_branch([], [], [], {}).values()) == (None, None)
    assert tuple(prune_scan([], [], [], {}).values()) == (None, None)
    assert tuple(prune_scan([0.9, 0.3], [0.9, 0.9], [0, 0], {}).values()) == (1, "low_confidence")
    spike = prune_scan([0.9] * 4, [0.9] * 4, [0.1, 0.2, 0.6, 0.1], {})
    assert tuple(spike.values()) == (2, "entropy_spike")


def test_a_tie_of_votes_goes_to_the_first_answer_and_no_answer_to_nobody() -> None:
    assert majority_label(["b", "a", None, "a", "b"])[:2] == ("b", 0.4)
    assert majority_label([None, None])[:2] == (None, 0.0)


@given(st.lists(unit, min_size=1, max_size=12), st.integers(0, 5))
def test_forks_are_ascending_and_distinct(entropy: list[float], n: int) -> None:
    at = ettrl.fork_positions(entropy, n)
    assert len(at) == min(n, len(entropy))
    assert (np.diff(at) > 0).all()


def test_ettrl_votes_where_nobody_verifies() -> None:
    world = ScriptedWorld(24, null=0.0, offers=Ettrl.needs)
    steps = [
        s for _, s in run(Pipeline(Grpo(), Ettrl(forks=0)), world, Budget(prompts=4, rollouts=16), steps=3, seed=1)
    ]
    for step in steps:
        r = step.rollouts
        for p in step.prompts:
            mine = r.prompt == p
            vote = majority_label([None if a is None else str(a) for a in r.answer[mine]])
            expected = np.full(mine.sum(), np.nan) if vote.label is None else vote.rewards
            assert np.array_equal(r.reward[mine], expected, equal_nan=True)
