"""Memory that training needs, and the dtype that a device computes fast in."""

from __future__ import annotations

import torch

from workbench.worlds.engines.transformers_engine import ROWS

LARGE = 50_000_000
"""Parameters from which a bfloat16 copy for sampling pays for itself, and from which the careful learning rate holds."""

LIBRARIES = 400_000_000
"""Bytes of a process that has only imported torch and transformers, about."""


def memory_needed(config, parameters: int, budget: int, copied: bool) -> int:
    """Bytes of a process that trains in float32: libraries, 16 per parameter (+2 for a bfloat16 copy), activations and
    logits of one micro-batch, logits of a batch of samples."""
    config = config.get_text_config()
    width, inner = config.hidden_size, getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    activations = 4 * budget * config.num_hidden_layers * (12 * width + 4 * inner)
    logits = 4 * config.vocab_size * (4 * budget + 3 * ROWS)
    return LIBRARIES + parameters * (18 if copied else 16) + activations + logits


def fast_dtype(parameters: int, device: str) -> str:
    """float32 for small models, and bfloat16 for others where the device computes in it."""
    if parameters <= LARGE:
        return "float32"
    fast = torch.cuda.is_bf16_supported() if device.startswith("cuda") else torch.cpu._is_avx512_bf16_supported()
    return "bfloat16" if fast else "float32"
