"""Shared prefixes in forward passes of a transformers model: each is computed once for all that continue it.

Sampling fills a cache and fans it out to rows; training puts a prefix and its answers into one sequence whose
attention mask keeps the answers apart: no copies of keys and values, one pass, hardly any padding. The first form of
training (prefix and answers in two passes over a fanned-out cache) took a third more time. Everything that touches
transformers' forward signature, masks and cache is here.

Not every model can be read so: `own_statistics` and `next_logits` ask the model's own forward, row by row of a padded
batch, and are right for all causal models. `worlds.live.passes` says which are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel


class Prefixed(NamedTuple):
    """P prefixes (or the rows fanned out from them), computed.

    cache: keys and values (P, heads, L, d); mask (P, L) int64, 0 on left padding; position (P,) int64 of the next
    token; hidden (P, hidden) at the last token of each prefix.
    """

    cache: DynamicCache
    mask: torch.Tensor
    position: torch.Tensor
    hidden: torch.Tensor


def body(
    model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, position: torch.Tensor, cache: DynamicCache
) -> torch.Tensor:
    """(B, T, hidden) last hidden states of ids (B, T) at position (B, T), behind what the cache holds."""
    return model.base_model(
        input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True
    ).last_hidden_state


def prefill(model: PreTrainedModel, prefixes: Sequence[Sequence[int]]) -> Prefixed:
    """Run every prefix once, padded on the left; differentiable where gradients are on. A prefix has at least one token."""
    width = max(map(len, prefixes))
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prefixes], device=model.device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prefixes], device=model.device)
    position = (mask.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    hidden = body(model, ids, mask, position, cache)
    return Prefixed(cache, mask, position[:, -1] + 1, hidden[:, -1])


def fan_out(prefixed: Prefixed, owner: torch.Tensor) -> Prefixed:
    """One row for every entry of owner (B,): the prefix it continues. The cache is taken over, not kept."""
    prefixed.cache.batch_select_indices(owner)
    return Prefixed(prefixed.cache, prefixed.mask[owner], prefixed.position[owner], prefixed.hidden[owner])


def logits_of(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """(M, vocabulary) logits of hidden states (M, hidden), scaled and capped as the model's config says."""
    head, config = model.get_output_embeddings(), model.config.get_text_config()
    if head is None:
        raise ValueError(f"{type(model).__name__} has no output embedding")
    logits = head(hidden)
    if (factor := getattr(config, "logit_scale", None)) is not None:  # Cohere
        logits = logits * factor
    if (divisor := getattr(config, "logits_scaling", None)) is not None:  # Granite
        logits = logits / divisor
    caps = (getattr(config, name, None) for name in ("final_logit_softcapping", "logits_soft_cap"))
    if (cap := next(filter(None, caps), None)) is not None:  # Gemma 2, RecurrentGemma
        logits = torch.tanh(logits / cap) * cap
    return logits


def rectangle(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, T) int64 ids of rows, padded on the right, where a causal model does not see it; and the mask of what is there."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    return ids, mask


def own_logits(model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B, T, vocabulary) logits of the model's own forward, of rows padded on the right."""
    return model(input_ids=ids, attention_mask=mask, use_cache=False).logits


