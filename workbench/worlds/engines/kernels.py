"""The decoder's four kernels in Triton: norm, gate, attention over slots, and choosing a token.

Attention gives each (row, group) its own program, which reads that row's keys up to that row's length: no padding, no
mask and no graph per length. It also turns query and key and writes the cache, so that a layer is eight launches.
Choosing reads the logits twice: sums of blocks of 1,024 tokens, then the one block in which the draw falls.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024
"""Tokens of the vocabulary whose probabilities are summed together."""

KEYS = 64
"""Keys that a program of attention reads at once."""


@triton.jit
def _norm(x, weight, out, eps, width, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, SIZE)
    inside = at < width
    value = tl.load(x + row * width + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    gain = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, (value * scale * gain).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gated(x, out, width, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = at < width
    gate = tl.load(x + row * 2 * width + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * width + width + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _attend(
    qkv, keys, values, cos, sin, slot, fed, out, scale, capacity,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, SHARE: tl.constexpr, PADDED: tl.constexpr, DEPTH: tl.constexpr,
    KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    here = tl.load(fed + row)
    if here < 0:
        return
    d = tl.arange(0, DEPTH)
    partner = (d + DEPTH // 2) % DEPTH
    sign = tl.where(d < DEPTH // 2, -1.0, 1.0)
    c = tl.load(cos + here * DEPTH + d)
    s = tl.load(sin + here * DEPTH + d) * sign
    mine = qkv + row * (HEADS + 2 * GROUPS) * DEPTH
    kind = keys.dtype.element_ty

    own = mine + (HEADS + group) * DEPTH
    key = (tl.load(own + d).to(tl.float32) * c + tl.load(own + partner).to(tl.float32) * s).to(kind)
    value = tl.load(mine + (HEADS + GROUPS + group) * DEPTH + d)
    place = (tl.load(slot + row) * GROUPS + group) * capacity * DEPTH
    tl.store(keys + place + here * DEPTH + d, key)
    tl.store(values + place + here * DEPTH + d, value)

    g = tl.arange(0, PADDED)
    inside = (g < SHARE)[:, None]
    query = mine + (group * SHARE + g)[:, None] * DEPTH
    q = tl.load(query + d[None, :], mask=inside, other=0.0).to(tl.float32) * c[None, :]
    q += tl.load(query + partner[None, :], mask=inside, other=0.0).to(tl.float32) * s[None, :]
    q = q.to(kind)

    # the token's own key and value never leave the registers; the others are read in blocks
    top = tl.sum(q.to(tl.float32) * key.to(tl.float32)[None, :], 1) * scale  # (PADDED,)
    total = tl.full((PADDED,), 1.0, tl.float32)
    mixed = tl.zeros((PADDED, DEPTH), tl.float32) + value.to(tl.float32)[None, :]
    for start in range(0, here, KEYS):
        n = start + tl.arange(0, KEYS)
        past = n < here
        k = tl.load(keys + place + n[:, None] * DEPTH + d[None, :], mask=past[:, None], other=0.0)
        v = tl.load(values + place + n[:, None] * DEPTH + d[None, :], mask=past[:, None], other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        score = tl.where(past[None, :], score, -float("inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        fade = tl.exp(top - higher)
        p = tl.exp(score - higher[:, None])
        total = total * fade + tl.sum(p, 1)
        mixed = mixed * fade[:, None] + tl.dot(p.to(kind), v, input_precision=PRECISION)
        top = higher
    target = out + row * HEADS * DEPTH + (group * SHARE + g)[:, None] * DEPTH + d[None, :]
    tl.store(target, (mixed / total[:, None]).to(kind), mask=inside)


@triton.jit
def _sums(logits, inverse, top, mass, moment, width, n_blocks, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * width + at, mask=at < width, other=-float("inf")).to(tl.float32) * tl.load(inverse)
    highest = tl.maximum(tl.max(z, 0), -1e30)
    p = tl.exp(z - highest)
    tl.store(top + row * n_blocks + block, highest)
    tl.store(mass + row * n_blocks + block, tl.sum(p, 0))
    tl.store(moment + row * n_blocks + block, tl.sum(tl.where(p > 0, p * z, 0.0), 0))


@triton.jit
def _choose(
    logits, inverse, draw, top, mass, moment, token, logp, entropy, width, n_blocks,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr, GREEDY: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCKS)
    peaks = tl.load(top + row * n_blocks + j, mask=j < n_blocks, other=-1e30)
    highest = tl.max(peaks, 0)
    fade = tl.exp(peaks - highest)
    weight = tl.load(mass + row * n_blocks + j, mask=j < n_blocks, other=0.0) * fade  # (BLOCKS,)
    total = tl.sum(weight, 0)
    product = tl.sum(tl.load(moment + row * n_blocks + j, mask=j < n_blocks, other=0.0) * fade, 0)
    # inverse of the cumulative distribution in order of token id: first the block, then the token inside it
    wide = weight.to(tl.float64)
    at = tl.load(draw + row) * tl.sum(wide, 0)
    block = tl.sum((tl.cumsum(wide, 0) <= at).to(tl.int32), 0)
    block = tl.minimum(block, tl.max(tl.where(weight > 0, j, 0), 0))
    if GREEDY:
        block = tl.min(tl.where(peaks == highest, j, BLOCKS), 0)
    i = tl.arange(0, BLOCK)
    inside = block * BLOCK + i < width
    z = tl.load(logits + row * width + block * BLOCK + i, mask=inside, other=-float("inf")).to(tl.float32)
    z *= tl.load(inverse)
    p = tl.exp(z - highest).to(tl.float64)
    rest = at - tl.sum(tl.where(j < block, wide, 0.0), 0)
    offset = tl.sum((tl.cumsum(p, 0) <= rest).to(tl.int32), 0)
    offset = tl.minimum(offset, tl.max(tl.where(p > 0, i, 0), 0))
    if GREEDY:
        offset = tl.min(tl.where(z == highest, i, BLOCK), 0)
    chosen = tl.sum(tl.where(i == offset, z, 0.0), 0)
    tl.store(token + row, (block * BLOCK + offset).to(tl.int64))
    tl.store(logp + row, chosen - highest - tl.log(total))
    tl.store(entropy + row, tl.log(total) + highest - product / total)


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See `llama.Ops.norm`."""
    out = torch.empty_like(x)
    _norm[(len(x),)](x, weight, out, eps, x.shape[1], SIZE=triton.next_power_of_2(x.shape[1]), num_warps=4)
    return out


