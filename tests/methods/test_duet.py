import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.estimates import sigma_obs
from workbench.methods.duet import Duet
from workbench.methods.duet.pricing import (
    Moments,
    abort_decision,
    allocation,
    budget_trim,
    checkpoints,
    make_divisible,
    snips_weight,
    stop_threshold,
)
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import draft_of, rollouts_of
from workbench.types import Advantage, Budget, Frontier, Plan, Ragged
from workbench.worlds.sim.world import SimWorld

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
    made = Moments(np.zeros(1, np.int64), np.zeros(1), np.zeros(1))
    for value in values:
        made = made.add(np.zeros(1, np.int64), np.array([value]))
    assert made.n == len(values)
    assert np.isclose(made.mean, np.mean(values))
    assert np.isclose(made.M2, np.var(values) * len(values), atol=1e-9)


def test_small_groups_weigh_more() -> None:
    rows = rollouts_of([[1, 0], [1, 0]])
    plan = Plan(np.arange(2), [2, 2], memory={"duet.p_pre": np.array([0.5, 1.0])})
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


# stop and abort


SHORT = {
    "every": 2,
    "min_tokens": 2,
    "hysteresis": 4,
    "grace": 1,
    "length": 10.0,
}  # k1 = 3, k2 = 7 before lengths are known


def looked(method: Duet, tails: list[str], margin: float, seed: int = 0) -> list[tuple[int, str, str, float]]:
    """One rollout that writes the texts, two tokens each: (width, finish, reason, propensity) at every look."""
    memory, out, one = {}, [], np.zeros(1, np.int64)
    state, rng = method.init(world_pool(4)), np.random.default_rng(seed)
    for k, tail in enumerate(tails, 1):
        empty = Ragged(np.zeros(0, np.float32), np.zeros(2, np.int64))
        top = np.log([[0.5 + margin / 2, 0.5 - margin / 2]])
        frontier = Frontier(
            one,
            one,
            one,
            one - 1,
            one + 2 * k,
            empty,
            empty,
            empty,
            np.array([tail], object),
            9,
            {"top_logp": top},
            memory,
        )
        cut = method.prune(state, frontier, rng)
        memory = cut.memory
        out.append((int(cut.width[0]), str(cut.finish[0]), str(cut.reason[0]), float(cut.propensity[0])))
    return out


def world_pool(n: int):
    return SimWorld(n_prompts=n, n_eval=1).pool


def test_a_rollout_with_its_answer_ends_once_it_was_certain_for_long_enough() -> None:
    method = Duet(markers=("ANSWER",), eps_len=0.0, **SHORT)
    made = looked(method, ["so ANS", "WER 4", " and", " on", " and"], margin=0.98)  # the marker lies across two looks
    assert made[:2] == [(1, "", "", 1.0)] * 2
    assert made[2] == (0, "stop", "certain", 1.0)  # from 4 tokens on: two looks of two tokens
    assert (
        looked(method, ["ANSWER 4"] * 5, margin=0.5) == [(1, "", "", 1.0)] * 5
    )  # the threshold of a lone prompt is 0.745
    spared = Duet(markers=("ANSWER",), eps_len=1.0, **SHORT)
    assert looked(spared, ["ANSWER 4"] * 5, margin=0.98) == [(1, "", "", 1.0)] * 5


def test_a_rollout_without_its_answer_is_given_up_late_but_for_a_few() -> None:
    method = Duet(markers=("ANSWER",), eps_abort=0.5, **SHORT)
    lost = looked(method, ["so"] * 4, margin=0.9, seed=0)
    assert lost == [(1, "", "", 1.0)] * 3 + [(0, "aborted", "no_answer", 0.5)]  # 8 = k2 + grace
    kept = looked(method, ["so"] * 9, margin=0.9, seed=3)
    assert kept == [(1, "", "", 1.0)] * 3 + [(1, "", "", 0.5)] + [(1, "", "", 1.0)] * 5  # judged once


def test_what_was_given_up_is_in_the_mean_and_out_of_the_loss_and_who_was_spared_counts_for_all() -> None:
    rows = rollouts_of([[0.0, 0.0, 1.0, 1.0]])
    rows = rows.with_(
        finish=np.array(["aborted", "stop", "stop", "stop"], object),
        extra={"propensity": np.array([0.05, 0.05, 1.0, 1.0])},
    )
    draft = draft_of(rows)
    start = Advantage.start(rows)
    before = type(start)(np.array([-1.0, -1.0, 1.0, 1.0]), *list(vars(start).values())[1:])
    made = Duet(markers=("x",)).estimate((), before, draft, None)
    assert made.value.tolist() == [0, -20, 1, 1]
    assert made.keep.tolist() == [False, True, True, True]
    assert made.reason[0] == "no_answer"


def test_without_markers_there_is_nothing_to_stop() -> None:
    assert "prune" not in Duet().verbs
    assert Duet().needs == frozenset()
    assert Duet(markers=("x",)).needs == {"top_tokens", "text_tail"}
