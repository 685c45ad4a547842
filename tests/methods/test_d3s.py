from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.counts import cross_group_select, token_topk
from workbench.methods.d3s import D3s, schedule, select_max_variance
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import draft_of, rollouts_of
from workbench.types import Advantage, Budget, Ragged
from workbench.worlds.sim.world import SimWorld

RNG = np.random.default_rng(0)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8), st.integers(1, 8))
def test_no_other_subset_varies_more(values: list, n: int) -> None:
    got = select_max_variance(values, n)
    k = min(n, len(values))
    best = max(np.var(np.array(values, float)[list(s)]) for s in combinations(range(len(values)), k))
    assert len(got.indices) == k
    assert abs(got.variance - best) < 1e-9


def test_edges_of_the_selection() -> None:
    assert select_max_variance([1.0, 2.0], 0).indices.tolist() == []
    assert select_max_variance([1.0, 3.0, 2.0], 1).indices.tolist() == [1]
    assert select_max_variance([0.5] * 4, 2).indices.tolist() == [0, 1]
    assert select_max_variance([1.0, 2.0], 9).indices.tolist() == [0, 1]
    assert select_max_variance([], 3).variance == 0
    assert cross_group_select([1, None, 0], [0, 0, 0], 3).indices.tolist() == [0, 2]


def test_tokens_at_the_edges() -> None:
    assert token_topk([1.0], [[1.0, 2.0]], [[1, 1]], 0.0).token_mask.tolist() == [[0, 1]]
    none = token_topk([1.0], [[1.0, 2.0]], [[0, 0]], 0.5)
    assert (none.kept, none.token_mask.tolist()) == (0, [[0, 0]])
    assert token_topk([1.0, -1.0], [[1.0, 1.0], [1.0, 1.0]], [[1, 1], [1, 1]], 0.5).token_mask.tolist() == [
        [1, 1],
        [0, 0],
    ]
    assert token_topk([1.0], [[1.0] * 5], [[1] * 5], 0.6).kept == 3


def test_the_schedule_rounds_half_up_and_ends() -> None:
    assert schedule(0.5, 1, 4, 0, 1).n == 3
    assert schedule(2.0, 1, 4, 0, 1) == (4, 1.0)


def test_rollouts_and_tokens_leave_the_loss() -> None:
    rollouts = rollouts_of([[1, 0, 0, 0], [1, 1, 1, 1]])
    entropy = Ragged.of([[0.1, 0.9]] * 8, np.float32)
    rollouts = rollouts.with_(entropy=entropy, length=np.full(8, 2))
    draft = draft_of(rollouts)
    start = Grpo().estimate((), Advantage.start(rollouts), draft, RNG)
    got = D3s(k_init=0.5).estimate((), start, draft, RNG)
    assert np.flatnonzero(got.keep).tolist() == [0, 1]
    assert (got.reason[2:] == "low_variance").all()
    assert got.tokens is not None
    assert np.flatnonzero(got.tokens.values).tolist() == [1, 3]
    assert np.allclose(got.tokens.values[[1, 3]], 2 * start.value[:2])


def test_at_the_end_all_are_trained_on() -> None:
    rollouts = rollouts_of([[1, 0, 0, 0]])
    draft = draft_of(rollouts).with_(step=101)
    start = Grpo().estimate((), Advantage.start(rollouts), draft, RNG)
    got = D3s().estimate((), start, draft, RNG)
    assert got.keep.all()
    assert got.tokens is None


def test_ten_thousand_rollouts_are_chosen_like_few() -> None:
    got = select_max_variance(np.random.default_rng(0).standard_normal(10_000), 1000)
    assert len(got.indices) == 1000
    assert 450 < got.n_top < 550


def test_shares_are_checked() -> None:
    with pytest.raises(ValueError, match="k_init=2"):
        D3s(k_init=2)


def test_thirty_steps_of_a_simulation() -> None:
    world = SimWorld(n_prompts=40, n_eval=8)
    kept = [d.advantage.keep.sum() for _, d in run(Pipeline(Grpo(), D3s(steps=29)), world, Budget(8, 64), steps=30)]
    assert kept[0] == 16
    assert kept[-1] == 64
