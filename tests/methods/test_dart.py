import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.counts import pool_fix
from tests.vectors.losses import token_loss
from workbench.methods.dart import Dart, pushed, rollout_count, success_rate
from workbench.methods.grpo import Grpo
from workbench.numerics.replay import stored
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import draft_of, pool_of, rollouts_of
from workbench.types import Budget
from workbench.worlds.sim.world import SimWorld


@given(st.floats(0, 1), st.integers(2, 16))
def test_group_sizes_fall_with_success(rate: float, n_max: int) -> None:
    n = rollout_count([rate, min(rate + 0.05, 1.0)], n_max, 1, 0.6)
    assert n[0] >= n[1]
    assert 1 <= n[1] <= n_max


def test_rates_at_their_edges() -> None:
    assert rollout_count(0.0, threshold=0.0) == 8
    assert success_rate([None, -1, 1, 0], 4) == (0.5, 2)
    assert success_rate([], 4) == (0.0, 0)
    assert success_rate([-1, -2], 2) == (0.0, 0)


def test_groups_without_any_success_are_dropped() -> None:
    failed = [{"id": "a", "reward": 0, "t": 1}]
    assert pool_fix(failed, []) == {"action": "drop", "ids": []}
    assert pool_fix([{"id": "a", "reward": 0.1, "t": 1}], []) == {"action": "keep", "ids": ["a"]}


def test_without_recorded_log_probabilities_the_weight_is_one() -> None:
    for unknown in (None, [0.0, 0.0]):
        assert token_loss([-1.0, -2.0], [-1.5, -1.0], unknown, 1.0)["tis_weight"].tolist() == [1, 1]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=12))
def test_the_newest_outcomes_stand_in_front(events: list) -> None:
    recent = np.full((3, 4), -1, np.int8)
    half = len(events) // 2
    for part in (events[:half], events[half:]):
        recent = pushed(recent, np.array([p for p, _ in part], np.int64), np.array([o for _, o in part], np.int8))
    for prompt in range(3):
        newest = [o for p, o in events if p == prompt][::-1][:4]
        assert recent[prompt].tolist() == newest + [-1] * (4 - len(newest))


def test_a_failed_group_is_rescued_and_its_oldest_failure_leaves_the_loss() -> None:
    method = Dart()
    won = stored([rollouts_of([[1], [1]])])
    state = method.init(pool_of(3))._replace(pool=won.with_(group=won.prompt, id=np.array(["x", "y"], dtype=object)))
    rows = rollouts_of([[0, 0, 0], [0, 1, 0], [0, 0]])
    draft, rng = draft_of(rows, 3), np.random.default_rng(0)
    more = method.replay(state, rows, draft, rng)
    assert more.id[8:].tolist() == ["x"]
    assert more.group.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 0]
    assert method.admit(state, more, draft).tolist() == [False] + [True] * 8
    assert method.replay(state._replace(pool=None), rows, draft, rng) is rows


def test_thirty_steps_of_a_simulation() -> None:
    method, world = Dart(), SimWorld(n_prompts=40, n_eval=8)
    steps = list(run(Pipeline(Grpo(), method), world, Budget(8, 64), steps=30))
    spent = [done.plan.n_rollouts for _, done in steps]
    assert spent[0] == 64
    assert min(spent) < 64
    last, state = steps[-1][1], steps[-1][0]["dart"]
    rescued = sum((done.rollouts.ask < 0).sum() for _, done in steps)
    assert rescued > 0
    assert (last.fate_reason == "not_admitted").sum() == (last.rollouts.ask < 0).sum()
    assert (state.pool.prompt == np.unique(state.pool.prompt)).all()
