import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vectors.estimates import v0_lite_predict
from workbench.methods.grpo import Grpo
from workbench.methods.v0 import V0, exact_allocation, greedy_allocation, utility
from workbench.pipeline import Pipeline, run
from workbench.types import Budget
from workbench.worlds.sim.world import SimWorld

rates = st.lists(st.floats(0, 1), min_size=1, max_size=6)


@given(rates, st.integers(0, 20))
@settings(deadline=None)
def test_budgets_add_up_and_the_exact_split_is_at_least_as_good(p: list[float], extra: int) -> None:
    total = 2 * len(p) + extra
    greedy, exact = greedy_allocation(p, total, 2, 9), exact_allocation(p, total, 2, 9)
    for made in (greedy, exact):
        assert made.budget.sum() + made.unspent == total
        assert made.budget.min() >= 2
        assert made.budget.max() <= 9
    assert exact.utility.sum() >= greedy.utility.sum() - 1e-9


def test_greedy_starves_a_hard_prompt_that_the_exact_split_floods() -> None:
    greedy, exact = greedy_allocation([0.03, 0.9], 64, 2, 62), exact_allocation([0.03, 0.9], 64, 2, 62)
    assert exact.utility.sum() >= greedy.utility.sum()
    gain = np.diff(utility(np.arange(2, 30), 0.03))
    assert gain[5] > gain[0]  # not concave


def test_settled_prompts_leave_rollouts_unspent() -> None:
    made = greedy_allocation([0.0, 1.0, 0.5], 30, 2, 8)
    assert made.budget.tolist() == [2, 2, 8]
    assert made.unspent == 18


def test_errors_name_the_numbers() -> None:
    with pytest.raises(ValueError, match="3 rollouts cannot give 2 prompts 2"):
        greedy_allocation([0.5, 0.5], 3)
    with pytest.raises(ValueError, match="success rates"):
        greedy_allocation([0.5, np.nan], 8)


def test_recency_fades_old_entries() -> None:
    x = [[1.0, 0.0]]
    old = v0_lite_predict(x, x, [8], [8], [5], 0.1, 2.0, 0.5)
    new = v0_lite_predict(x, x, [8], [8], [0], 0.1, 2.0, 0.5)
    assert old.alpha[0] < new.alpha[0]


@pytest.mark.parametrize("features", ["embedding", "family", "prompt"])
def test_thirty_steps_of_a_simulation(features: str) -> None:
    world = SimWorld(n_prompts=120, n_eval=8)
    method = V0(features=features)
    steps = list(run(Pipeline(Grpo(), method), world, Budget(8, 64), steps=30))
    assert {done.plan.n_rollouts for _, done in steps} == {64}
    shown = method.reveal(steps[-1][0]["v0"])
    assert np.corrcoef(shown["mean"], world.pass_rate())[0, 1] > 0.1


def test_ten_thousand_prompts_at_once() -> None:
    p = np.random.default_rng(0).random(10_000)
    made = greedy_allocation(p, 80_000)
    assert made.budget.sum() == 80_000
