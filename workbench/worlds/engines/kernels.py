"""Triton kernels of the decoder: norm with projection and gate, attention over slots, choosing a token.

Attention gives each (row, group) its own program, which reads that row's keys up to that row's length: no padding, no
mask and no graph per length. It also turns query and key and writes the cache, so that a layer is eight launches.
Choosing reads the logits twice: sums of blocks of 1,024 tokens, then the one block in which the draw falls.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false
# Triton comes with a GPU's torch only, and kernel[grid](...) is how it launches.

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

BLOCK = 1024
"""Tokens of the vocabulary whose probabilities are summed together."""

DEPTHS = (16, 32, 64, 128)
"""Sizes of a head that attention is made for."""


class Reading(NamedTuple):
    """How attention reads: keys at once, warps, stages."""

    keys: int
    warps: int
    stages: int


def reading(rows: int, width: int) -> Reading:
    """How attention reads for a number of rows and keys of `width` bytes: few rows leave the chip idle, so each reads more
    at once: 16 KiB of keys, of which shared memory holds six."""
    return Reading(32, 1, 2) if rows > 128 else Reading(min(128, 16_384 // width), 4, 3)


@triton.jit
def _settle(hidden, x, gain, fed, eps, width, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    if tl.load(fed + row) < 0:
        return
    at = tl.arange(0, SIZE)
    inside = at < width
    value = tl.load(x + row * width + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    weight = tl.load(gain + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(hidden + row * width + at, (value * scale * weight).to(hidden.dtype.element_ty), mask=inside)


@triton.jit
def _norm(x, gain, out, eps, width, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, SIZE)
    inside = at < width
    value = tl.load(x + row * width + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    weight = tl.load(gain + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, (value * scale * weight).to(out.dtype.element_ty), mask=inside)


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
    qkv, keys, values, cos, sin, slot, fed, q_gain, k_gain, out, scale, eps, capacity,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, SHARE: tl.constexpr, PADDED: tl.constexpr, DEPTH: tl.constexpr,
    KEYS: tl.constexpr, PRECISION: tl.constexpr, NORMS: tl.constexpr, ROTATES: tl.constexpr,
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
    key = tl.load(own + d).to(tl.float32)
    other = tl.load(own + partner).to(tl.float32)
    if NORMS:  # rounded before the gain, as in transformers
        shrink = tl.rsqrt(tl.sum(key * key, 0) / DEPTH + eps)
        key = (key * shrink).to(kind).to(tl.float32) * tl.load(k_gain + d).to(tl.float32)
        other = (other * shrink).to(kind).to(tl.float32) * tl.load(k_gain + partner).to(tl.float32)
        key, other = key.to(kind).to(tl.float32), other.to(kind).to(tl.float32)
    if ROTATES:
        key = key * c + other * s
    key = key.to(kind)
    value = tl.load(mine + (HEADS + GROUPS + group) * DEPTH + d)
    place = (tl.load(slot + row) * GROUPS + group) * capacity * DEPTH
    tl.store(keys + place + here * DEPTH + d, key)
    tl.store(values + place + here * DEPTH + d, value)

    g = tl.arange(0, PADDED)
    inside = (g < SHARE)[:, None]
    query = mine + (group * SHARE + g)[:, None] * DEPTH
    q = tl.load(query + d[None, :], mask=inside, other=0.0).to(tl.float32)
    turned = tl.load(query + partner[None, :], mask=inside, other=0.0).to(tl.float32)
    if NORMS:
        shrinks = tl.rsqrt(tl.sum(q * q, 1) / DEPTH + eps)[:, None]
        q = (q * shrinks).to(kind).to(tl.float32) * tl.load(q_gain + d).to(tl.float32)[None, :]
        turned = (turned * shrinks).to(kind).to(tl.float32) * tl.load(q_gain + partner).to(tl.float32)[None, :]
        q, turned = q.to(kind).to(tl.float32), turned.to(kind).to(tl.float32)
    if ROTATES:
        q = q * c[None, :] + turned * s[None, :]
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


@triton.jit
def _note(
    token, logp, entropy, fed, t, threshold, feed_last, stop, marker, active, left, position,
    tokens, logps, entropies, size, CHUNK: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = row < size
    step = tl.load(t)
    chosen = tl.load(token + row, mask=inside, other=0)
    h = tl.load(entropy + row, mask=inside, other=0.0)
    drawn = tl.load(active + row, mask=inside, other=0) != 0
    going = drawn & (tl.load(stop + chosen, mask=inside, other=0) == 0)
    remaining = tl.load(left + row, mask=inside, other=0) - drawn.to(tl.int64)
    calm = (tl.load(marker + chosen, mask=inside, other=0) == 0) & (h <= tl.load(threshold))
    more = going & (remaining > 0) & calm
    feeds = going & (more | (tl.load(feed_last) != 0))
    at = tl.load(position + row, mask=inside, other=0)
    tl.store(fed + row, tl.where(feeds, at, -1), mask=inside)
    tl.store(position + row, at + feeds.to(tl.int64), mask=inside)
    tl.store(left + row, remaining, mask=inside)
    tl.store(active + row, more.to(tl.int8), mask=inside)
    place = row * CHUNK + step
    tl.store(tokens + place, tl.where(drawn, chosen, -1), mask=inside)
    tl.store(logps + place, tl.load(logp + row, mask=inside, other=0.0), mask=inside)
    tl.store(entropies + place, h, mask=inside)


@triton.jit
def _slope(logits, inverse, target, total, entropy, g_logp, g_entropy, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < width
    factor = tl.load(inverse)
    logp = tl.load(logits + row * width + i, mask=inside, other=-float("inf")).to(tl.float32) * factor
    logp -= tl.load(total + row)
    p = tl.exp(logp)
    g = tl.load(g_logp + row)
    # d logp / dz = 1[target] - p;  dH / dz = -p (log p + H)
    bend = tl.load(g_entropy + row) * tl.where(p > 0, logp + tl.load(entropy + row), 0.0)
    slope = tl.where(i == tl.load(target + row), g, 0.0) - p * (g + bend)
    tl.store(logits + row * width + i, (slope * factor).to(logits.dtype.element_ty), mask=inside)


class Measured(torch.autograd.Function):
    """(M,) float32 log-probability of target (M,) and entropy of logits (M, V), whose place the gradient takes.

    One pass forward, one backward, nothing kept but the logits: backward can run once.
    """

    @staticmethod
    def forward(ctx, logits, target, temperature):
        """See the class."""
        rows, width = logits.shape
        n_blocks = triton.cdiv(width, BLOCK)
        inverse = torch.full((1,), 1 / temperature, device=logits.device)
        top, mass, moment = (torch.empty(rows, n_blocks, device=logits.device) for _ in range(3))
        _sums[(rows, n_blocks)](logits, inverse, top, mass, moment, width, n_blocks, BLOCK=BLOCK, num_warps=4)
        highest = top.amax(1, keepdim=True)
        fade = (top - highest).exp()
        summed = (mass * fade).sum(1)
        total = summed.log() + highest[:, 0]
        entropy = total - (moment * fade).sum(1) / summed
        logp = logits.gather(1, target[:, None])[:, 0].float() * inverse - total
        ctx.save_for_backward(logits, target, inverse, total, entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx, g_logp, g_entropy):
        """See the class."""
        logits, target, inverse, total, entropy = ctx.saved_tensors
        rows, width = logits.shape
        g_logp, g_entropy = g_logp.contiguous(), g_entropy.contiguous()
        _slope[(rows, triton.cdiv(width, BLOCK))](
            logits, inverse, target, total, entropy, g_logp, g_entropy, width, BLOCK=BLOCK, num_warps=4
        )
        return logits, None, None


def project(
    x: torch.Tensor,
    gain: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    gated: bool,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """See `llama.Ops.project`. A norm inside the product was tried: faster for gates of up to 16 rows alone."""
    rows, width = x.shape
    y = torch.empty_like(x)
    _norm[(rows,)](x, gain, y, eps, width, SIZE=triton.next_power_of_2(width), num_warps=4)
    y = F.linear(y, weight, bias)
    if not gated:
        return y
    out = x.new_empty(rows, len(weight) // 2)
    columns = out.shape[1]
    _gated[(rows, triton.cdiv(columns, 1024))](y, out, columns, SIZE=1024, num_warps=4)
    return out


def _precision(x: torch.Tensor) -> str:
    return "ieee" if x.dtype == torch.float32 else "tf32"


def settle(hidden: torch.Tensor, x: torch.Tensor, gain: torch.Tensor, eps: float, fed: torch.Tensor) -> None:
    """See `llama.Ops.settle`."""
    width = x.shape[1]
    _settle[(len(x),)](hidden, x, gain, fed, eps, width, SIZE=triton.next_power_of_2(width), num_warps=4)


def note(board, size: int, token: torch.Tensor, logp: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
    """See `llama.Ops.note`."""
    fed = torch.empty_like(token)
    flags = (c.view(torch.int8) for c in (board.feed_last, board.stop, board.marker, board.active))
    _note[(triton.cdiv(size, 128),)](
        token, logp, entropy, fed, board.t, board.threshold, *flags, board.left, board.position,
        board.token, board.logp, board.entropy, size, CHUNK=board.token.shape[1], SIZE=128, num_warps=4,
    )  # fmt: skip
    return fed


def attend(
    qkv,
    keys,
    values,
    cos,
    sin,
    slot,
    fed,
    norms=None,
    eps: float = 0.0,
    rotates: bool = True,
    how: Reading | None = None,
) -> torch.Tensor:
    """See `llama.Ops.attend`."""
    _, groups, capacity, depth = keys.shape
    heads = qkv.shape[1] // depth - 2 * groups
    share = heads // groups
    out = torch.empty(len(qkv), heads * depth, dtype=qkv.dtype, device=qkv.device)
    how = how or reading(len(qkv), depth * keys.element_size())
    gains = norms or (qkv, qkv)  # which nobody reads
    _attend[(len(qkv), groups)](
        qkv, keys, values, cos, sin, slot, fed, *gains, out, depth**-0.5, eps, capacity,
        HEADS=heads, GROUPS=groups, SHARE=share, PADDED=max(16, triton.next_power_of_2(share)), DEPTH=depth,
        KEYS=how.keys, PRECISION=_precision(qkv), NORMS=norms is not None, ROTATES=rotates,
        num_warps=how.warps, num_stages=how.stages,
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
