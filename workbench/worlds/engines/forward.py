"""The two passes that sampling and training share: run each prefix once, then fan its keys and values out to rows.

Everything that touches transformers' forward signature and cache is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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


def pad_left(rows: Sequence[Sequence[int]], fill: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """(P, L) int64 ids and mask of token lists that end together."""
    width = max(map(len, rows))
    ids = torch.tensor([[fill] * (width - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    return ids, mask


def body(
    model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, position: torch.Tensor, cache: DynamicCache
) -> torch.Tensor:
    """(B, T, hidden) last hidden states of ids (B, T) at position (B, T), behind what the cache holds."""
    return model.base_model(
        input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True
    ).last_hidden_state


def prefill(model: PreTrainedModel, prefixes: Sequence[Sequence[int]]) -> Prefixed:
    """Run every prefix once; differentiable where gradients are on. A prefix has at least one token."""
    ids, mask = pad_left(prefixes, 0, model.device)
    position = (mask.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    hidden = body(model, ids, mask, position, cache)
    return Prefixed(cache, mask, position[:, -1] + 1, hidden[:, -1])


def fan_out(prefixed: Prefixed, owner: torch.Tensor) -> Prefixed:
    """One row for every entry of owner (B,): the prefix it continues. The cache is taken over, not kept."""
    prefixed.cache.batch_select_indices(owner)
    return Prefixed(prefixed.cache, prefixed.mask[owner], prefixed.position[owner], prefixed.hidden[owner])


def logits_of(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """(M, vocabulary) logits of hidden states (M, hidden)."""
    return model.get_output_embeddings()(hidden)


def plain_head(model: PreTrainedModel) -> bool:
    """Whether logits are the output embedding of the last hidden state and nothing more (no cap, no scale), tried out."""
    ids = torch.arange(4, device=model.device)[None] % model.config.vocab_size
    with torch.no_grad():
        whole = model(input_ids=ids).logits.float()
        hidden = model.base_model(input_ids=ids).last_hidden_state
        return torch.allclose(whole, logits_of(model, hidden).float(), rtol=1e-3, atol=1e-3)


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


def answer_statistics(
    model: PreTrainedModel,
    prefixes: Sequence[Sequence[int]],
    owner: Sequence[int],
    answers: Sequence[Sequence[int]],
    temperature: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(B, T) logp, entropy and bool mask of answers given their prefixes; differentiable.

    prefixes: P token lists; owner (B,) the prefix of each answer; answers: B token lists, T the longest. Each prefix is
    computed once, its last hidden state predicts the first token of all its answers; no last token is fed in; logits
    exist only where an answer has a token to predict.
    """
    device = model.device
    length = torch.tensor([len(a) for a in answers], device=device)
    width = int(length.max())
    owner = torch.as_tensor(owner, device=device)
    tokens = torch.tensor([list(a) + [0] * (width - len(a)) for a in answers], device=device)  # (B, T)
    mask = torch.arange(width, device=device) < length[:, None]
    start = prefill(model, prefixes)
    hidden = [start.hidden]
    place = torch.zeros_like(tokens)  # (B, T) row of `hidden` that predicts each token
    place[:, 0] = owner
    if width > 1:
        rows = fan_out(start, owner)
        fed = mask[:, 1:]
        position = rows.position[:, None] + torch.arange(width - 1, device=device)
        states = body(model, tokens[:, :-1], torch.cat([rows.mask, fed.long()], 1), position, rows.cache)
        place[:, 1:][fed] = len(prefixes) + torch.arange(int(fed.sum()), device=device)
        hidden.append(states[fed])
    logits = logits_of(model, torch.cat(hidden))
    logp, entropy = token_statistics(logits, place[mask], tokens[mask], temperature)
    full = torch.zeros(mask.shape, device=device)
    return full.masked_scatter(mask, logp), full.masked_scatter(mask, entropy), mask
