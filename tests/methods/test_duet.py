import numpy as np
import pytest
from contract.scripted import draft_of, rollouts_of
from hypothesis import given
from hypothesis import strategies as st

from workbench.methods.duet import (
    Duet,
    abort_decision,
    allocation,
    budget_trim,
    checkpoints,
    make_divisible,
    sigma_obs,
    snips_weight,
    stop_threshold,
    welford,
)
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.types import Advantage, Budget, Plan
from workbench.worlds.sim import SimWorld

sizes = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(sizes, st.integers(0, 3000))
def test_trimming_equals_one_rollout_at_a_time(n: list[int], target: int) -> None:
    length = np.array([100.0, 300.0, 50.0, 300.0, 20.0, 70.0])[: len(n)]
    want, trims = np.array(n), 0
    while (want * length).sum() > target and trims < 4 * len(n) and (want > 1).any():
        want[np.argmax(np.where(want > 1, length, -1))] -= 1
        trims += 1
    made = budget_trim(n, length, target)
    assert made.n.tolist() == want.tolist()
    assert made.trims == trims


@given(sizes, st.integers(1, 7), st.integers(1, 2))
def test_sums_divide(n: list[int], divisor: int, n_min: int) -> None:
    n = [max(x, n_min) for x in n]
    made = make_divisible(n, divisor, n_min)
    assert made.n.sum() % divisor == 0
    assert made.n.min() >= n_min
    assert abs(int(made.n.sum()) - sum(n)) < divisor
    assert made.mode == ("none" if sum(n) % divisor == 0 else "trim" if made.n.sum() < sum(n) else "pad")


def test_all_at_the_least_are_padded() -> None:
    assert make_divisible([1, 1, 1], 5).n.tolist() == [2, 2, 1]


@given(st.lists(st.floats(0.1, 9), min_size=1, max_size=8), st.floats(0.1, 1))
def test_a_larger_spread_never_gets_less(s: list[float], budget: float) -> None:
    made = allocation(np.sort(s), np.full(len(s), 100.0), budget, 800.0 * len(s))
    assert (np.diff(made.n) >= 0).all()
    assert ((made.p_pre >= 0.05) & (made.p_pre <= 1)).all()


def test_budgets_at_their_edges() -> None:
    assert allocation([1.0, 1.0], [1e6, 1e6], 0.5, 10.0).n.tolist() == [1, 1]
    with pytest.raises(ValueError, match="no prompts"):
        allocation([], [], 0.5, 100.0)
    with pytest.raises(ValueError, match="budget=2"):
        Duet(budget=2.0)


def test_small_parts() -> None:
    assert stop_threshold([1.0], [10.0], 0.5, 0.9).tolist() == [0.7]
    assert checkpoints([5] * 31) is None
    assert checkpoints([5] * 32) == (32, 82)
    assert checkpoints(range(1000)) == (299, 799)
    assert sigma_obs([1.0, -1.0], [-3.0, -4.0], [True, False]) is None
    assert sigma_obs([1.0, -1.0], [-np.inf, -4.0], [True, True]) is None
    assert snips_weight([0.01], [False], [False]).weight.tolist() == [20.0]
    assert snips_weight([0.001, 1.0], [True, False], [True, False], 0.001, 0.05, 1000).weight.tolist() == [1000, 1]
    assert abort_decision([850, 849], [False, False], [0.05, 0.5], 700).tolist() == ["abort", "continue"]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9))
def test_welford(values: list[float]) -> None:
    made = welford(values)
    assert made.n == len(values)
    assert np.isclose(made.mean, np.mean(values))
    assert np.isclose(made.M2, np.var(values) * len(values), atol=1e-9)


def test_small_groups_weigh_more() -> None:
    rows = rollouts_of([[1, 0], [1, 0]])
    plan = Plan(np.arange(2), [2, 2], why={"p_pre": np.array([0.5, 1.0])})
    draft = draft_of(rows.with_(ask=rows.prompt)).with_(plan=plan)
    start = Advantage.start(rows)
    value = Duet().estimate((), type(start)(rows.reward, *list(vars(start).values())[1:]), draft, None).value
    assert value.tolist() == [2, 0, 1, 0]


def test_thirty_steps_of_a_simulation() -> None:
    method, world = Duet(), SimWorld(n_prompts=60, n_eval=4)
    steps = list(run(Pipeline(Grpo(), method), world, Budget(8, 64), steps=30))
    spent = np.array([done.plan.n_rollouts for _, done in steps])
    assert (spent <= 64).all()
    assert 0.35 * 64 < spent.mean() < 0.65 * 64
    shown = method.reveal(steps[-1][0]["duet"])
    assert shown["spread"].min() >= 0.25
    assert len(np.unique(np.concatenate([done.plan.n for _, done in steps]))) > 3
