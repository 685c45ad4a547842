"""A Llama as plain tensors: the weights of a transformers model, fused and in one dtype, and the passes over them.

A decoder that is to be captured as a CUDA graph may not allocate, branch or synchronise, which transformers' forward
does at every layer. A Llama is forty lines of arithmetic; here they are, for one token per row (`forward`) and for whole
prefixes (`prefill`). `supported` says which models these lines are true of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from workbench.worlds.engines.sampling import choose
from workbench.worlds.training import lora


class Layer(NamedTuple):
    """One layer: before (H,) and after (H,) norms; qkv ((heads + 2 groups) d, H), out (H, heads d), gate_up (2 I, H), down (H, I)."""

    before: torch.Tensor
    qkv: torch.Tensor
    out: torch.Tensor
    after: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class Ops(Protocol):
    """What differs between a processor and a GPU: `reference` below, `kernels` in Triton."""

    def project(
        self, x: torch.Tensor, gain: torch.Tensor, weight: torch.Tensor, eps: float, gated: bool
    ) -> torch.Tensor:
        """(B, N) root-mean-square norm of x (B, H), times weight (N, H); gated: silu(first half) * second half, (B, N / 2)."""
        ...

    def attend(self, qkv, keys, values, cos, sin, slot, fed) -> torch.Tensor:
        """(B, heads * d): write key and value of row b at (slot[b], fed[b]) and attend to 0 ... fed[b]; fed -1: neither.

        qkv (B, (heads + 2 groups) d); keys, values (slots, groups, S, d); cos, sin (S, d); slot, fed (B,) int64.
        """
        ...

    def settle(self, hidden: torch.Tensor, x: torch.Tensor, gain: torch.Tensor, eps: float, fed: torch.Tensor) -> None:
        """Write the norm of x (B, H) into hidden (B, H) where fed (B,) is not negative."""
        ...

    def choose(
        self, logits: torch.Tensor, draw: torch.Tensor, inverse: torch.Tensor, greedy: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(B,) token int64, logp and entropy float32 of logits (B, V), draw (B,) float64, inverse temperature (1,)."""
        ...

    def note(self, board, size: int, token: torch.Tensor, logp: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
        """Enter what the first `size` places of a `Board` drew; (size,) int64 where each is fed, -1: not at all."""
        ...


def supported(model: PreTrainedModel) -> str:
    """ "" where the arithmetic of this module is the model's, else why it is not."""
    config = model.config
    if config.model_type != "llama":
        return f"it is a {config.model_type}, not a llama"
    facts = {
        "its linear layers have biases": not (config.attention_bias or config.mlp_bias),
        f"its activation is {config.hidden_act}, not silu": config.hidden_act == "silu",
        "its rotary frequencies depend on the length": (config.rope_parameters or {}).get("rope_type") == "default",
    }
    return next((why for why, holds in facts.items() if not holds), "")


class Llama:
    """Fused copies of a model's weights in a dtype, kept at fixed addresses; `sync` fills them again.

    Where dtype and layout allow it (embedding, output and down projections, norms) the tensors of the model itself are
    used, not copies; own: never. A layer with LoRA adapters is copied with these merged in, so a pass has no more to do.
    """

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype, positions: int, own: bool = False) -> None:
        if why := supported(model):
            raise ValueError(f"this decoder cannot run {type(model).__name__}: {why}; use TransformersEngine")
        config = model.config
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.depth = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.hidden, self.vocabulary, self.eps = config.hidden_size, config.vocab_size, config.rms_norm_eps
        self.dtype, self.device = dtype, model.device
        self._sources = list(_sources(model))
        self._own = own
        flat = [self._fused(parts) for parts in self._sources]
        self.embedding, self.head, self.norm, *rest = flat
        self.layers = [Layer(*rest[i : i + 6]) for i in range(0, len(rest), 6)]
        rotary = decoder(model).rotary_emb
        angle = torch.arange(positions, device=self.device).float()[:, None] * rotary.inv_freq.float()
        angle = torch.cat([angle, angle], -1)  # (S, d)
        self.cos, self.sin = angle.cos() * rotary.attention_scaling, angle.sin() * rotary.attention_scaling

    def _fused(self, parts: Sequence[torch.nn.Module]) -> torch.Tensor:
        weights = [lora.weight_of(part).detach() for part in parts]
        if len(weights) == 1:
            return weights[0].to(self.dtype, copy=self._own)  # else the tensor itself where the dtype is the same
        return torch.cat([w.to(self.dtype) for w in weights])

    @torch.no_grad()
    def sync(self) -> None:
        """Take over the present weights of the model this was made from."""
        targets = [self.embedding, self.head, self.norm, *(t for layer in self.layers for t in layer)]
        for target, parts in zip(targets, self._sources, strict=True):
            if target.data_ptr() != parts[0].weight.data_ptr():
                for piece, part in zip(target.split([len(p.weight) for p in parts]), parts, strict=True):
                    piece.copy_(lora.weight_of(part))


def decoder(model: PreTrainedModel) -> Any:
    """The layers of a Llama with embedding, norm and rotary embedding; transformers gives them no types."""
    return model.base_model


