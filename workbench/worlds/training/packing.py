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
from workbench.worlds.engines.llama import Norms, decoder, head_norms, placed, rotates, supported
from workbench.worlds.training import lora
from workbench.worlds.training.microbatch import sent
from workbench.worlds.training.policy import Lines, Policy

LOGITS = 768 * 2**20
"""Bytes of logits that are computed together: 8,192 tokens in bfloat16 at a vocabulary of 49,152, 2,560 at 151,936."""

ALIGNED = 128
"""The tokens of a stream are filled up to a multiple of this: matrix products are slower for odd numbers."""


class Before(NamedTuple):
    """Parameters of `_before`: gain of the norm; weights and biases of query, key and value; see `llama.Layer`."""

    gain: torch.Tensor
    weights: tuple[torch.Tensor, ...]
    biases: tuple[torch.Tensor, ...] | None
    norms: Norms
    rotates: bool


class After(NamedTuple):
    """Parameters of `_after`: output projection and its bias; gain of the norm; the MLP's projections."""

    out: torch.Tensor
    bias: torch.Tensor | None
    gain: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor


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


def block(vocabulary: int, dtype: torch.dtype) -> int:
    """Predicted tokens whose logits are computed together: a multiple of `ALIGNED`, about `LOGITS` bytes."""
    return max(1, LOGITS // (vocabulary * dtype.itemsize * ALIGNED)) * ALIGNED


def _enters(layer: Any) -> Before:
    a = layer.self_attn
    three, normed = (a.q_proj, a.k_proj, a.v_proj), head_norms(a)
    return Before(
        gain=layer.input_layernorm.weight,
        weights=tuple(part.weight for part in three),
        biases=None if a.q_proj.bias is None else tuple(part.bias for part in three),
        norms=(normed[0].weight, normed[1].weight) if normed else None,
        rotates=rotates(a),
    )


def _leaves(layer: Any) -> After:
    out, mlp = layer.self_attn.o_proj, layer.mlp
    weights = (mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
    return After(out.weight, out.bias, layer.post_attention_layernorm.weight, *weights)


def _before(x, its: Before, cos, sin, eps: float, depth: int):
    """(T, heads, d) query and (T, groups, d) key, normed and turned, and value."""
    y = F.rms_norm(x, x.shape[-1:], its.gain.to(x.dtype), eps)
    bias = None if its.biases is None else torch.cat(its.biases).to(x.dtype)
    together = F.linear(y, torch.cat(its.weights).to(x.dtype), bias).view(len(x), -1, depth)
    q, k, v = together.split([len(w) // depth for w in its.weights], 1)
    q, k = placed(q, k, cos[:, None], sin[:, None], its.norms, eps, its.rotates)
    return q.contiguous(), k.contiguous(), v.contiguous()


def _after(x, mixed, its: After, eps: float):
    """(T, H) the layer's output from its input and what attention mixed."""
    x = x + F.linear(mixed.flatten(1), its.out.to(x.dtype), None if its.bias is None else its.bias.to(x.dtype))
    y = F.rms_norm(x, x.shape[-1:], its.gain.to(x.dtype), eps)
    first, second = (y @ torch.cat([its.gate, its.up]).to(x.dtype).T).chunk(2, -1)
    return x + (F.silu(first) * second) @ its.down.to(x.dtype).T


def _between(x, mixed, after: After, before: Before, cos, sin, eps: float, depth: int):
    """A layer's output, and the next one's query, key and value."""
    x = _after(x, mixed, after, eps)
    return x, *_before(x, before, cos, sin, eps, depth)


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
    """A policy whose passes run over streams: for a GPU, and decoders of Llama's shape. Settings as `Policy`'s.

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
            q = run(_before)(x, _enters(layer), cos, sin, eps, self._depth)
            return run(_after)(x, mixed(*q), _leaves(layer), eps)

        layers = list(body.layers)
        if self.recompute and torch.is_grad_enabled():  # then one tensor is kept for each layer
            for layer in layers:
                x = self._kept(through, x, layer)
        else:
            q = run(_before)(x, _enters(layers[0]), cos, sin, eps, self._depth)
            for layer, following in pairwise(layers):
                x, *q = run(_between)(x, mixed(*q), _leaves(layer), _enters(following), cos, sin, eps, self._depth)
            x = run(_after)(x, mixed(*q), _leaves(layers[-1]), eps)
        x = F.rms_norm(x[one.source], x.shape[-1:], body.norm.weight.to(kind), eps)
        n = block(self.model.config.vocab_size, kind)
        parts = [self._kept(self._head, *part) for part in zip(x.split(n), one.target.split(n), strict=True)]
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
