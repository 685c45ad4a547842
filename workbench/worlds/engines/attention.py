"""Grouped-query attention for many short rows on a CPU: one matrix product, keys and values never copied.

torch's fused kernel is made for long sequences; with a few queries against some tens of keys it spends several times
the time of the two products, and transformers' plain form repeats keys and values for every query head.
"""

from __future__ import annotations

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from workbench.models.declared import context_length

NAME = "workbench_grouped"


def grouped_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    """(B, T, heads, d) of query (B, heads, T, d), key and value (B, groups, L, d); additive mask (B, 1, T, L).

    ValueError for capped scores (Gemma 2) and sinks (gpt-oss), which it does not compute."""
    if kwargs.get("softcap") is not None or kwargs.get("s_aux") is not None or kwargs.get("position_bias") is not None:
        raise ValueError("grouped attention has neither caps nor sinks nor position biases")
    rows, heads, width, depth = query.shape
    groups = key.shape[1]
    scaling = depth**-0.5 if scaling is None else scaling
    together = (query * scaling).reshape(rows, groups, heads // groups * width, depth)
    score = (together @ key.transpose(2, 3)).view(rows, groups, heads // groups, width, -1)
    if attention_mask is not None:
        score = score + attention_mask[:, :, None, :, : score.shape[-1]]
    weight = score.softmax(-1).view(rows, groups, heads // groups * width, -1)
    return (weight @ value).view(rows, heads, width, depth).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, eager_mask)


@torch.no_grad()
def use_grouped(model: PreTrainedModel) -> bool:
    """Switch a float32 model on the CPU to grouped attention if its logits stay the same; returns whether it was switched.

    Models with other attention (caps, sinks, sliding windows) show a difference, or refuse, and keep what they had.
    """
    before = model.config._attn_implementation
    if model.device.type != "cpu" or before is None or not model._can_set_attn_implementation():
        return False
    width = min(24, context_length(model.config) or 24)
    ids = torch.arange(width, device=model.device)[None].expand(2, -1) % model.config.get_text_config().vocab_size
    mask = torch.ones_like(ids)
    mask[1, : width // 4] = 0
    expected = model(input_ids=ids, attention_mask=mask).logits[mask.bool()]
    try:
        model.set_attn_implementation(NAME)
        same = torch.allclose(
            model(input_ids=ids, attention_mask=mask).logits[mask.bool()], expected, rtol=1e-3, atol=1e-3
        )
    except (ValueError, TypeError, RuntimeError, AttributeError, KeyError):  # each family refuses in its own way
        same = False
    if not same:
        model.set_attn_implementation(str(before))
    return same
