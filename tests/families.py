"""Model families in miniature: random weights in the shape of Qwen, Llama, Gemma, Mistral and others.

`python -m tests.families` writes `docs/models.md` from them, after a new family or pass; a test holds the page.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from workbench.models import TINY
from workbench.models.pretrained import quiet
from workbench.worlds.engines.llama import supported
from workbench.worlds.live.passes import checked_passes
from workbench.worlds.training.lora import add

PAGE = Path(__file__).parents[1] / "docs" / "models.md"

_HF = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
_WIDE = {**_HF, "head_dim": 16}  # a head is not hidden_size / heads
_OLD = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64,
}
_LOCAL = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}

FAMILIES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "llama": ("llama", _HF),
    "llama 3 (scaled rope)": ("llama", {**_HF, "rope_parameters": _LLAMA3}),
    "llama (linear rope)": (
        "llama",
        {**_HF, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}},
    ),
    "qwen2": ("qwen2", _HF),
    "qwen3": ("qwen3", _WIDE),
    "qwen3_moe": ("qwen3_moe", {**_WIDE, **_EXPERTS}),
    "qwen3_next": (
        "qwen3_next",
        {
            **_WIDE,
            **_EXPERTS,
            "shared_expert_intermediate_size": 64,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "gemma": ("gemma", _WIDE),
    "gemma2": ("gemma2", {**_WIDE, **_LOCAL, "final_logit_softcapping": 5.0}),
    "gemma3": ("gemma3_text", {**_WIDE, **_LOCAL}),
    "mistral": ("mistral", {**_WIDE, "sliding_window": None}),
    "mistral (sliding window)": ("mistral", {**_WIDE, "sliding_window": 8}),
    "mixtral": ("mixtral", {**_HF, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "phi": ("phi", _HF),
    "phi3": ("phi3", _HF),
    "olmo2": ("olmo2", _HF),
    "smollm3": ("smollm3", _HF),
    "granite": ("granite", {**_HF, "logits_scaling": 8.0, "embedding_multiplier": 2.0, "residual_multiplier": 0.5}),
    "glm4": ("glm4", _WIDE),
    "cohere": ("cohere", {**_HF, "logit_scale": 0.0625}),
    "gpt_oss": ("gpt_oss", {**_WIDE, **_LOCAL, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "deepseek_v3": (
        "deepseek_v3",
        {
            **_HF,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "moe_intermediate_size": 64,
            "q_lora_rank": 32,
            "kv_lora_rank": 32,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
            "first_k_dense_replace": 1,
        },
    ),
    "gpt2": ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}),
    "gpt_neox": ("gpt_neox", {**_OLD, "intermediate_size": 128, "max_position_embeddings": 512}),
    "opt": ("opt", {**_OLD, "ffn_dim": 128, "word_embed_proj_dim": 64, "max_position_embeddings": 512}),
    "falcon": ("falcon", _OLD),
    "bloom": ("bloom", {"hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "mpt": ("mpt", {"d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 512}),
    "mamba": ("mamba", {"hidden_size": 64, "num_hidden_layers": 2, "state_size": 8}),
    "lfm2": ("lfm2", {**_HF, "layer_types": ["conv", "full_attention"]}),
    "recurrent_gemma": (
        "recurrent_gemma",
        {
            **_OLD,
            "num_hidden_layers": 3,
            "intermediate_size": 192,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "lru_width": 64,
            "attention_window_size": 8,
        },
    ),
}
"""Name -> (transformers' model type, the settings of its config that make it small). Windows of 8 tokens are there to be crossed."""


def random_model(name: str, *, seed: int = 0, spread: float = 4.0, vocabulary: int = 512) -> PreTrainedModel:
    """A float32 model of a family with random weights, some 100,000 parameters, in eval mode.

    spread: what its matrices are multiplied by, so that its distribution is far from uniform and a wrong pass shows."""
    kind, settings = FAMILIES[name]
    ends = {"vocab_size": vocabulary, "eos_token_id": 0, "bos_token_id": 0, "pad_token_id": 1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**ends, **settings}))
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim == 2:
                    weight.mul_(spread)
                else:  # norms and biases start as ones and zeros, which would hide a pass that leaves them out
                    weight.add_(torch.randn_like(weight) * 0.05)
    return model.to(torch.float32).eval()


def save(name: str, folder: str | os.PathLike) -> None:
    """Write a random model of a family, with the tokenizer of `tiny`, as a transformers folder."""
    with quiet():
        random_model(name).save_pretrained(folder)
        AutoTokenizer.from_pretrained(TINY).save_pretrained(folder)


TEXT = """# Models: which families train, and how

Any causal language model that transformers runs: a folder, a hub id, or `(model, tokenizer)` in memory. Before the first
step the passes of the run are compared with the model's own forward, on rows longer than any window that a row of the run
can cross. The fastest passes that give the same log-probabilities are used; where only the model's own forward is right,
that is what runs; where nothing is, the model is refused with the figures.

`workbench doctor --model FOLDER` prints what was found for a model: passes and how far each was from its own forward, in
nats, engines, adapters, memory, context, template, end tokens. `Experiment(model=FOLDER, ...).check()` returns the same for
an experiment.

- **sampling**: *cached* computes each prompt once for its group and keeps keys and values; *recomputed* reads every token
  from the whole row (right for recurrent layers, and slow). Where rows pause (trees, pruning) windows leave no cache to
  take back, and those rows are recomputed.
- **update**: *packed* puts the answers of a prompt behind one copy of it; *padded* runs every row by itself.
- **graph**: whether decoding with CUDA graphs and compiled updates over streams, for a GPU, know the family.
- **LoRA**: adapters in all linear layers; experts that are kept as one tensor get none.

vLLM and servers sample whatever they support themselves; their log-probabilities are compared with the trained model's at
the start, and a server of other weights is refused.

Measured on random models of each family, float32, windows of 8 tokens where there are any, by
`python -m tests.families`:

"""


def rows() -> list[str]:
    """The lines of the table."""
    found = [
        "| family | transformers' type | sampling | where rows pause | update | graph | LoRA |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, (kind, _) in FAMILIES.items():
        model = random_model(name)
        passes = checked_passes(model, 100)
        whole, paused = (
            ("cached" if passes.cached else "recomputed"),
            ("cached" if passes.cached is True else "recomputed"),
        )
        fast = "no" if supported(model) else "yes"
        try:
            add(model, 2)
            adapters = "yes"
        except ValueError:
            adapters = "no"
        found.append(f"| {name} | `{kind}` | {whole} | {paused} | {passes.update} | {fast} | {adapters} |")
    return found


def page() -> str:
    """The text of `docs/models.md`."""
    logging.getLogger("transformers").setLevel(logging.ERROR)  # hints at packages that would make a family faster
    return TEXT + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
