"""Relatives of Llama in the fast paths: every kind that is run is right, and every other one is refused with a reason."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from transformers import PreTrainedModel

from workbench.types import Advantage, Loss, Ragged
from workbench.worlds.engines import Request, Until
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.graph_engine import GraphEngine
from workbench.worlds.engines.llama import KINDS, reference, supported
from workbench.worlds.engines.transformers_engine import TransformersEngine
from workbench.worlds.training import lora
from workbench.worlds.training.packing import StreamPolicy, block
from workbench.worlds.training.policy import Lines, Policy

SHAPE = {
    "vocab_size": 32,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "tie_word_embeddings": True,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
SCALED = {"rope_theta": 100.0, "factor": 4.0}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
MODELS = {
    "llama": ("Llama", {}),
    "llama-biases": ("Llama", {"attention_bias": True}),
    "llama-llama3": ("Llama", {"rope_parameters": {"rope_type": "llama3", **SCALED, **LLAMA3}}),
    "llama-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", **SCALED}}),
    "llama-yarn": (
        "Llama",
        {"rope_parameters": {"rope_type": "yarn", **SCALED, "original_max_position_embeddings": 64}},
    ),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 16}),
    "mistral-wide": ("Mistral", {"sliding_window": 2048}),
    "qwen2": ("Qwen2", {}),
    "qwen2-alone": ("Qwen2", {"num_attention_heads": 6, "num_key_value_heads": 1, "tie_word_embeddings": False}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "smollm3": ("SmolLM3", {"no_rope_layers": [1, 0, 1]}),
}
PREFIXES = [[5, 6, 7], [3, 4, 5, 6, 7, 8, 9, 10] * 3, [12]]
N = np.array([2, 3, 1])
OWNER = np.repeat(np.arange(3), N)
KEYS = streams(0, [f"r{i}" for i in range(6)])
every = pytest.mark.parametrize("kind", MODELS)


def perturb(model: PreTrainedModel, seed: int) -> None:
    """Move all parameters: biases are 0 and gains are 1 at first, which would hide them."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=random).to(weight.device)


def model_of(kind: str, seed: int = 0, **more) -> PreTrainedModel:
    """A random model of three layers, all its parameters away from where they start."""
    name, settings = MODELS[kind]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = getattr(transformers, f"{name}Config")(**{**SHAPE, **settings, **more})
        model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    perturb(model, seed)
    return model


def own_logp(model: PreTrainedModel, prefix: list[int], answer) -> torch.Tensor:
    """(T,) log-probabilities of the answer by the model's own forward."""
    logits = model(input_ids=torch.tensor([[*prefix, *answer]])).logits[0, len(prefix) - 1 : -1]
    return logits.log_softmax(-1)[range(len(answer)), list(answer)]


def assert_own(model: PreTrainedModel, made) -> None:
    """The log-probabilities of what was generated are the model's."""
    for i, owner in enumerate(OWNER):
        with torch.no_grad():
            expected = own_logp(model, PREFIXES[owner], made.tokens.row(i).tolist())
        assert made.logp.row(i) == pytest.approx(expected.numpy(), abs=1e-4)


@every
def test_graphs_sample_from_the_models_own_distribution_before_and_after_new_weights(kind):
    model = model_of(kind)
    assert supported(model) == ""
    request = Request.of_groups(PREFIXES, N, np.full(3, 40), KEYS)
    for dtype in (None, torch.float64):  # with the tensors of the model, and with copies
        engine = GraphEngine(model, dtype)
        first = engine.generate(request)
        assert_own(model, first)
        perturb(model, 1)
        engine.sync()
        second = engine.generate(request)
        assert_own(model, second)
        assert second.logp.values[:6] != pytest.approx(first.logp.values[:6], abs=1e-3)


@every
def test_sessions_pause_fork_and_rewind_to_the_same_distributions(kind):
    model = model_of(kind)
    made = []
    for engine in (GraphEngine(model), TransformersEngine(model)):
        session = engine.open(Request(PREFIXES, OWNER, KEYS))
        first = session.advance(np.array([4, 2, 7, 3, 5, 6]), Until(frozenset({9})))
        rows = np.flatnonzero(first.finish == "")
        paths = [first.tokens.row(i).tolist() for i in rows]
        session.keep(np.array([0, 2, 2, 1]), streams(0, ["a", "b", "c", "d"]))
        paths = [paths[i] for i in (0, 2, 2, 1)]
        session.rewind(2, 1, paths[2][-2] if len(paths[2]) > 1 else None)
        rest = session.advance(np.array([5, 9, 9, 2]))
        made.append((first.tokens.values.tolist(), rest.tokens.values.tolist(), first.logp.values, rest.logp.values))
    assert made[0][:2] == made[1][:2]
    for mine, theirs in zip(made[0][2:], made[1][2:], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-4)


