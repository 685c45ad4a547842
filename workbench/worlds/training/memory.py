"""Memory that training needs, and the dtype that a device computes fast in."""

from __future__ import annotations

import psutil
import torch

from workbench.worlds.engines.transformers_engine import ROWS

LARGE = 50_000_000
"""Parameters from which a bfloat16 copy for sampling pays for itself, and from which the careful learning rate holds."""

LIBRARIES = 400_000_000
"""Bytes of a process that has only imported torch and transformers, about."""


def memory_needed(
    config, parameters: int, budget: int, copied: bool, *, streamed: bool = False, cached_tokens: int = 0
) -> int:
    """Bytes at the peak of a step that trains in float32: libraries, 16 per parameter (+2 for a bfloat16 copy), activations
    and logits of one micro-batch of budget tokens, logits of a batch of samples.

    streamed: compiled passes in bfloat16, which keep half as many numbers of half the size (fitted to peaks measured on an
    H200 with Qwen3-0.6B and Qwen2.5-1.5B), beside a bfloat16 cache of cached_tokens."""
    config = config.get_text_config()
    width, inner = config.hidden_size, getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    held = LIBRARIES + parameters * (18 if copied else 16)
    if not streamed:
        activations = 4 * budget * config.num_hidden_layers * (12 * width + 4 * inner)
        return held + activations + 4 * config.vocab_size * (4 * budget + 3 * ROWS)
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    depth = getattr(config, "head_dim", None) or width // heads
    attended = (heads + 2 * groups) * depth
    activations = 2 * budget * config.num_hidden_layers * (5 * width + 3 * inner + 1.5 * attended)
    cache = 2 * 2 * cached_tokens * config.num_hidden_layers * groups * depth
    return held + int(activations) + cache + 2 * config.vocab_size * budget


def fast_dtype(parameters: int, device: str) -> str:
    """float32 for small models, and bfloat16 for others where the device computes in it."""
    if parameters <= LARGE:
        return "float32"
    fast = torch.cuda.is_bf16_supported() if device.startswith("cuda") else torch.cpu._is_avx512_bf16_supported()
    return "bfloat16" if fast else "float32"


def shortage(needed: int, device: torch.device) -> str:
    """What is missing where a step needs more bytes than a device has free, and what would fit; "" where it fits."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_allocated(device)
    else:
        free = psutil.virtual_memory().available
    if needed <= free:
        return ""
    return (
        f"a step takes about {needed / 2**30:.1f} GiB at its peak, and {free / 2**30:.1f} are free on {device}; what takes less: "
        "world={'update': {'lora': 16}}, {'update': {'recompute': True}}, a smaller 'budget' (tokens of a micro-batch), or "
        "several cards with {'update': {'shard': True}}"
    )