def _sources(model: PreTrainedModel) -> Iterator[list[Any]]:
    """The layers behind each fused tensor, in the order of `Llama.__init__`."""
    body = decoder(model)
    yield [body.embed_tokens]
    yield [model.get_output_embeddings()]
    yield [body.norm]
    for layer in body.layers:
        attention, mlp = layer.self_attn, layer.mlp
        yield [layer.input_layernorm]
        yield [attention.q_proj, attention.k_proj, attention.v_proj]
        yield [attention.o_proj]
        yield [layer.post_attention_layernorm]
        yield [mlp.gate_proj, mlp.up_proj]
        yield [mlp.down_proj]


def forward(
    net: Llama, ops: Ops, ids: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, slot, fed, hidden
) -> None:
    """Feed one token a row and write the last hidden states, after the norm, into hidden (B, H).

    ids (B,); keys, values (layers, slots, groups, S, d), written in place; slot, fed (B,) int64 as in `Ops.attend`.
    """
    x = F.embedding(ids, net.embedding)
    for i, layer in enumerate(net.layers):
        qkv = ops.project(x, layer.before, layer.qkv, net.eps, False)
        x.addmm_(ops.attend(qkv, keys[i], values[i], net.cos, net.sin, slot, fed), layer.out.T)
        x.addmm_(ops.project(x, layer.after, layer.gate_up, net.eps, True), layer.down.T)
    ops.settle(hidden, x, net.norm, net.eps, fed)


def prefill(net: Llama, ids: torch.Tensor, write) -> torch.Tensor:
    """(P, L, H) hidden states of ids (P, L), padded on the right; write(layer, keys, values) takes (P, groups, L, d) each."""
    rows, width = ids.shape
    x = F.embedding(ids, net.embedding)
    cos, sin = net.cos[:width], net.sin[:width]
    for i, layer in enumerate(net.layers):
        qkv = reference.project(x, layer.before, layer.qkv, net.eps, False)
        qkv = qkv.view(rows, width, -1, net.depth).transpose(1, 2)
        q, k, v = qkv.split([net.heads, net.groups, net.groups], 1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        write(i, k, v)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=net.heads != net.groups)
        x = x + mixed.transpose(1, 2).reshape(rows, width, -1) @ layer.out.T
        x = x + reference.project(x, layer.after, layer.gate_up, net.eps, True) @ layer.down.T
    return F.rms_norm(x, x.shape[-1:], net.norm, net.eps)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of x (..., d); halves are the two coordinates of each plane."""
    first, second = x.float().chunk(2, -1)
    return (x.float() * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)


class _Reference:
    """`Ops` in plain torch, for processors and as what the kernels are tested against."""

    def project(self, x, gain, weight, eps, gated):
        """See `Ops.project`."""
        y = F.rms_norm(x, x.shape[-1:], gain, eps) @ weight.T
        if not gated:
            return y
        gate, up = y.chunk(2, -1)
        return F.silu(gate) * up

    def attend(self, qkv, keys, values, cos, sin, slot, fed):
        """See `Ops.attend`."""
        rows, (_, groups, _, depth) = len(qkv), keys.shape
        heads = qkv.shape[1] // depth - 2 * groups
        alive, at = fed >= 0, fed.clamp(min=0)
        q, k, v = qkv.view(rows, -1, depth).split([heads, groups, groups], 1)
        c, s = cos[at][:, None], sin[at][:, None]
        q, k = rotate(q, c, s), rotate(k, c, s)
        keys[slot[alive], :, at[alive]] = k[alive]
        values[slot[alive], :, at[alive]] = v[alive]
        width = int(at.max()) + 1
        seen = torch.arange(width, device=fed.device) <= at[:, None]  # (B, width)
        together = q.reshape(rows, groups, heads // groups, depth) * depth**-0.5
        score = together @ keys[slot, :, :width].transpose(2, 3)
        weight = score.masked_fill(~seen[:, None, None], float("-inf")).softmax(-1)
        return (weight @ values[slot, :, :width]).reshape(rows, -1)

    def settle(self, hidden, x, gain, eps, fed):
        """See `Ops.settle`."""
        hidden.copy_(torch.where(fed[:, None] >= 0, F.rms_norm(x, x.shape[-1:], gain, eps), hidden))

    def choose(self, logits, draw, inverse, greedy):
        """See `Ops.choose`."""
        return choose(logits, draw, 0.0) if greedy else choose(logits.float() * inverse, draw, 1.0)

    def note(self, board, size, token, logp, entropy):
        """See `Ops.note`."""
        drawn = board.active[:size].clone()
        going = drawn & ~board.stop[token]
        board.left[:size] -= drawn.long()
        more = going & (board.left[:size] > 0) & ~board.marker[token] & (entropy <= board.threshold)
        fed = torch.where(going & (more | board.feed_last), board.position[:size], -1)
        board.active[:size] = more
        board.position[:size] += (fed >= 0).long()
        token = torch.where(drawn, token, -1)
        for column, values in ((board.token, token), (board.logp, logp), (board.entropy, entropy)):
            column[:size].index_copy_(1, board.t, values[:, None])
        return fed


reference = _Reference()
