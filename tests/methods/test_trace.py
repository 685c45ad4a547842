from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.methods.grpo import Grpo
from workbench.methods.trace import Trace
from workbench.methods.trace.continuations import (
    _greedy_roots,
    prefix_allocation,
    prefix_value,
    root_allocation,
    root_value,
    tree_advantages,
    tree_values,
)
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import pool_of
from workbench.types import Budget, Draft
from workbench.worlds.sim.world import SimWorld

rates = st.lists(st.floats(0, 1), min_size=1, max_size=3)


@given(rates, st.integers(0, 8), st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_the_split_is_the_best_there_is(v: list[float], budget: int, m_min: int) -> None:
    choices = [0, *range(m_min, 6)]
    best = max(root_value(v, m).sum() for m in product(choices, repeat=len(v)) if sum(m) <= budget)
    made = root_allocation(v, budget, m_min, 5)
    assert np.isclose(made.objective, best)
    assert np.isclose(root_value(v, made.m).sum(), best)
    assert made.spent == made.m.sum() <= budget
    assert set(made.m.tolist()) <= set(choices)


@pytest.mark.parametrize("m_min", [2, 3])
@pytest.mark.parametrize("budget", [60, 61])
def test_greedy_comes_close_to_the_table(monkeypatch: pytest.MonkeyPatch, m_min: int, budget: int) -> None:
    v = np.random.default_rng(budget).random(20)
    exact = root_allocation(v, budget, m_min, 12)
    monkeypatch.setattr("workbench.methods.trace.continuations._CELLS", 2000)
    greedy = root_allocation(v, budget, m_min, 12)
    assert greedy.spent <= budget
    assert not ((greedy.m > 0) & (greedy.m < m_min)).any()
    assert exact.objective - 0.25 < greedy.objective <= exact.objective + 1e-9


def test_roots_at_their_edges() -> None:
    assert root_allocation([0.0, 1.0], 8).m.tolist() == [0, 0]
    assert root_allocation([0.5, 0.5], 3, 2, 2).spent == 2  # m = 1 has no value
    assert root_allocation([0.5, 0.5], 2).m.tolist() == [2, 0]
    assert root_value(0.5, [0, 1]).tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"0\.\.1"):
        root_allocation([np.nan], 4)


def test_prefixes_at_their_edges() -> None:
    nothing = [{"rollout": 0, "turn": 1, "reward": 1, "value": 1.0}]
    assert prefix_allocation(nothing, 4).unspent == 4
    assert prefix_allocation([], 4).unspent == 4
    two = [{"rollout": 1, "turn": 1, "reward": 0, "value": 0.5}, {"rollout": 0, "turn": 2, "reward": 0, "value": 0.5}]
    assert prefix_allocation(two, 1).k.tolist() == [0, 1]
    assert prefix_value([0.3], [0.9], [1], success=0.3).flip.tolist() == [pytest.approx(0.1)]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 9))
def test_continuations_are_optimal_and_add_up(value: list[float], budget: int) -> None:
    nodes = [{"rollout": i, "turn": 1, "reward": i % 2, "value": v} for i, v in enumerate(value)]
    made = prefix_allocation(nodes, budget, 3)
    assert made.k.sum() + made.unspent == budget
    assert made.k.max() <= 3
    marginal = made.flip * (1 - made.flip) ** made.k
    last = made.flip * (1 - made.flip) ** np.maximum(made.k - 1, 0)
    if (made.k < 3).any() and (made.k > 0).any() and not made.unspent:
        assert last[made.k > 0].min() >= marginal[made.k < 3].max() - 1e-12


def test_trees_with_failed_verifiers() -> None:
    parent, reward = [-1, 0, 0, 1, 1], [None, None, None, 1, 0.5]
    made = tree_values(parent, reward)
    assert made.n_leaves.tolist() == [2, 2, 0, 1, 1]
    assert made.value[0] == 0.75
    assert np.isnan(made.value[2])
    assert tree_advantages(parent, reward).node_advantage[2] == 0
    assert not tree_advantages([-1, 0], [None, 1.0]).mixed
    assert tree_advantages([-1], [None]).node_advantage.tolist() == [0]
    with pytest.raises(ValueError, match="stand before"):
        tree_values([1, -1], [1, None])


def test_a_flat_group_gets_what_grpo_gives() -> None:
    reward = [None, 1, 0, 0, 1]
    made = tree_advantages([-1, 0, 0, 0, 0], reward, 0.0)
    assert made.node_advantage[1:].tolist() == [1, -1, -1, 1]


def test_thirty_steps_of_a_simulation() -> None:
    method, world = Trace(), SimWorld(n_prompts=200, n_eval=4)
    steps = list(run(Pipeline(Grpo(), method), world, Budget(8, 64), steps=30))
    assert {done.plan.n_rollouts for _, done in steps} == {64}
    uniform = [done for _, done in run(Pipeline(Grpo()), SimWorld(n_prompts=200, n_eval=4), Budget(8, 64), steps=30)]

    def mixed(done: object) -> float:
        groups = [done.rollouts.correct[done.rollouts.group == g] for g in np.unique(done.rollouts.group)]
        return np.mean([0 < g.mean() < 1 for g in groups])

    assert np.mean([mixed(d) for _, d in steps[10:]]) > np.mean([mixed(d) for d in uniform[10:]])


def test_a_million_prompts_and_a_large_batch() -> None:
    method = Trace()
    state = method.init(pool_of(2))._replace(right=np.zeros(10**6), wrong=np.zeros(10**6))
    draft = Draft(1, Budget(16, 128), np.ones(10**6, bool), np.empty(0, np.int64), wanted=16)
    assert len(method.select(state, draft, np.random.default_rng(0)).rows) == 16
    made = root_allocation(np.random.default_rng(0).random(10_000), 80_000, 2, 80_000)
    assert made.spent == 80_000


def test_one_hard_prompt_among_hopeless_ones_may_have_all() -> None:
    """Far beyond the mean group size, where the large table is filled step by step."""
    rates = np.array([0.001, *[0.0] * 19])
    assert _greedy_roots(rates, 100, 2, 200).m.tolist() == [100, *[0] * 19]
    assert _greedy_roots(rates, 100, 2, 64).m.tolist() == [64, *[0] * 19]
