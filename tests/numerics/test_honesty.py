"""Numerical honesty: what every estimator and objective of the catalog does at the edges of arithmetic."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vectors.losses import policy_loss
from workbench.methods.dapo_dynamic_sampling import DapoDynamicSampling
from workbench.methods.dr_grpo import DrGrpo
from workbench.methods.gdpo import Gdpo
from workbench.methods.grpo import Grpo
from workbench.methods.grpo_roc import GrpoRoc
from workbench.methods.mc_grpo import McGrpo
from workbench.methods.reinforce_pp import ReinforcePp
from workbench.methods.rloo import Rloo
from workbench.numerics.estimators import group_advantages
from workbench.pipeline import catalog
from workbench.stages import Method
from workbench.testing.scripted import draft_of, pool_of, rollouts_of
from workbench.types import Advantage, Batch, Loss, Ragged

ESTIMATORS = catalog.find("estimate")
OBJECTIVES = sorted({*catalog.find("loss"), *catalog.find("penalty")})

CENTRED = [Grpo(), DrGrpo(), Rloo()]
"""Advantages that sum to zero in every group."""

rewards = st.lists(st.lists(st.integers(0, 8).map(lambda k: k / 8), min_size=1, max_size=6), min_size=1, max_size=4)


SETTINGS = {"trace": {"continuations": 2}}
"""What a method needs set to act at estimate at all."""


def method_of(slug: str) -> Method:
    return catalog.make(slug, **SETTINGS.get(slug, {}))


def estimate(method: Method, groups: list[list[float | None]]) -> Advantage:
    """A method behind GRPO, as in a pipeline, on a table of plain rollouts."""
    r = rollouts_of(groups)
    ones = Ragged(np.ones(len(r), np.float32), np.arange(len(r) + 1))
    parts = {"exact": r.reward, "format": 0 * r.reward}
    r = r.with_(length=np.ones(len(r), np.int64), entropy=ones, logp=Ragged(-ones.values, ones.offsets), rewards=parts)
    draft, rng = draft_of(r), np.random.default_rng(0)
    made = Grpo().estimate((), Advantage.start(r), draft, rng)
    if isinstance(method, Grpo):
        made = Advantage.start(r)
    return method.estimate(method.init(pool_of(64)), made, draft, rng)


def acting(method: Method, groups: list[list[float | None]]) -> np.ndarray:
    made = estimate(method, groups)
    return np.where(made.keep, made.value, 0.0)


HARD: list[list[list[float | None]]] = [
    [[1.0, 1.0, 1.0], [0.0, 0.0]],  # all alike
    [[0.1] * 3, [0.3] * 7],  # alike, with a float std that is not 0
    [[0.7], [0.0], [1.0]],  # groups of one
    [[0.5, 0.5 + 1e-12], [1.0, 0.0]],  # a difference near the end of float64
    [[None, None], [None, 1.0]],  # nothing scored, one scored
    [[1.0, 0.0, 0.0, 0.0]],
]


@pytest.mark.parametrize("slug", ESTIMATORS)
def test_every_estimator_is_finite_and_bounded_on_hard_groups(slug: str) -> None:
    for groups in HARD:
        made = estimate(method_of(slug), groups)
        assert np.isfinite(made.value[made.keep]).all(), groups
        assert np.abs(made.value[made.keep]).max(initial=0) < 1e4, groups
        assert (made.value[~np.isfinite(np.array([r for g in groups for r in g], float))] == 0).all(), groups


@pytest.mark.parametrize("method", [*CENTRED, McGrpo(), Gdpo()], ids=repr)
def test_settled_groups_and_groups_of_one_get_exactly_zero(method: Method) -> None:
    assert not acting(method, [[0.1] * 3, [0.3] * 7, [0.7]]).any()


@pytest.mark.parametrize("method", CENTRED, ids=repr)
def test_a_difference_of_1e_12_is_not_blown_up(method: Method) -> None:
    a, b = acting(method, [[0.5, 0.5 + 1e-12]])
    assert a == pytest.approx(-b, rel=1e-3, abs=0)  # the mean of the two is rounded
    assert 0 < b <= 2e-8  # GRPO's eps of 1e-4 stands in the divisor


@pytest.mark.parametrize("method", CENTRED, ids=repr)
@given(rewards)
@settings(max_examples=30, deadline=None)
def test_advantages_sum_to_zero_in_every_group(method: Method, groups: list[list[float]]) -> None:
    made = estimate(method, groups)
    sums = np.bincount(np.repeat(np.arange(len(groups)), [len(g) for g in groups]), made.value)
    assert np.abs(sums).max() < 1e-9


@pytest.mark.parametrize("method", [*CENTRED, McGrpo(), ReinforcePp(), ReinforcePp(baseline=True)], ids=repr)
@given(rewards, st.sampled_from([-3.0, 0.5, 16.0]))
@settings(max_examples=30, deadline=None)
def test_a_constant_added_to_all_rewards_changes_nothing(
    method: Method, groups: list[list[float]], shift: float
) -> None:
    moved = [[r + shift for r in g] for g in groups]
    assert np.allclose(acting(method, moved), acting(method, groups), atol=1e-6)


@pytest.mark.parametrize("method", [DrGrpo(), Rloo()], ids=repr)
@given(rewards, st.sampled_from([0.25, 4.0]))
@settings(max_examples=30, deadline=None)
def test_unscaled_estimators_scale_with_the_rewards(method: Method, groups: list[list[float]], scale: float) -> None:
    assert np.allclose(acting(method, [[r * scale for r in g] for g in groups]), scale * acting(method, groups))


@given(rewards, st.sampled_from([0.25, 4.0]))
@settings(max_examples=30, deadline=None)
def test_scaled_estimators_do_not(groups: list[list[float]], scale: float) -> None:
    scaled = [[r * scale for r in g] for g in groups]
    assert np.allclose(acting(Grpo(eps=0.0), scaled), acting(Grpo(eps=0.0), groups))
    assert np.allclose(acting(ReinforcePp(eps=0.0), scaled), acting(ReinforcePp(eps=0.0), groups))


ORDERED = {"mc_grpo", "grpo_roc", "d3s", "sapo", "dart"}
"""Methods that break ties by row or draw at random: not a matter of the rewards alone."""


@pytest.mark.parametrize("slug", [s for s in ESTIMATORS if s not in ORDERED])
def test_the_order_of_rollouts_in_a_group_does_not_matter(slug: str) -> None:
    group, order = [1.0, 0.0, 0.25, 0.75, 0.5], np.array([3, 0, 4, 2, 1])
    straight = estimate(method_of(slug), [group, [0.0, 1.0]])
    turned = estimate(method_of(slug), [[group[i] for i in order], [0.0, 1.0]])
    assert np.allclose(turned.value[:5], straight.value[:5][order])
    assert turned.keep[:5].tolist() == straight.keep[:5][order].tolist()


@pytest.mark.parametrize("method", [DrGrpo(), Rloo()], ids=repr)
def test_leave_one_out_of_one_success_in_four(method: Method) -> None:
    scale = 4 / 3 if isinstance(method, Rloo) else 1.0
    assert acting(method, [[1.0, 0.0, 0.0, 0.0]]).tolist() == pytest.approx([0.75 * scale, *[-0.25 * scale] * 3])


def test_filters_act_on_whole_groups_or_on_single_rows_as_they_say() -> None:
    groups = [[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.0]]
    made = estimate(DapoDynamicSampling(), groups)
    assert made.keep.tolist() == [False, False, True, True, False, False, False]
    kept = estimate(GrpoRoc(), [[1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0], [1.0, 0.0]]).keep
    assert len(kept) == 10  # rows are dropped inside a group, never moved between groups


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "batch_std", "rpp_baseline"])
def test_low_precision_turns_no_sign_and_loses_no_advantage(dtype: torch.dtype, estimator: str) -> None:
    reward = np.random.default_rng(0).choice([0, 0.1, 0.3, 1.0], 400)
    exact = group_advantages(reward, np.repeat(np.arange(50), 8), estimator).advantages
    low = torch.tensor(exact).to(dtype).double().numpy()
    assert (np.sign(low) == np.sign(exact)).all()
    relative = 2**-8 if dtype == torch.bfloat16 else 2**-23
    assert np.allclose(low, exact, rtol=relative, atol=0)


def test_rewards_rounded_to_bfloat16_before_the_mean_do_lose_small_differences() -> None:
    reward = torch.tensor([1.0, 1.0 + 1e-3], dtype=torch.bfloat16).double().numpy()
    assert group_advantages(reward, [0, 0]).zero_std[0]  # why rewards stay in float64 until the advantage is made


def batch_of(gap: float, mask: list[list[float]], advantage: float = 1.0) -> Batch:
    valid = torch.tensor(mask, dtype=torch.float64)
    b, t = valid.shape
    logp = torch.full((b, t), -21.0, dtype=torch.float64, requires_grad=True)
    old = logp.detach() - gap
    a = torch.full((b, t), advantage, dtype=torch.float64)
    entropy = torch.full((b, t), 0.5, dtype=torch.float64, requires_grad=True)
    top = torch.full((b, t, 3), -1.5, dtype=torch.float64)
    extra = {"teacher_logp": old, "student_topk_logp": top.clone().requires_grad_(), "teacher_topk_logp": top}
    extra["plain_logp"] = logp  # nobody had a hint
    return Batch(logp, old, old, a, valid, entropy, torch.arange(b), extra)


def losses(slug: str, batch: Batch) -> list[Loss]:
    method = method_of(slug)
    state = method.init(pool_of(24))
    return [getattr(method, v)(state, batch) for v in ("loss", "penalty") if v in method.verbs]


@pytest.mark.parametrize("slug", OBJECTIVES)
def test_ratios_of_e20_give_finite_losses_and_gradients(slug: str) -> None:
    for gap, advantage in product((20.0, -20.0), (1.0, -1.0)):
        batch = batch_of(gap, [[1, 1, 0], [1, 0, 0]], advantage)
        for made in losses(slug, batch):
            (made.term * batch.mask).sum().backward()
            assert torch.isfinite(made.term).all(), (gap, advantage)
            assert batch.logp.grad is None or torch.isfinite(batch.logp.grad).all(), (gap, advantage)


@pytest.mark.parametrize("slug", OBJECTIVES)
def test_an_empty_mask_gives_a_loss_of_zero(slug: str) -> None:
    batch = batch_of(0.1, [[0, 0, 0], [0, 0, 0]])
    for made in losses(slug, batch):
        assert float((made.term * batch.mask).sum().detach()) == 0
        assert torch.isfinite(made.term).all()
        for name, value in made.stats.items():
            assert not value.requires_grad, name


@pytest.mark.parametrize("kind", ["ppo", "gspo", "cispo_trl", "cispo_verl"])
@pytest.mark.parametrize("agg", ["seq_mean", "token_mean", "const_len"])
def test_the_loss_of_an_empty_mask_is_zero(kind: str, agg: str) -> None:
    made = policy_loss([[-1.0]], [[-2.0]], [1.0], [[0]], kind, agg=agg, max_len=4)
    assert (made["loss"], made["clip_frac"], made["grad_logp"].tolist()) == (0.0, 0.0, [[0.0]])