def next_logits(model: PreTrainedModel, rows: Sequence[Sequence[int]], together: int = 16_384) -> torch.Tensor:
    """(B, vocabulary) logits after the last token of each row, everything computed anew; together: padded tokens of a pass."""
    found: list[torch.Tensor] = []
    size = max(1, together // max(map(len, rows)))
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        last = torch.tensor([len(row) - 1 for row in part], device=model.device)
        found.append(own_logits(model, *rectangle(part, model.device))[torch.arange(len(part)), last])
    return torch.cat(found)


def own_statistics(
    model: PreTrainedModel,
    prefixes: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    temperature: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(B, T) logp, entropy and bool mask of answer i behind prefix i, by the model's own forward; differentiable."""
    ids, mask = rectangle([[*p, *a][:-1] for p, a in zip(prefixes, answers, strict=True)], model.device)
    width = ids.shape[1]
    firsts = [r * width + len(p) - 1 for r, p in enumerate(prefixes)]
    places = [first + t for first, a in zip(firsts, answers, strict=True) for t in range(len(a))]
    at = torch.tensor(places, device=model.device)
    target = torch.tensor([token for a in answers for token in a], device=model.device)
    logits = own_logits(model, ids, mask).flatten(0, 1)[at]
    logp, entropy = token_statistics(logits, torch.arange(len(at), device=at.device), target, temperature)
    return padded(logp, entropy, [len(a) for a in answers])


class _TokenStatistics(torch.autograd.Function):
    """Log-probability of chosen tokens and entropy, from logits that several tokens may share.

    One saved tensor and one pass backward, where log_softmax, gather and an entropy in autograd keep five.
    """

    @staticmethod
    def forward(ctx, logits, index, target, temperature):
        z = logits.float() / temperature if temperature != 1 else logits.float()  # (M, V)
        total = z.logsumexp(-1)  # (M,)
        p = (z - total[:, None]).exp_()
        entropy = total - (p * z).sum(-1)
        ctx.save_for_backward(z, total, entropy, index, target)
        ctx.temperature, ctx.dtype = temperature, logits.dtype
        return z[index, target] - total[index], entropy[index]

    @staticmethod
    def backward(ctx, g_logp, g_entropy):
        z, total, entropy, index, target = ctx.saved_tensors
        logp = z - total[:, None]
        zero = torch.zeros_like(total)
        scale = zero.index_add(0, index, g_logp)[:, None]
        if bool(g_entropy.any()):
            # dH/dz = -p (log p + H)
            h = zero.index_add(0, index, g_entropy)[:, None]
            scale = scale + h * (logp + entropy[:, None])
        grad = logp.exp_().mul_(-scale) if scale.shape[1] == 1 else -scale * logp.exp()
        grad.index_put_((index, target), g_logp, accumulate=True)
        return (grad / ctx.temperature).to(ctx.dtype), None, None, None


def token_statistics(
    logits: torch.Tensor, index: torch.Tensor, target: torch.Tensor, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(N,) float32 log-probability of target (N,) and entropy, token i read from row index[i] of logits (M, V)."""
    return _TokenStatistics.apply(logits, index, target, temperature)


class Packed(NamedTuple):
    """S sequences, each a prefix followed by answers that do not see each other, padded on the right to width T.

    ids, position (S, T) int64; segment (S, T) int64: 0 prefix, 1, 2, ... answers, -1 padding. source, target (N,): for
    every answer token, in the order of the rows, the flat place (sequence * T + column) whose state predicts it, and
    its id. lengths: tokens of each row, in the order in which the sequences name them.
    """

    ids: torch.Tensor
    position: torch.Tensor
    segment: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor
    lengths: list[int]


def pack(prefixes: Sequence[Sequence[int]], answers: Sequence[Sequence[Sequence[int]]], device: torch.device) -> Packed:
    """One sequence per prefix with its answers; the last token of an answer predicts nothing and is left out."""
    width = max(len(p) + sum(len(a) - 1 for a in mine) for p, mine in zip(prefixes, answers, strict=True))
    ids, position, segment = (np.full((len(prefixes), width), fill) for fill in (0, 0, -1))
    source: list[int] = []
    for s, (prefix, mine) in enumerate(zip(prefixes, answers, strict=True)):
        end = len(prefix)
        ids[s, :end], position[s, :end], segment[s, :end] = prefix, np.arange(end), 0
        for k, answer in enumerate(mine, 1):
            fed = len(answer) - 1
            ids[s, end : end + fed] = answer[:-1]
            position[s, end : end + fed] = len(prefix) + np.arange(fed)
            segment[s, end : end + fed] = k
            source += [s * width + len(prefix) - 1, *range(s * width + end, s * width + end + fed)]
            end += fed
    rows = [answer for mine in answers for answer in mine]
    target = [token for answer in rows for token in answer]
    there = partial(torch.as_tensor, device=device)
    return Packed(
        there(ids), there(position), there(segment), there(source), there(target), [len(answer) for answer in rows]
    )


def visible(packed: Packed, dtype: torch.dtype, window: int | None = None) -> torch.Tensor:
    """(S, 1, T, T) additive mask: a token sees the prefix and its own answer, up to itself; padding sees itself.

    window: of the last so many positions alone (sliding-window attention)."""
    segment, position = packed.segment, packed.position
    width = segment.shape[1]
    same = segment[:, :, None] == segment[:, None, :]
    seen = (same | (segment == 0)[:, None, :]).tril()
    if window is not None:
        seen &= position[:, :, None] - position[:, None, :] < window
    seen |= torch.eye(width, dtype=torch.bool, device=segment.device)
    return torch.zeros(seen.shape, dtype=dtype, device=segment.device).masked_fill_(~seen, torch.finfo(dtype).min)[
        :, None
    ]


def masks(model: PreTrainedModel, packed: Packed) -> torch.Tensor | dict[str, torch.Tensor]:
    """The mask of packed sequences as the model's layers take it: one, or one for each kind of layer."""
    config, dtype = model.config.get_text_config(), model.dtype
    window, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    if window is None or (kinds and "sliding_attention" not in kinds):
        return visible(packed, dtype)
    slides = visible(packed, dtype, window)
    return {"sliding_attention": slides, "full_attention": visible(packed, dtype)} if kinds else slides


def answer_statistics(
    model: PreTrainedModel, packed: Packed, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(B, T) logp, entropy and bool mask of the answers of packed sequences; differentiable.

    Each prefix is computed once for its answers, and its last state predicts the first token of all of them; logits
    exist only where there is a token to predict.
    """
    states = model.base_model(
        input_ids=packed.ids,
        attention_mask=masks(model, packed),
        position_ids=packed.position,
        use_cache=False,
    ).last_hidden_state
    needed, index = torch.unique(packed.source, return_inverse=True)
    logits = logits_of(model, states.flatten(0, 1)[needed])
    logp, entropy = token_statistics(logits, index, packed.target, temperature)
    return padded(logp, entropy, packed.lengths)


def padded(
    logp: torch.Tensor, entropy: torch.Tensor, lengths: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(B, T) logp, entropy and bool mask of rows of these lengths (B,), whose values stand behind each other (N,)."""
    length = torch.as_tensor(lengths, device=logp.device)
    mask = torch.arange(max(lengths), device=logp.device) < length[:, None]
    full = torch.zeros(mask.shape, device=logp.device)
    return full.masked_scatter(mask, logp), full.masked_scatter(mask, entropy), mask
