"""Model families in miniature: random weights in the shape of Qwen, Llama, Gemma, Mistral and others, for tests and trials.

>>> from workbench.models import families
>>> families.random_model("qwen3").config.model_type
'qwen3'
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

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

    spread: what its matrices are multiplied by, so that its distribution is far from uniform and a wrong pass shows.
    ValueError for a family that `FAMILIES` does not have.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if name not in FAMILIES:
        raise ValueError(f"no family {name!r}; there are {', '.join(FAMILIES)}")
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


def save(name: str, folder: str | os.PathLike, **more) -> PreTrainedTokenizerBase:
    """Write a random model of a family, with the tokenizer of `tiny`, as a transformers folder; more: as `random_model`."""
    from transformers import AutoTokenizer

    from workbench.models import TINY
    from workbench.models.pretrained import quiet

    tokenizer = AutoTokenizer.from_pretrained(TINY)
    with quiet():
        random_model(name, **more).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return tokenizer
