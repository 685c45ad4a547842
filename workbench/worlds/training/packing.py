"""Sequence packing: training passes over one stream of tokens, without padding, one compiled layer for all lengths.

Rows of any lengths stand behind each other within a budget of tokens; attention knows where each begins (varlen flash
attention), everything else is per token. The number of tokens is the only shape that changes, and torch.compile is told
so: it sees one layer once, and a long-tailed batch runs as fast as an even one. Each row carries its own prefix: on a GPU
recomputing short prompts is cheaper than a mask that shares them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from heapq import heapreplace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from workbench.worlds.engines.forward import padded, token_statistics
from workbench.worlds.engines.llama import decoder, rotate, supported
from workbench.worlds.training import lora
from workbench.worlds.training.microbatch import sent
from workbench.worlds.training.policy import Lines, Policy

HEAD = 8192
"""Predicted tokens whose logits exist together: 0.8 GB in bfloat16 at 49,152 tokens of vocabulary."""

ALIGNED = 128
"""The tokens of a stream are filled up to a multiple of this: matrix products are slower for odd numbers."""


class Stream(NamedTuple):
    """B sequences behind each other, filled up to T tokens with one nobody reads.

    ids, position (T,) int64; bounds (N + 1,) int32: where each sequence begins, and the end; longest: tokens of the
    longest; source, target (A,) int64: for every answer token the place that predicts it, and its id; lengths (B,).
    """

    ids: torch.Tensor
    position: torch.Tensor
    bounds: torch.Tensor
    longest: int
    source: torch.Tensor
    target: torch.Tensor
    lengths: np.ndarray


def fill(width: np.ndarray, budget: int) -> list[np.ndarray]:
    """Rows of width tokens each into few bins of at most budget tokens, each about as full; a wider row has its own.

    Longest first into the emptiest bin (Graham, Bounds on Multiprocessing Timing Anomalies, 1969), with one bin more as
    long as one is too full."""
    wide, rest = np.flatnonzero(width > budget), np.flatnonzero(width <= budget)
    rows = rest[np.argsort(-width[rest], kind="stable")].tolist()
    bins: list[tuple[int, int, list[int]]] = []  # (tokens, which, rows)
    for n in range(max(1, -(-int(width[rest].sum()) // budget)), len(rest) + 1):
        bins = [(0, which, []) for which in range(n)]
        for row in rows:
            tokens, which, mine = bins[0]
            mine.append(row)
            heapreplace(bins, (tokens + int(width[row]), which, mine))
        if max(bins)[0] <= budget:
            break
    mine = [rows for _, _, rows in sorted(bins, key=lambda one: one[1])]
    return [np.array(sorted(rows)) for rows in [*([row] for row in wide.tolist()), *mine]]


def stream(
    prefixes: Sequence[Sequence[int]], answers: Sequence[Sequence[int] | np.ndarray], aligned: int, device: torch.device
) -> Stream:
    """Prefix i followed by answer i without its last token, which predicts nothing; a multiple of `aligned` tokens in all."""
    start = np.array([len(p) for p in prefixes])
    length = np.array([len(a) for a in answers])
    width = start + length - 1
    total = int(width.sum())
    spare = [-total % aligned] * (total % aligned > 0)
    bounds = np.concatenate([[0], np.cumsum([*width, *spare])])
    ids = np.zeros(bounds[-1], np.int64)
    ids[:total] = np.concatenate([part for p, a in zip(prefixes, answers, strict=True) for part in (p, a[:-1])])
    position = np.arange(len(ids)) - np.repeat(bounds[:-1], np.diff(bounds))
    first = bounds[: len(width)] + start - 1
    source = np.repeat(first - np.concatenate([[0], np.cumsum(length)[:-1]]), length) + np.arange(length.sum())
    target = np.concatenate([np.asarray(a, np.int64) for a in answers])
    there, longest = partial(sent, device=device), int(np.diff(bounds).max())
    begins = there(bounds.astype(np.int32))
    return Stream(there(ids), there(position), begins, longest, there(source), there(target), length)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: torch.Tensor, longest: int) -> torch.Tensor:
    """(T, heads, d) causal attention inside each sequence of q (T, heads, d), k and v (T, groups, d)."""
    if q.is_cuda and q.dtype in (torch.bfloat16, torch.float16):
        return torch.ops.aten._flash_attention_forward(q, k, v, bounds, bounds, longest, longest, 0.0, True, False)[0]
    share = q.shape[1] // k.shape[1]
    parts = []
    for begin, end in zip(bounds.tolist()[:-1], bounds.tolist()[1:], strict=True):
        query, key, value = (
            c[begin:end].transpose(0, 1) for c in (q, *(x.repeat_interleave(share, 1) for x in (k, v)))
        )
        parts.append(F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(0, 1))
    return torch.cat(parts)


def _enters(layer: Any) -> tuple[torch.Tensor, ...]:
    """The parameters of `_before`."""
    a = layer.self_attn
    return layer.input_layernorm.weight, a.q_proj.weight, a.k_proj.weight, a.v_proj.weight


def _leaves(layer: Any) -> tuple[torch.Tensor, ...]:
    """The parameters of `_after`."""
    m = layer.mlp
    weights = (m.gate_proj.weight, m.up_proj.weight, m.down_proj.weight)
    return layer.self_attn.o_proj.weight, layer.post_attention_layernorm.weight, *weights


def _before(x, weight, query, key, value, cos, sin, eps: float, depth: int):
    """(T, heads, d) query and (T, groups, d) key, turned, and value."""
    y = F.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps)
    together = (y @ torch.cat([query, key, value]).to(x.dtype).T).view(len(x), -1, depth)
    q, k, v = together.split([len(w) // depth for w in (query, key, value)], 1)
    q, k = (rotate(part, cos[:, None], sin[:, None]) for part in (q, k))
    return q, k, v.contiguous()


def _after(x, mixed, out, weight, gate, up, down, eps: float):
    """(T, H) the layer's output from its input and what attention mixed."""
    x = x + mixed.flatten(1) @ out.to(x.dtype).T
    y = F.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps)
    first, second = (y @ torch.cat([gate, up]).to(x.dtype).T).chunk(2, -1)
    return x + (F.silu(first) * second) @ down.to(x.dtype).T