@every
@pytest.mark.parametrize("recompute", [False, True])
def test_streams_have_the_models_own_log_probabilities_and_gradients(kind, recompute):
    lines = Lines(PREFIXES, OWNER, Ragged.of([[4, 9, 0], [8], [20, 21, 22], [6, 7], [11, 3, 3, 0], [2, 2]], np.int32))
    value = np.array([1.0, -1.0, 0.5, -0.5, 2.0, -2.0])
    advantage = Advantage(value, np.ones(6, bool), np.ones(6), np.zeros(6), np.full(6, "", object))
    policy = StreamPolicy(model_of(kind), budget=64, compile=False, recompute=recompute, clip=1e9)
    gradients = {}
    policy.optimizer.register_step_pre_hook(
        lambda *_: gradients.update({n: p.grad.clone() for n, p in policy.model.named_parameters()})
    )
    measured = policy.logp(lines)
    policy.update(lines, advantage, lambda b: Loss(-b.advantage * b.logp))
    model = model_of(kind)
    logp = [own_logp(model, PREFIXES[owner], lines.tokens.row(i).tolist()) for i, owner in enumerate(OWNER)]
    assert measured.values == pytest.approx(torch.cat(logp).detach().numpy(), abs=1e-4)
    sum(-a * row.sum() for a, row in zip(value.tolist(), logp, strict=True)).backward()
    scale = next(model.parameters()).grad.norm() / next(iter(gradients.values())).norm()  # of the loss, tokens or rows
    for name, weight in model.named_parameters():
        assert torch.allclose(scale * gradients[name], weight.grad, rtol=1e-3, atol=1e-4 * weight.grad.abs().max()), (
            name
        )
        assert weight.grad.abs().max() > 0 or name.endswith("k_proj.bias")  # a bias of all keys may cancel


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "smollm3"])
def test_compiled_streams_are_the_plain_ones(kind, monkeypatch):
    from functools import partial

    from workbench.worlds.training import packing

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    packing._compiled.cache_clear()
    lines = Lines(PREFIXES, OWNER, Ragged.of([[4, 9, 0], [8], [20, 21, 22], [6, 7], [11, 3, 3, 0], [2, 2]], np.int32))
    compiled, plain = (StreamPolicy(model_of(kind), budget=64, compile=compile) for compile in (True, False))
    assert compiled.logp(lines).values == pytest.approx(plain.logp(lines).values, abs=1e-5)
    packing._compiled.cache_clear()


def test_adapters_are_merged_into_layers_with_biases_and_norms():
    pytest.importorskip("peft")
    for kind in ("qwen2", "qwen3"):
        model = lora.add(model_of(kind), 4)
        perturb(model, 2)
        assert supported(model) == ""
        engine = GraphEngine(model)
        perturb(model, 3)
        engine.sync()
        assert_own(model, engine.generate(Request.of_groups(PREFIXES, N, np.full(3, 9), KEYS)))


@pytest.mark.parametrize(
    ("kind", "more", "why"),
    [
        ("llama", {"mlp_bias": True}, "its MLPs have biases"),
        ("llama", {"hidden_act": "gelu"}, "its activation is gelu, not silu"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", **SCALED}}, "depend on the length (dynamic)"),
        ("mistral", {"sliding_window": 64}, "its window of 64 tokens is shorter than 2048"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "slides in some layers"),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 8}, "slides in some layers"),
    ],
)
def test_members_of_the_family_that_compute_something_else_are_refused(kind, more, why):
    model = model_of(kind, **more)
    assert why in supported(model)
    for use in (GraphEngine, StreamPolicy):
        with pytest.raises(ValueError, match=r"; use \w+$"):
            use(model)
    assert Policy(model).logp(Lines([[5]], np.zeros(1, np.int64), Ragged.of([[6, 7]], np.int32))).lengths.tolist() == [
        2
    ]


OTHERS = [
    "GPT2",
    "GPTNeoX",
    "OPT",
    "Bloom",
    "Falcon",
    "Gemma",
    "Gemma2",
    "Gemma3Text",
    "Phi",
    "Phi3",
    "Granite",
    "Cohere",
    "Olmo2",
    "Qwen2Moe",
    "Qwen3Moe",
    "Mixtral",
    "Mamba",
    "Bert",
    "T5",
    "StableLm",
    "Starcoder2",
    "MPT",
    "GLM",
    "Ministral",
    "LlavaNext",
]


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_architecture_is_refused_with_a_reason(name):
    found = {c.lower(): c for c in dir(transformers) if c.endswith("Config")}
    config = getattr(transformers, found[f"{name}Config".lower()])()
    assert supported(SimpleNamespace(config=config)).startswith(f"its type is {config.model_type}, not llama, ")


