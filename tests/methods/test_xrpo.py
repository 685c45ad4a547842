import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.vectors.counts import xrpo_allocation as allocation
from tests.vectors.estimates import xrpo_advantages as advantages
from tests.vectors.estimates import xrpo_score as score
from workbench.methods.grpo import Grpo
from workbench.methods.mc_grpo import McGrpo
from workbench.methods.xrpo import Xrpo, grant
from workbench.numerics.t_intervals import t_quantile, unit_half_widths
from workbench.pipeline import Pipeline, run
from workbench.stages import Only
from workbench.testing.scripted import draft_of, rollouts_of
from workbench.types import Advantage, Budget, Ragged
from workbench.worlds.sim.world import SimWorld

groups = st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=6), min_size=1, max_size=6)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.3])
def test_the_t_law(alpha: float) -> None:
    nu = np.array([1, 2, 3, 9, 40, 300])
    assert np.allclose(t_quantile(alpha, nu), stats.t.ppf(1 - alpha / 2, nu), rtol=1e-11)
    assert np.isnan(unit_half_widths(alpha, 3)[:2]).all()
    assert len(unit_half_widths(alpha, 1)) == 2


def naive(rewards: list, budget: int, lam: float, alpha: float) -> list[int]:
    n = np.array([len(r) for r in rewards])
    std = np.array([np.std(r, ddof=1) if len(r) > 1 and max(r) > min(r) else 0.0 for r in rewards])
    start = n.copy()
    for _ in range(budget):
        if n.min() < 2:
            q = int(np.argmin(n))
        else:
            h = stats.t.ppf(1 - alpha / 2, n - 1) / np.sqrt(n) - stats.t.ppf(1 - alpha / 2, n) / np.sqrt(n + 1)
            q = int(np.argmax(std * h + lam * np.sqrt(np.log1p(n.sum()) / n)))
        n[q] += 1
    return (n - start).tolist()


@given(groups, st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_granting_equals_one_unit_at_a_time(rewards: list, budget: int) -> None:
    made = allocation(rewards, budget, 0.37, 0.05)
    assert made.extra.tolist() == naive(rewards, budget, 0.37, 0.05)
    assert made.unspent == 0


def test_caps_leave_units_unspent() -> None:
    made = allocation([[0, 1], [1]], 9, n_cap=3)
    assert made.n_after.tolist() == [3, 3]
    assert made.unspent == 6
    assert allocation([], 3).unspent == 3


def test_below_two_there_is_no_interval() -> None:
    made = score([[1], [], [0, 1]])
    assert np.isnan(made.half_width[:2]).all()
    assert made.std.tolist()[:2] == [0, 0]
    assert np.isfinite(made.priority[2])


def test_nulls_are_left_out() -> None:
    assert score([[1, None, 0]]).n.tolist() == [2]
    made = advantages([1, None, 0], [-4.0, -1.0, -1.0], [4, 4, 4])
    assert made.advantage[1] == made.sharpened[1] == 0


def test_without_log_probabilities_nothing_is_rare() -> None:
    assert advantages([1, 0, 1, 1], None, [4, 4, 4, 4]).bonus.tolist() == [0, 0, 0, 0]


def test_the_bonus_is_capped_by_the_advantage() -> None:
    made = advantages([1, 1, 0], [-90.0, -1.0, -1.0], [3, 3, 3])
    assert np.isclose(made.bonus[0], 0.5 * made.advantage[0])


def test_rare_correct_answers_gain_in_a_step() -> None:
    draft = draft_of(rollouts_of([[1, 1, 0, 0]]))
    logp = Ragged.of([[-3.0], [-0.1], [-1.0], [-1.0]], np.float32)
    draft = draft.with_(rollouts=draft.rollouts.with_(logp=logp))
    value = Xrpo().estimate((), Advantage.start(draft.rollouts), draft, np.random.default_rng(0)).value
    assert value[0] > value[1] > 0 > value[2]


def test_blocks_come_close_to_single_units(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    n, std = rng.integers(2, 9, 400), rng.random(400)
    one = grant(n, std, 800, 0.5, 0.05)
    monkeypatch.setattr("workbench.methods.xrpo._EXACT", 100)
    many = grant(n, std, 800, 0.5, 0.05)
    assert many.sum() == 800
    assert np.abs(one - many).max() <= 1


def test_thirty_steps_of_a_simulation() -> None:
    world = SimWorld(n_prompts=120, n_eval=8)
    steps = [d for _, d in run(Pipeline(Grpo(), Only(Xrpo(), "allocate"), McGrpo()), world, Budget(8, 64), steps=30)]
    assert max(d.plan.round.max() for d in steps) == 2
    assert {d.plan.n_rollouts for d in steps} == {64}  # one pivot a group among them
    n = np.concatenate([np.bincount(d.rollouts.group) for d in steps])
    assert n.min() >= 4 + 1
    assert n.max() > n.min()
