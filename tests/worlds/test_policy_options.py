"""Adapters, leash, recomputation and row norms: what each changes, and what it does not."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.types import Loss, Ragged
from workbench.worlds.engines import Request
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.graph_engine import GraphEngine
from workbench.worlds.engines.transformers_engine import TransformersEngine
from workbench.worlds.live.world import LiveWorld
from workbench.worlds.training import lora
from workbench.worlds.training.policy import Lines, Policy

from .conftest import toy_model, toy_tokenizer
from .test_policy import ANSWERS, OWNER, PREFIXES, advantage, gradient, lines, surrogate

needs_peft = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is not installed")


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 400), st.permutations(range(8)))
def test_the_gradient_is_the_same_whatever_the_budget_and_the_order_of_rows(budget, order):
    expected, _ = gradient(surrogate())
    order = np.array(order)
    base = advantage()
    shuffled = Lines(PREFIXES, OWNER[order], Ragged.of([ANSWERS[i] for i in order], np.int32))
    policy = Policy(toy_model(), clip=1e9, budget=budget)
    seen = []
    policy.optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.cat([p.grad.flatten() for p in policy.parameters]))
    )
    rows = type(base)(base.value[order], base.keep[order], base.weight[order], base.baseline[order], base.reason[order])
    policy.update(shuffled, rows, surrogate())
    assert float((seen[0] - expected).norm() / expected.norm()) < 3e-6


def test_recomputing_activations_gives_the_same_gradient_and_computes_each_layer_twice():
    calls = {}
    for recompute in (False, True):
        model = toy_model()
        calls[recompute] = 0

        def count(*_, recompute=recompute):
            calls[recompute] += 1

        model.model.layers[0].mlp.register_forward_pre_hook(count)
        policy = Policy(model, recompute=recompute, clip=1e9)
        policy.update(lines(), advantage(), surrogate())
        assert "forward" not in vars(model.model.layers[0])
    assert calls[True] == 2 * calls[False]
    plain, _ = gradient(surrogate())
    again, _ = gradient(surrogate(), recompute=True)
    assert torch.allclose(plain, again, atol=1e-7)


def test_bfloat16_passes_keep_float32_weights_and_moments():
    exact, _ = gradient(surrogate())
    rounded, _ = gradient(surrogate(), precision="bfloat16")
    assert rounded.dtype == torch.float32
    assert 0 < float((rounded - exact).norm() / exact.norm()) < 0.05
    policy = Policy(toy_model(), precision="bfloat16")
    policy.update(lines(), advantage(), surrogate())
    kinds = {p.dtype for p in policy.parameters} | {s["exp_avg"].dtype for s in policy.optimizer.state.values()}
    assert kinds == {torch.float32}


def test_row_norms_are_the_gradients_of_the_rows_alone():
    _, done = gradient(surrogate(), row_norms=True, budget=30)
    norms = done["grad_norm_per_rollout"]
    assert np.isnan(norms[5])
    assert norms[[3, 6]].tolist() == [0.0, 0.0]
    value = np.zeros(8)
    value[4] = -1.0
    alone, _ = gradient(surrogate(), value=value)
    assert norms[4] == pytest.approx(float(alone.norm()), rel=1e-5)


def test_the_leash_is_slack_at_the_start_and_pulls_back_afterwards():
    policy = Policy(toy_model(), lr=1e-2, reference=0.5)
    first = policy.update(lines(), advantage(), surrogate())
    assert first["reference_kl"] == pytest.approx(0.0, abs=1e-9)
    assert first["rows"] == 7  # it acts on rows of advantage zero too
    moved = policy.update(lines(), advantage(np.zeros(8)), surrogate())
    assert moved["reference_kl"] > 1e-3
    for _ in range(20):
        back = policy.update(lines(), advantage(np.zeros(8)), surrogate())
    assert back["reference_kl"] < 0.2 * moved["reference_kl"]


def test_the_leash_is_k3_with_its_gradient():
    policy = Policy(toy_model(), lr=1e-2, reference=0.5)
    policy.update(lines(), advantage(), surrogate())
    before = Policy(toy_model()).logp(lines()).values
    now = policy.logp(lines()).values
    kept = np.repeat([True] * 5 + [False] + [True] * 2, lines().tokens.lengths)
    d = (before - now)[kept].astype(float)
    done = policy.update(lines(), advantage(np.zeros(8)), lambda b: Loss(b.logp * 0))
    assert done["reference_kl"] == pytest.approx(float((np.exp(d) - 1 - d).mean()), rel=1e-4)
    # rows weigh 1 but rows 1 (2.0) and 4 (0.5); the mean is over all kept tokens
    weight = np.repeat([1, 2, 1, 1, 0.5, 1, 1, 1.0], lines().tokens.lengths)[kept]
    assert done["loss"] == pytest.approx(0.5 * float((weight * (np.exp(d) - 1 - d)).sum() / len(d)), rel=1e-4)


@needs_peft
def test_adapters_change_nothing_until_trained_and_then_alone():
    model = lora.add(toy_model(), rank=4)
    plain = toy_model()
    ids = torch.tensor([PREFIXES[1]])
    assert torch.equal(model(input_ids=ids).logits, plain(input_ids=ids).logits)
    policy = Policy(model, lr=1e-2)
    policy.update(lines(), advantage(), surrogate())
    assert all("lora_" in n for n, p in model.named_parameters() if p.requires_grad)
    assert not torch.equal(model(input_ids=ids).logits, plain(input_ids=ids).logits)
    with lora.off(model):
        assert torch.equal(model(input_ids=ids).logits, plain(input_ids=ids).logits)
    assert {p.requires_grad for p in policy.parameters} == {True}
    plain.load_state_dict(dict(lora.plain_weights(model)))
    assert torch.allclose(model(input_ids=ids).logits, plain(input_ids=ids).logits, atol=1e-5)


@needs_peft
def test_the_reference_of_adapters_is_the_model_without_them():
    policy = Policy(lora.add(toy_model(), rank=4), lr=1e-2, reference=0.5)
    assert policy.reference.kept is None
    first = policy.update(lines(), advantage(), surrogate())
    assert first["reference_kl"] == pytest.approx(0.0, abs=1e-9)
    assert policy.update(lines(), advantage(), surrogate())["reference_kl"] > 1e-4


@needs_peft
def test_saved_adapters_go_on_as_if_they_had_not_stopped(tmp_path):
    first = Policy(lora.add(toy_model(), rank=4), lr=1e-2)
    first.update(lines(), advantage(), surrogate())
    first.save(tmp_path)
    merged = type(toy_model()).from_pretrained(tmp_path)
    ids = torch.tensor([PREFIXES[1]])
    assert torch.allclose(merged(input_ids=ids).logits, first.model(input_ids=ids).logits, atol=1e-5)
    second = Policy(lora.add(toy_model(), rank=4, seed=9), lr=1e-2)
    second.load(tmp_path)
    for policy in (first, second):
        policy.update(lines(), advantage(), surrogate())
    assert second.version == 2
    assert all(torch.equal(a, b) for a, b in zip(first.parameters, second.parameters, strict=True))
    with pytest.raises(ValueError, match="another rank"):
        Policy(lora.add(toy_model(), rank=2)).load(tmp_path)


@needs_peft
@pytest.mark.parametrize("engine", ["transformers", "graph"])
@pytest.mark.parametrize("sampling", ["float32", "bfloat16"])
def test_the_sampler_uses_trained_adapters(task, sampling, engine):
    world = LiveWorld(
        task,
        (toy_model(), toy_tokenizer()),
        lr=0.1,
        sampling=sampling,
        engine=engine,
        update={"lora": 4, "reference": 0.01},
    )
    plan = _plan(world)
    before = world.sample(plan)
    a = _advantage(before)
    done = world.update(before, a, surrogate(), [])
    assert world.version == 1
    assert "reference_kl" in done
    assert all(bool(b.weight.any()) for b in _second_factors(world.policy.model))
    after = world.sample(plan)
    scored = world.score(after, frozenset({"current"}))
    tolerance = 1e-4 if sampling == "float32" else 0.3
    assert np.abs(scored.current.values - after.logp.values).max() < tolerance
    assert before.text.tolist() != after.text.tolist()
    assert (type(world.engine).__name__, "asked for" in world.engine_why) == (f"{engine.capitalize()}Engine", True)


def _second_factors(model):
    return [layer.lora_B["default"] for _, layer in lora.layers(model)]


@needs_peft
def test_slots_hold_merged_weights_from_one_sync_to_the_next():
    model = lora.add(toy_model(), rank=4)
    engine = GraphEngine(model)
    assert engine.apart() is engine  # the weights it shares with the model are never trained
    keys = streams(0, ["a", "b"])

    def made(e) -> tuple[list[int], np.ndarray]:
        segments = e.generate(
            Request.of_groups([[5, 6], [7]], np.ones(2, np.int64), np.full(2, 6), keys, temperature=0.0)
        )
        return segments.tokens.values.tolist(), segments.logp.values

    plain = made(engine)
    with torch.no_grad():
        for k, factor in enumerate(_second_factors(model)):
            factor.weight.normal_(0, 0.2, generator=torch.Generator().manual_seed(k))
    assert made(engine)[1].tolist() == plain[1].tolist()
    engine.sync()
    tokens, logp = made(TransformersEngine(model))
    assert made(engine)[0] == tokens
    assert made(engine)[1] == pytest.approx(logp, abs=1e-5)
    assert np.abs(logp - plain[1]).max() > 0.1


def _plan(world):
    from workbench.types import Plan

    return Plan(np.arange(4), np.full(4, 4), step=1)


def _advantage(rollouts):
    from workbench.types import Advantage

    r = len(rollouts)
    value = np.where(np.arange(r) % 2, 1.0, -1.0)
    return Advantage(value, np.ones(r, bool), np.ones(r), np.zeros(r), np.full(r, "", dtype=object))
