"""Streams: the same log-probabilities, entropies and gradients as sequences that share their prefix."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.types import Advantage, Loss, Ragged
from workbench.worlds.training.packing import StreamPolicy, fill, stream
from workbench.worlds.training.policy import Lines, Policy

from .conftest import toy_model

PREFIXES = [[5, 6, 7], [3, 4, 5, 6, 7, 8, 9, 10], [12]]
OWNER = np.array([0, 0, 1, 1, 2, 2])
ANSWERS = [[4, 9, 0], [8], [20, 21, 22, 23, 0], [6, 7], [11, 3, 3, 0], [2, 2]]
LINES = Lines(PREFIXES, OWNER, Ragged.of(ANSWERS, np.int32))


@given(st.lists(st.integers(1, 90), min_size=1, max_size=60), st.integers(60, 200))
def test_bins_hold_every_row_once_within_the_budget_and_are_about_as_full(width, budget):
    width = np.array(width)
    bins = fill(width, budget)
    assert sorted(np.concatenate(bins).tolist()) == list(range(len(width)))
    shared = [rows for rows in bins if width[rows].max() <= budget]
    assert all(len(rows) == 1 for rows in bins if width[rows].max() > budget)
    full = [int(width[rows].sum()) for rows in shared]
    assert max(full, default=0) <= budget
    assert len(shared) <= 2 * -(-sum(full) // budget)  # of so many none can be too full
    assert max(full, default=0) - min(full, default=0) <= width.max()


def test_a_stream_names_where_each_token_is_predicted():
    one = stream([[5, 6], [7]], [[1, 2, 3], [4]], 4, torch.device("cpu"))
    assert one.ids.tolist() == [5, 6, 1, 2, 7, 0, 0, 0]
    assert one.position.tolist() == [0, 1, 2, 3, 0, 0, 1, 2]
    assert one.bounds.tolist() == [0, 4, 5, 8]
    assert one.source.tolist() == [1, 2, 3, 4]
    assert one.target.tolist() == [1, 2, 3, 4]
    assert (one.longest, one.lengths.tolist()) == (4, [3, 1])


def advantage() -> Advantage:
    """One value a row, none of them zero."""
    value = np.array([1.0, -1.0, 0.5, -0.5, 2.0, -2.0])
    return Advantage(value, np.ones(6, bool), np.ones(6), np.zeros(6), np.full(6, "", object))


@pytest.mark.parametrize("budget", [16, 64])
def test_streams_measure_and_learn_what_the_plain_policy_does(budget):
    plain, made = Policy(toy_model(), lr=1e-2), StreamPolicy(toy_model(), lr=1e-2, budget=budget, compile=False)
    assert made.logp(LINES).values == pytest.approx(plain.logp(LINES).values, abs=1e-5)

    def loss(batch):
        return Loss(-batch.advantage * batch.logp, reduction="seq_mean", stats={"entropy": batch.entropy})

    expected, done = (policy.update(LINES, advantage(), loss) for policy in (plain, made))
    for name in ("loss", "grad_norm", "entropy", "tokens"):
        assert done[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6)
    assert done["loss_per_rollout"] == pytest.approx(expected["loss_per_rollout"], rel=1e-4)
    for mine, theirs in zip(made.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=2e-4)


def test_one_compilation_is_enough_for_all_lengths(monkeypatch):
    from torch._dynamo.utils import counters

    from workbench.worlds.training import packing

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    packing._compiled.cache_clear()
    counters.clear()
    policies = [StreamPolicy(toy_model(), budget=256, compile=compile) for compile in (True, False)]
    for n in (3, 40, 20, 5):
        tokens = Ragged.of([[3 + i % 9] * (n + i % 4) for i in range(n)], np.int32)
        lines = Lines(PREFIXES, np.arange(n) % 3, tokens)
        value = np.where(np.arange(n) % 2, 1.0, -1.0)
        some = Advantage(value, np.ones(n, bool), np.ones(n), np.zeros(n), np.full(n, "", object))
        one, other = (p.update(lines, some, lambda b: Loss(-b.advantage * b.logp)) for p in policies)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)
    packing._compiled.cache_clear()
    assert counters["stats"]["unique_graphs"] == 3  # before the first attention, between two, after the last


def test_recomputed_streams_have_the_same_gradient_and_run_each_layer_twice(monkeypatch):
    from workbench.worlds.training import packing

    calls, gradients = [], []
    attend = packing.attention
    monkeypatch.setattr(packing, "attention", lambda *a: calls.append(1) or attend(*a))
    for recompute in (False, True):
        policy = StreamPolicy(toy_model(), budget=64, compile=False, recompute=recompute, clip=1e9)
        policy.optimizer.register_step_pre_hook(
            lambda *_, policy=policy: gradients.append(torch.cat([p.grad.flatten() for p in policy.parameters]))
        )
        policy.update(LINES, advantage(), lambda b: Loss(-b.advantage * b.logp))
    assert len(calls) == 2 + 4  # two layers, one micro-batch
    assert torch.allclose(gradients[0], gradients[1], atol=1e-7)
    assert gradients[0].abs().max() > 1e-3


@pytest.mark.parametrize("recompute", [False, True])
def test_streams_are_on_the_same_leash(recompute):
    plain = Policy(toy_model(), lr=1e-2, reference=0.5)
    made = StreamPolicy(toy_model(), lr=1e-2, reference=0.5, budget=32, compile=False, recompute=recompute)
    for _ in range(3):
        expected, done = (p.update(LINES, advantage(), lambda b: Loss(-b.advantage * b.logp)) for p in (plain, made))
        for name in ("loss", "reference_kl", "grad_norm"):
            assert done[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-6)
    assert done["reference_kl"] > 1e-3


def test_models_of_another_kind_are_refused():
    model = toy_model()
    model.config.hidden_act = "gelu"
    with pytest.raises(ValueError, match="its activation is gelu, not silu; use Policy"):
        StreamPolicy(model)


@pytest.mark.gpu
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_measured_tokens_and_their_gradients_are_those_of_token_statistics(temperature):
    from workbench.worlds.engines.forward import token_statistics
    from workbench.worlds.engines.kernels import Measured

    torch.manual_seed(0)
    logits, target = 2 * torch.randn(300, 5000, device="cuda"), torch.randint(0, 5000, (300,), device="cuda")
    weight = torch.randn(2, 300, device="cuda")
    slopes, made = [], []
    for measure in (lambda z: Measured.apply(z, target, temperature),
                    lambda z: token_statistics(z, torch.arange(300, device="cuda"), target, temperature)):  # fmt: skip
        z = logits.clone().requires_grad_()
        made.append(measure(z * 1.0))  # a product in between: the gradient may take the place of its input
        (weight[0] * made[-1][0] + weight[1] * made[-1][1]).sum().backward()
        slopes.append(z.grad)
    torch.testing.assert_close(made[0], made[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("compile", [False, True])
def test_streams_on_the_gpu_learn_what_the_plain_policy_does(compile):
    from workbench import models

    def policies():
        yield Policy(models.load("tiny")[0].cuda())
        yield StreamPolicy(models.load("tiny")[0].cuda(), budget=64, precision="bfloat16", compile=compile)

    plain, made = policies()
    assert made.logp(LINES).values == pytest.approx(plain.logp(LINES).values, abs=0.1)
    expected, done = (
        p.update(LINES, advantage(), lambda b: Loss(-b.advantage * b.logp, reduction="seq_mean")) for p in (plain, made)
    )
    assert done["loss"] == pytest.approx(expected["loss"], abs=0.05)
    assert done["grad_norm"] == pytest.approx(expected["grad_norm"], rel=0.05)


@pytest.mark.gpu
def test_on_the_gpu_recomputing_saves_memory_and_the_leash_holds():
    from workbench import models

    peaks, done = [], []
    for recompute in (False, True):
        model = models.load("tiny")[0].cuda()
        policy = StreamPolicy(model, budget=4096, precision="bfloat16", recompute=recompute, reference=0.1)
        rows = np.arange(40)
        tokens = Ragged.of([(np.arange(90) * 7 + i) % 50 + 3 for i in rows], np.int32)
        lines = Lines([[5, 6, 7]], np.zeros(40, np.int64), tokens)
        some = Advantage(
            np.where(rows % 2, 1.0, -1.0), np.ones(40, bool), np.ones(40), np.zeros(40), np.full(40, "", object)
        )
        policy.update(lines, some, lambda b: Loss(-b.advantage * b.logp))
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
        done.append(policy.update(lines, some, lambda b: Loss(-b.advantage * b.logp)))
        peaks.append(torch.cuda.max_memory_allocated() - base)
    assert peaks[1] < 0.9 * peaks[0]
    assert done[1]["loss"] == pytest.approx(done[0]["loss"], abs=0.02)
    assert done[1]["grad_norm"] == pytest.approx(done[0]["grad_norm"], rel=0.05)
    assert done[0]["reference_kl"] > 0


@pytest.mark.gpu
def test_on_the_gpu_row_norms_are_left_to_the_plain_policy():
    from workbench import models

    with pytest.raises(ValueError, match="streams go backward once on a GPU"):
        StreamPolicy(models.load("tiny")[0].cuda(), row_norms=True)
