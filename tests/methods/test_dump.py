import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.counts import dump_run as replayed
from tests.vectors.counts import learnability, window_append
from workbench.methods.dump import Bandit, Dump, spread, ucb_and_probs
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, pool_of
from workbench.types import Budget, Draft, Pool
from workbench.worlds.sim.world import SimWorld


def test_windows_at_their_edges() -> None:
    assert window_append([], [], 3).tolist() == []
    assert window_append([1], [2, 3, 4, 5], 3).tolist() == [3, 4, 5]
    assert learnability([]) == 0.0


def test_a_source_never_drawn_gains_as_others_are() -> None:
    few, many = (ucb_and_probs([0.5, 0.0], [n, 0], 0.1) for n in (10, 10_000))
    assert many.ucb[1] > few.ucb[1]
    assert many.probs[1] > few.probs[1]


def test_one_source_and_none() -> None:
    assert ucb_and_probs([0.3], [7], 0.1).probs.tolist() == [1.0]
    assert ucb_and_probs([], [], 0.1).probs.tolist() == []


def test_errors() -> None:
    with pytest.raises(ValueError, match="must be positive, got tau=0"):
        ucb_and_probs([1.0], [1], 0)
    with pytest.raises(ValueError, match="advantages of c, but the sources are a, b"):
        replayed(["a", "b"], [{"c": [1.0]}])


def test_an_empty_update_changes_nothing() -> None:
    one, two = replayed(["a", "b"], [{"a": [1.0]}, {}])
    assert one.probs.tolist() == two.probs.tolist()
    assert two.counts.tolist() == [1, 0]


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 5000)), min_size=1, max_size=8), st.floats(0.01, 10))
def test_probabilities_sum_to_one_and_follow_the_bound(arms: list, tau: float) -> None:
    worth, counts = zip(*arms, strict=True)
    got = ucb_and_probs(worth, counts, tau)
    assert np.isclose(got.probs.sum(), 1)
    order = np.argsort(got.ucb)
    assert (np.diff(got.probs[order]) >= -1e-12).all()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 40), st.integers(0, 5))
def test_places_are_filled_while_candidates_last(source: list[int], places: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    got = spread(np.array([0.97, 0.01, 0.02, 0.0]), np.array(source), rng.random(len(source)), places, rng)
    assert len(got) == len(set(got.tolist())) == min(places, len(source))


@pytest.mark.parametrize("window", [5, 300])
def test_rings_are_windows(window: int) -> None:
    world = ScriptedWorld(12)
    done = [step for _, step in run(Pipeline(Grpo()), world, Budget(4, 16), steps=6)]
    method = Dump(window=window)
    state = method.init(world.pool)
    by_source, label = [], np.unique(world.pool.stratum.astype(str), return_inverse=True)[1]
    for step in done:
        state = method.observe(state, step)
        rows = step.rollouts.plain
        source, value = label[step.rollouts.prompt[rows]], step.advantage.value[rows]
        by_source.append({d: value[source == i] for i, d in enumerate("ab")})
    last = replayed(["a", "b"], by_source, window)[-1]
    assert np.allclose(state.learnability, last.learnability)
    assert state.counts.tolist() == last.counts.tolist()


def test_prompts_without_a_label() -> None:
    pool = pool_of(3)
    pool = Pool(**{**vars(pool), "stratum": np.array(["", "", "x"], dtype=object)})
    assert Dump().init(pool).source.tolist() == [0, 0, 1]


def test_places_go_where_advantages_are_large() -> None:
    n = 400
    source = np.arange(n) % 2
    window = np.stack([np.full(300, 0.05), np.tile([1.0, -1.0], 150)])
    state = Bandit(source, window, np.array([5000, 5000]), np.zeros(2), np.zeros(2))
    draft = Draft(1, Budget(16, 128), np.ones(n, bool), np.empty(0, np.int64), wanted=16)
    assert (Dump().select(state, draft, np.random.default_rng(0)).rows % 2 == 1).all()


def test_a_simulated_run_draws_less_where_nothing_is_learned() -> None:
    world = SimWorld(n_prompts=400, seed=2)
    for states, _ in run(Pipeline(Grpo(), Dump()), world, Budget(16, 128), steps=60):
        shown = Dump().reveal(states["dump"])
    assert states["dump"].counts.sum() == 60 * 128
    best, worst = shown["learnability"].argmax(), shown["learnability"].argmin()
    assert shown["count"][best] > 1.2 * 60 * 128 / 5 > shown["count"][worst]
