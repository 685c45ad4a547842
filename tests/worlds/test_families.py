"""Every family of models starts, learns, and records the log-probabilities of its own forward."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, Qwen2Config, Qwen3Config

from tests import families
from workbench import Budget, tasks
from workbench.models import TINY
from workbench.pipeline import Pipeline, advance
from workbench.types import Plan
from workbench.worlds.engines.attention import use_grouped
from workbench.worlds.engines.forward import own_logits
from workbench.worlds.live import LiveWorld
from workbench.worlds.live.passes import checked_passes
from workbench.worlds.training import lora
from workbench.worlds.training.activation_checkpointing import recomputed
from workbench.worlds.training.memory import memory_needed, shortage


def world_of(name: str, **settings) -> LiveWorld:
    model = families.random_model(name)
    return LiveWorld(
        tasks.load("five", size=24, evaluation=4),
        (model, AutoTokenizer.from_pretrained(TINY)),
        max_tokens=8,
        **settings,
    )


def own(world: LiveWorld, rows) -> list[np.ndarray]:
    """Log-probabilities of rows by the model's own forward, one row at a time."""
    found = []
    for prompt, tokens in zip(rows.prompt, rows.tokens.rows(), strict=True):
        prefix = world.prefix(world.pool, int(prompt))
        ids = torch.tensor([[*prefix, *tokens.tolist()]])
        with torch.no_grad():
            logp = own_logits(world.policy.model, ids, torch.ones_like(ids))[0].log_softmax(-1)
        found.append(logp[len(prefix) - 1 + np.arange(len(tokens)), tokens.tolist()].numpy())
    return found


@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_family_trains_two_steps_on_its_own_distribution(name) -> None:
    world = world_of(name)
    pipeline = Pipeline.parse("grpo")
    states = pipeline.init(world.pool)
    for n in (1, 2):
        states, step = advance(pipeline, states, world, Budget(prompts=3, rollouts=12), step=n, seed=0)
        assert np.isfinite(step.update["loss"])
    rows = world.sample(Plan(np.arange(3), np.full(3, 3), step=3))
    trained = world.policy.logp(world._lines(rows))
    for i, expected in enumerate(own(world, rows)):
        np.testing.assert_allclose(rows.logp.row(i), expected, atol=1e-4)
        np.testing.assert_allclose(trained.row(i), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["mamba", "gemma3", "bloom"])
def test_trees_grow_on_models_whose_cache_cannot_pause(name) -> None:
    world = world_of(name)
    pipeline = Pipeline.parse("grpo + latr")
    _, step = advance(pipeline, pipeline.init(world.pool), world, Budget(prompts=2, rollouts=8), step=1, seed=0)
    for i, expected in enumerate(own(world, step.rollouts)):
        np.testing.assert_allclose(step.rollouts.logp.row(i), expected, atol=1e-4)


def test_what_is_used_is_measured_and_said() -> None:
    passes = checked_passes(families.random_model("mamba"), 100)
    assert (passes.cached, passes.packed) == (False, False)
    assert "sampling recomputed, update padded" in str(passes)
    passes = checked_passes(families.random_model("gemma3"), 100)
    assert (passes.cached, passes.packed) == ("whole", True)
    assert passes.reach > 8 and "would fill windows of 8 tokens" in str(passes)
    wide = families.random_model("mistral")
    wide.config.sliding_window = 4096
    assert checked_passes(wide, 100).cached is True
    assert checked_passes(wide, 600).cached == "whole"
    assert world_of("qwen3").describe()["passes"].startswith("sampling cached, update packed")


def test_a_model_that_is_not_causal_is_refused_with_the_figures(monkeypatch) -> None:
    model = families.random_model("llama")
    forward = model.forward

    def both_ways(input_ids, **more):
        seen = forward(input_ids, **more)
        seen.logits = seen.logits + seen.logits.mean(1, keepdim=True)
        return seen

    monkeypatch.setattr(model, "forward", both_ways)
    with pytest.raises(ValueError, match=r"no pass of sampling gives LlamaForCausalLM its own .* off by [0-9.]+ nats"):
        checked_passes(model, 100)


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss"])
def test_grouped_attention_leaves_caps_and_sinks_to_the_model(name) -> None:
    assert not use_grouped(families.random_model(name, spread=1.0))


def test_a_context_shorter_than_the_probe_is_no_error() -> None:
    model = AutoModelForCausalLM.from_config(
        GPT2Config(vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=16)
    ).eval()
    assert use_grouped(model)
    assert checked_passes(model, 16).reach <= 16


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "bloom", "mamba", "qwen2"])
def test_recomputed_activations_give_the_same_gradient(name) -> None:
    found = []
    for again in (False, True):
        model = families.random_model(name)
        ids = torch.arange(10)[None] + 5

        def loss(model=model, ids=ids) -> None:
            own_logits(model, ids, torch.ones_like(ids)).log_softmax(-1)[0, :, 7].sum().backward()

        if again:
            with recomputed(model):
                loss()
        else:
            loss()
        found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(found[0]) == len(found[1]) > 0
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ["gpt2", "phi3", "qwen3_moe", "recurrent_gemma", "bloom"])
def test_adapters_go_into_all_linear_layers_of_a_family(name) -> None:
    pytest.importorskip("peft")
    world = world_of(name, update={"lora": 2})
    assert len(lora.layers(world.policy.model)) >= 4
    rows = world.sample(Plan(np.arange(3), np.full(3, 3), step=1))
    for i, expected in enumerate(own(world, rows)):
        np.testing.assert_allclose(rows.logp.row(i), expected, atol=1e-4)
    pipeline = Pipeline.parse("grpo")
    before = [p.detach().clone() for p in world.policy.parameters]
    advance(pipeline, pipeline.init(world.pool), world, Budget(prompts=4, rollouts=32), step=1, seed=0)
    assert world.version == 0 or any(
        not torch.equal(a, b) for a, b in zip(before, world.policy.parameters, strict=True)
    )


def test_a_family_without_adapters_says_so() -> None:
    pytest.importorskip("peft")
    with pytest.raises(ValueError, match="incompatible with Mamba"):
        world_of("mamba", update={"lora": 2})


def test_the_table_of_families_is_what_is_measured() -> None:
    pytest.importorskip("peft")
    assert families.PAGE.read_text() == families.page(), "write it again: python -m tests.families"


@pytest.mark.parametrize(
    ("config", "parameters", "peak"),
    [
        (Qwen3Config(vocab_size=151_936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
                     num_attention_heads=16, num_key_value_heads=8, head_dim=128), 596_049_920, 75.9),
        (Qwen2Config(vocab_size=151_936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
                     num_attention_heads=12, num_key_value_heads=2), 1_543_714_304, 109.2),
    ],
)  # fmt: skip
def test_the_memory_foretold_is_within_a_fifth_of_what_a_card_measured(config, parameters, peak) -> None:
    """512 rollouts of 64 + 256 tokens, streams of 32,768 tokens, one H200, 2026-11-29."""
    told = memory_needed(config, parameters, 32_768, True, streamed=True, cached_tokens=512 * 320) / 2**30
    assert told == pytest.approx(peak, rel=0.2)


def test_what_does_not_fit_says_what_would() -> None:
    assert shortage(1, torch.device("cpu")) == ""
    said = shortage(2**50, torch.device("cpu"))
    assert said.startswith("a step takes about 1048576.0 GiB at its peak, and ") and "'lora': 16" in said
