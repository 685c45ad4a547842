from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.methods.dora import Dora, allocation, allocation_two_stage, expand, largest_remainder, similarity, vote
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline
from workbench.testing.trials import frontier
from workbench.types import Frontier
from workbench.worlds.sim.world import SimWorld

scores = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(scores, st.integers(1, 40))
def test_slots_are_conserved(reward: list[float], budget: int) -> None:
    made = allocation(reward, np.eye(len(reward)), budget)
    assert largest_remainder(made.ideal, budget).sum() == budget
    assert len(expand(made.rounded, budget)) == budget
    assert np.isclose(made.weight.sum(), 1)


@given(scores)
def test_alike_or_all_different_it_is_quality_alone(reward: list[float]) -> None:
    k = len(reward)
    for alike in (np.ones((k, k)), np.eye(k)):
        made = allocation(reward, alike, 16)
        assert np.allclose(made.weight, made.quality_weight)


def test_edges() -> None:
    assert allocation([0.4], [[1.0]], 5).rounded.tolist() == [5]
    assert allocation(np.zeros(9), np.eye(9), 4).rounded.tolist() == [4, 0, 0, 0, 0, 0, 0, 0, 0]
    assert len(allocation([], np.empty((0, 0)), 4).rounded) == 0
    assert allocation_two_stage(np.zeros(9), np.eye(9), 4).kept.tolist() == [0]
    assert expand([3, 3], 4).tolist() == [0, 0, 0, 1]
    with pytest.raises(ValueError, match="4 slots"):
        expand([0, 0], 4)
    assert vote([], []).answer is None
    assert vote(["a", "b"], [0.5, 0.5]).answer == "a"


def test_a_tight_direction_gets_what_one_solution_would() -> None:
    alike = np.kron(np.eye(2), np.ones((3, 3)))[:4, :4]  # three alike and one apart
    made = allocation([0.05, 0.05, 0.05, 0.02], alike, 12, T_b=0.1)
    one = np.exp(0.5) / (np.exp(0.5) + np.exp(0.2))  # the share of one solution of its quality
    assert np.isclose(made.ideal[:3].sum(), 12 * one)


def with_scores(b: int) -> Frontier:
    rng = np.random.default_rng(0)
    return replace(frontier(b), extra={"prm": rng.random(b), "embedding": rng.standard_normal((b, 3))})


@pytest.mark.parametrize("mode", ["exact", "paper", "code"])
def test_groups_keep_their_number_of_branches(mode: str) -> None:
    method, growing, rng = Dora(mode=mode), with_scores(12), np.random.default_rng(0)
    width = method.branch((), growing, rng).width * method.prune((), growing, rng).width
    assert np.bincount(growing.group, width).tolist() == [4, 4, 4]


def test_similarity_of_nothing() -> None:
    assert similarity(np.zeros((2, 3))).tolist() == [[0, 0], [0, 0]]


def test_a_world_without_scores_is_refused_before_the_run() -> None:
    with pytest.raises(ValueError, match="Dora needs prm"):
        Pipeline(Grpo(), Dora()).check(SimWorld(n_prompts=4, n_eval=2))