def gated(x: torch.Tensor) -> torch.Tensor:
    """See `llama.Ops.gated`."""
    out = x.new_empty(len(x), x.shape[1] // 2)
    _gated[(len(x), triton.cdiv(out.shape[1], 1024))](x, out, out.shape[1], SIZE=1024, num_warps=4)
    return out


def attend(qkv, keys, values, cos, sin, slot, fed) -> torch.Tensor:
    """See `llama.Ops.attend`."""
    _, groups, capacity, depth = keys.shape
    heads = qkv.shape[1] // depth - 2 * groups
    share = heads // groups
    out = torch.empty(len(qkv), heads * depth, dtype=qkv.dtype, device=qkv.device)
    precision = "ieee" if qkv.dtype == torch.float32 else "tf32"
    _attend[(len(qkv), groups)](
        qkv, keys, values, cos, sin, slot, fed, out, depth**-0.5, capacity,
        HEADS=heads, GROUPS=groups, SHARE=share, PADDED=max(16, triton.next_power_of_2(share)), DEPTH=depth, KEYS=KEYS,
        PRECISION=precision, num_warps=2, num_stages=2,
    )  # fmt: skip
    return out


def choose(logits: torch.Tensor, draw: torch.Tensor, inverse: torch.Tensor, greedy: bool):
    """See `llama.Ops.choose`."""
    rows, width = logits.shape
    n_blocks = triton.cdiv(width, BLOCK)
    top, mass, moment = (torch.empty(rows, n_blocks, device=logits.device) for _ in range(3))
    token = torch.empty(rows, dtype=torch.int64, device=logits.device)
    logp, entropy = (torch.empty(rows, device=logits.device) for _ in range(2))
    _sums[(rows, n_blocks)](logits, inverse, top, mass, moment, width, n_blocks, BLOCK=BLOCK, num_warps=4)
    _choose[(rows,)](
        logits, inverse, draw, top, mass, moment, token, logp, entropy, width, n_blocks,
        BLOCKS=triton.next_power_of_2(n_blocks), BLOCK=BLOCK, GREEDY=greedy, num_warps=4,
    )  # fmt: skip
    return token, logp, entropy