def _between(x, mixed, after: Sequence, before: Sequence, cos, sin, eps: float, depth: int):
    """A layer's output, and the next one's query, key and value; the parameters of `_after` and of `_before`."""
    x = _after(x, mixed, *after, eps=eps)
    return x, *_before(x, *before, cos=cos, sin=sin, eps=eps, depth=depth)


@cache
def _compiled(function):
    compiled = torch.compile(function)

    def call(*inputs):
        for one in inputs:
            if isinstance(one, torch.Tensor) and not isinstance(one, torch.nn.Parameter):
                torch._dynamo.mark_dynamic(one, 0)  # the tokens
        return compiled(*inputs)

    return call


class StreamPolicy(Policy):
    """A policy whose passes run over streams: for a GPU, and Llamas. Settings as `Policy`'s.

    budget: tokens of a micro-batch at most (32,768 is right for 135M parameters on 80 GB). compile: what is between two
    attentions through torch.compile, once for all lengths, about 15 s at the first update.
    """

    def __init__(self, model: PreTrainedModel, *, budget: int = 32_768, compile: bool = True, **settings) -> None:
        if why := supported(model):
            raise ValueError(f"streams cannot run {type(model).__name__}: {why}; use Policy")
        if lora.present(model):  # these passes read weights and would leave the adapters out
            raise ValueError("streams cannot run LoRA adapters; use Policy")
        if settings.get("shard"):
            raise ValueError("streams read weights layer by layer and would find parts of them; sharding needs Policy")
        super().__init__(model, budget=budget, **settings)
        if self.row_norms and model.device.type == "cuda":  # kernels.Measured writes its gradient over its input
            raise ValueError("streams go backward once on a GPU, and row_norms once for every row; use Policy")
        self.compile = compile
        self._depth = getattr(model.config, "head_dim", None) or (
            model.config.hidden_size // model.config.num_attention_heads
        )

    def cut(self, lines: Lines, rows: np.ndarray) -> list[list[np.ndarray]]:
        """Micro-batches of at most budget tokens; every row is a sequence with its own prefix."""
        start = np.array([len(p) for p in lines.prefixes])
        width = start[lines.owner[rows]] + np.maximum(lines.tokens.lengths[rows] - 1, 0)
        return [[np.array([row]) for row in rows[one]] for one in fill(width, self.room(lines))] if len(rows) else []

    def statistics(
        self, lines: Lines, sequences: Sequence[np.ndarray]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `Policy.statistics`."""
        rows = np.concatenate(sequences)
        answers = [lines.tokens.row(i) for i in rows]
        one = stream([lines.prefixes[i] for i in lines.owner[rows].tolist()], answers, ALIGNED, self.model.device)
        return padded(*self.passes(one), one.lengths.tolist())

    def passes(self, one: Stream) -> tuple[torch.Tensor, torch.Tensor]:
        """(A,) float32 log-probability and entropy of every answer token; differentiable."""
        body, eps, kind = decoder(self.model), self.model.config.rms_norm_eps, self.precision
        run = _compiled if self.compile else (lambda function: function)
        x = F.embedding(one.ids, body.embed_tokens.weight).to(kind)
        angle = one.position.float()[:, None] * body.rotary_emb.inv_freq.float()
        angle, scaling = torch.cat([angle, angle], -1), body.rotary_emb.attention_scaling
        cos, sin = angle.cos() * scaling, angle.sin() * scaling

        def mixed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return attention(q, k, v, one.bounds, one.longest)

        def through(x: torch.Tensor, layer: torch.nn.Module) -> torch.Tensor:
            q = run(_before)(x, *_enters(layer), cos, sin, eps, self._depth)
            return run(_after)(x, mixed(*q), *_leaves(layer), eps)

        layers = list(body.layers)
        if self.recompute and torch.is_grad_enabled():  # then one tensor is kept for each layer
            for layer in layers:
                x = self._kept(through, x, layer)
        else:
            q = run(_before)(x, *_enters(layers[0]), cos, sin, eps, self._depth)
            for layer, following in pairwise(layers):
                x, *q = run(_between)(x, mixed(*q), _leaves(layer), _enters(following), cos, sin, eps, self._depth)
            x = run(_after)(x, mixed(*q), *_leaves(layers[-1]), eps)
        x = F.rms_norm(x[one.source], x.shape[-1:], body.norm.weight.to(kind), eps)
        parts = [self._kept(self._head, *part) for part in zip(x.split(HEAD), one.target.split(HEAD), strict=True)]
        logp, entropy = (torch.cat(column) for column in zip(*parts, strict=True))
        return logp, entropy

    def _kept(self, function: Callable, *inputs) -> Any:
        """The function's value; with recompute only its inputs are kept for the backward pass."""
        if not (self.recompute and torch.is_grad_enabled()):
            return function(*inputs)
        return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)

    def _head(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        head = self.model.get_output_embeddings()
        assert head is not None
        logits = x @ head.weight.to(x.dtype).T
        if x.is_cuda:
            from workbench.worlds.engines.kernels import Measured

            return Measured.apply(logits, target, self.temperature)
        return token_statistics(logits, torch.arange(len(target)), target, self.temperature)
