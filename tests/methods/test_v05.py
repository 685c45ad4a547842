import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.counts import sequential
from workbench.methods.grpo import Grpo
from workbench.methods.v05 import V05, fuse, gain
from workbench.numerics.predictors import Context
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import draft_of, pool_of, rollouts_of
from workbench.types import Advantage, Budget
from workbench.worlds.sim.world import SimWorld

binary = st.lists(st.sampled_from([-1.0, 1.0]), min_size=1, max_size=40)


@given(binary, st.floats(-1, 1))
def test_sampling_can_reach_sixteen_and_stops_there(rewards: list[float], v: float) -> None:
    """With c = 1/256 the cap follows from the rule itself."""
    made = sequential(rewards, v, 4, 1000, 1 / 256)
    assert made.k_final <= 16
    mean = np.mean(rewards[: made.k_final])
    assert min(mean, v) - 1e-9 <= made.baseline <= max(mean, v) + 1e-9
    assert len(made.advantages) == made.k_final


def test_the_largest_gain_is_s_over_k_k_plus_one() -> None:
    assert np.isclose(gain(1e12, 5, 0.25), 0.25 / 30)
    assert gain(1e12, 4, 1.0, "derivative") > gain(1e12, 4, 1.0)
    with pytest.raises(ValueError, match="no mode"):
        gain(1.0, 4, 1.0, "other")


def test_a_range_of_nothing_and_a_prior_that_fits() -> None:
    assert fuse(0.5, 0.5, 4, 0.0) == (0.0, 0.0, 0.5, 0.0)
    assert gain(fuse(0.0, 0.4, 4, 1.0).deviation_sq, 4, 1.0) == 0


def test_streams_at_their_edges() -> None:
    assert sequential([1.0, None, -1.0], -1.0, 2).k_final == 2
    alone = sequential([1.0, 0.0, 1.0, 0.0], None, r_min=0.0)
    assert alone.trace[0].weight == 1.0
    assert alone.advantages.tolist() == [0.5, -0.5, 0.5, -0.5]
    for wrong in ({"k_init": 0}, {"r_min": 0.5}):
        with pytest.raises(ValueError, match=r"."):
            sequential([0.0, 1.0], 0.5, **wrong)
    with pytest.warns(UserWarning, match="did not converge"):
        V05(k_init=2)


def surprised(method: V05) -> object:
    """Prompt 0 always failed so far, prompt 1 always succeeded."""
    state = method.init(pool_of(2))
    context = Context.empty().add(np.arange(2), np.array([0.0, 8.0]), np.full(2, 8.0), 1, 9)
    return state._replace(known=state.known._replace(context=context))


def test_a_settled_group_that_surprises_has_a_gradient() -> None:
    method = V05(features="prompt")
    draft = draft_of(rollouts_of([[1, 1, 1, 1], [1, 1, 1, 1]]))
    made = method.estimate(surprised(method), Advantage.start(draft.rollouts), draft, np.random.default_rng(0))
    assert made.value[0] > 0
    assert 0 <= made.value[4] < 0.11
    assert np.allclose(made.baseline + made.value, 1)


def test_more_only_where_the_prior_is_contradicted() -> None:
    method = V05(features="prompt")
    draft = draft_of(rollouts_of([[1, 1, 1, 1], [1, 1, 1, 1]]))
    plan = method.allocate(surprised(method), draft, np.random.default_rng(0))
    assert plan.prompt.tolist() == [0]
    assert plan.n.tolist() == [1]


def test_thirty_steps_of_a_simulation() -> None:
    method, world = V05(), SimWorld(n_prompts=120, n_eval=8)
    steps = [done for _, done in run(Pipeline(Grpo(), method), world, Budget(8, 64), steps=30)]
    spent = np.array([done.plan.n_rollouts for done in steps])
    assert (spent >= 32).all()
    assert (spent <= 64).all()
    assert spent.min() < 64
    assert max(done.plan.round.max() for done in steps) > 1
    sizes = np.concatenate([np.bincount(done.rollouts.group) for done in steps])
    assert sizes.min() == 4
    assert 4 < sizes.max() <= 16