def test_models_without_an_output_layer_or_a_config_are_refused():
    for kind, (name, settings) in MODELS.items():
        config = getattr(transformers, f"{name}Config")(**{**SHAPE, **settings})
        body = getattr(transformers, f"{name}Model")(config)
        assert supported(body) == f"it is a {name}Model, not a {name}ForCausalLM", kind
    assert supported(torch.nn.Linear(2, 2)).startswith("its type is None, not llama")
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=32))
    assert supported(gpt2) == f"its type is gpt2, not {', '.join(KINDS)}"


def test_a_large_vocabulary_is_computed_in_smaller_blocks():
    assert block(49_152, torch.bfloat16) == 8192
    assert block(151_936, torch.bfloat16) == 2560
    assert block(151_936, torch.float32) == 1280
    assert block(10**9, torch.float32) == 128


HEADS = {
    "llama": (9, 3, 64),
    "qwen2": (12, 2, 128),
    "qwen2-half": (14, 2, 64),
    "qwen3": (16, 8, 128),
    "smollm3": (16, 4, 128),
}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [4, 200])
@pytest.mark.parametrize("kind", HEADS)
def test_attention_on_the_gpu_norms_and_turns_as_in_torch(kind, rows, dtype):
    from workbench.worlds.engines import kernels

    torch.manual_seed(0)
    at = {"device": "cuda", "dtype": dtype}
    heads, groups, depth = HEADS[kind]
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    norms = (1 + torch.randn(depth, **at) / 4, 1 + torch.randn(depth, **at) / 4) if kind == "qwen3" else None
    keys, values = torch.randn(2, rows, groups, 320, depth, **at)
    qkv = torch.randn(rows, (heads + 2 * groups) * depth, **at)
    slot, fed = torch.randperm(rows, device="cuda"), torch.randint(0, 320, (rows,), device="cuda")
    fed[:3] = torch.tensor([0, -1, 319])
    angle = torch.randn(320, depth // 2, device="cuda").repeat(1, 2)
    how = angle.cos(), angle.sin(), slot, fed, norms, 1e-6, kind != "smollm3"
    wanted = [c.clone() for c in (keys, values)]
    expected = reference.attend(qkv, *wanted, *how)
    made = kernels.attend(qkv, keys, values, *how)
    torch.testing.assert_close(made[fed >= 0], expected[fed >= 0], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(keys, wanted[0], rtol=tolerance, atol=tolerance)
    assert torch.equal(values, wanted[1])


@pytest.mark.gpu
@every
def test_graphs_on_the_gpu_draw_what_the_plain_sampler_draws_for_every_kind(kind):
    torch.backends.cuda.matmul.allow_tf32 = False
    model = model_of(kind, hidden_size=96, head_dim=16).cuda()
    request = Request.of_groups(PREFIXES, N, np.full(3, 40), KEYS)
    plain, engine = TransformersEngine(model), GraphEngine(model, torch.float32)
    for seed in (1, 2):
        made, expected = engine.generate(request), plain.generate(request)
        assert made.tokens.values.tolist() == expected.tokens.values.tolist()
        assert made.logp.values == pytest.approx(expected.logp.values, abs=1e-4)
        perturb(model, seed)
        engine.sync()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "smollm3"])
@pytest.mark.parametrize("compile", [False, True])
def test_streams_on_the_gpu_measure_what_the_plain_policy_does_for_every_kind(kind, compile):
    lines = Lines(PREFIXES, OWNER, Ragged.of([[4, 9, 0], [8], [20, 21, 22], [6, 7], [11, 3, 3, 0], [2, 2]], np.int32))
    model = model_of(kind, hidden_size=96, head_dim=16, initializer_range=0.05).cuda()
    made = StreamPolicy(model, budget=64, precision="bfloat16", compile=compile).logp(lines)
    assert made.values == pytest.approx(Policy(model).logp(lines).values, abs=0.2)


@pytest.mark.gpu
@pytest.mark.parametrize("greedy", [False, True])
def test_tokens_of_a_large_vocabulary_are_chosen_on_the_gpu_as_in_torch(greedy):
    from workbench.worlds.engines import kernels

    torch.manual_seed(0)
    logits = 3 * torch.randn(500, 151_936, device="cuda")
    draw = torch.rand(500, dtype=torch.float64, device="cuda")
    inverse = torch.ones(1, device="cuda")
    token, logp, entropy = kernels.choose(logits, draw, inverse, greedy)
    expected = reference.choose(logits, draw, inverse, greedy)
    same = token == expected[0]
    assert same.float().mean() > 0.98  # a draw within rounding of a border may fall either way
    torch.testing.assert_close(logp[same], expected[1][same], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy, expected[2], rtol=1e-4, atol=1e-4)
