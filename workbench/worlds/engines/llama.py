"""Decoders of Llama's shape as plain tensors: weights of a transformers model, fused in one dtype, and passes over them.

A decoder that is to be captured as a CUDA graph may not allocate, branch or synchronise, which transformers' forward
does at every layer. A Llama is forty lines of arithmetic; here they are, for one token per row (`forward`) and for whole
prefixes (`prefill`). Its relatives differ in three places: biases (Qwen2), norms of each head (Qwen3), layers that do not
turn by position (SmolLM3). `supported` says which models these lines are true of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from workbench.worlds.engines.sampling import choose
from workbench.worlds.training import lora

KINDS = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "smollm3": "SmolLM3"}
"""Model type -> what transformers' classes of it begin with."""

FIXED = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary embedding whose frequencies are the same at every length."""

Norms = tuple[torch.Tensor, torch.Tensor] | None
"""Gains (d,) of the norms over each head of the query and of the key; None: there are none."""


class Layer(NamedTuple):
    """One layer: before (H,) and after (H,) norms; qkv ((heads + 2 groups) d, H), out (H, heads d), gate_up (2 I, H), down (H, I).

    qkv_bias ((heads + 2 groups) d,), out_bias (H,); norms of the heads; rotates: whether query and key turn by position.
    """

    before: torch.Tensor
    qkv: torch.Tensor
    out: torch.Tensor
    after: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    qkv_bias: torch.Tensor | None = None
    out_bias: torch.Tensor | None = None
    norms: Norms = None
    rotates: bool = True


class Ops(Protocol):
    """What differs between a processor and a GPU: `reference` below, `kernels` in Triton."""

    def project(
        self,
        x: torch.Tensor,
        gain: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        gated: bool,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(B, N) root-mean-square norm of x (B, H), times weight (N, H), plus bias (N,); gated: silu(first half) * second
        half, (B, N / 2)."""
        ...

    def attend(
        self, qkv, keys, values, cos, sin, slot, fed, norms: Norms = None, eps: float = 0.0, rotates: bool = True
    ) -> torch.Tensor:
        """(B, heads * d): write key and value of row b at (slot[b], fed[b]) and attend to 0 ... fed[b]; fed -1: neither.

        qkv (B, (heads + 2 groups) d); keys, values (slots, groups, S, d); cos, sin (S, d); slot, fed (B,) int64; norms,
        eps and rotates as in `placed`.
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
    """ "" where the arithmetic of this module is the model's, else why it is not; for any model, without raising."""
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if kind not in KINDS:
        return f"its type is {kind}, not {', '.join(KINDS)}"
    name = KINDS[kind]
    if f"{name}ForCausalLM" not in {c.__name__ for c in type(model).__mro__}:
        return f"it is a {type(model).__name__}, not a {name}ForCausalLM"
    body = decoder(model)
    if others := sorted({type(layer).__name__ for layer in body.layers} - {f"{name}DecoderLayer"}):
        return f"it has layers of another kind ({others[0]})"
    return next((why for why, holds in _facts(model, config) if not holds), "")


def _facts(model: PreTrainedModel, config: Any) -> Iterator[tuple[str, bool]]:
    """(what is wrong, whether it is not) of a model of a known kind."""
    body, depth, longest = decoder(model), _depth(config), _positions(config)
    activation, rotary = getattr(config, "hidden_act", None), body.rotary_emb
    window = getattr(config, "sliding_window", None) if config.model_type == "mistral" else None
    yield f"its activation is {activation}, not silu", activation == "silu"
    yield f"its rotary frequencies depend on the length ({rotary.rope_type})", rotary.rope_type in FIXED
    yield "it rotates a part of each head", 2 * len(rotary.inv_freq) == depth
    yield "its attention slides in some layers", set(getattr(config, "layer_types", None) or ()) <= {"full_attention"}
    yield f"its window of {window} tokens is shorter than {longest}", window is None or window >= longest
    yield "its output layer has a bias", _bias(model.get_output_embeddings()) is None
    for layer in body.layers:
        a, mlp = layer.self_attn, layer.mlp
        yield "its MLPs have biases", all(_bias(part) is None for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
        yield "its attention is scaled in another way", abs(a.scaling - depth**-0.5) < 1e-9
        yield (
            "not all of q, k and v have biases",
            len({_bias(part) is None for part in (a.q_proj, a.k_proj, a.v_proj)}) == 1,
        )


def _bias(layer: Any) -> torch.Tensor | None:
    return getattr(layer, "bias", None)


def _depth(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _positions(config: Any) -> int:
    """Tokens of a prefix and its answer at most."""
    return max(config.max_position_embeddings, 2048)


class Llama:
    """Fused copies of a model's weights in a dtype, kept at fixed addresses; `sync` fills them again.

    Where dtype and layout allow it (embedding, output and down projections, norms) the tensors of the model itself are
    used, not copies; own: never. A layer with LoRA adapters is copied with these merged in, so a pass has no more to do.
    """

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype, own: bool = False) -> None:
        if why := supported(model):
            raise ValueError(f"this decoder cannot run {type(model).__name__}: {why}; use TransformersEngine")
        config = model.config
        self.heads, self.groups, self.depth = config.num_attention_heads, config.num_key_value_heads, _depth(config)
        self.hidden, self.vocabulary, self.eps = config.hidden_size, config.vocab_size, config.rms_norm_eps
        self.dtype, self.device = dtype, model.device
        self._own = own
        self._fused: list[
            tuple[torch.Tensor, tuple[Any, ...], str]
        ] = []  # (tensor, layers it is made of, name in them)
        body = decoder(model)
        self.embedding = self._weight(body.embed_tokens)
        self.head = self._weight(model.get_output_embeddings())
        self.norm = self._weight(body.norm)
        self.layers = [self._layer(layer) for layer in body.layers]
        angle = torch.arange(_positions(config), device=self.device).float()[:, None] * body.rotary_emb.inv_freq.float()
        angle, scaling = torch.cat([angle, angle], -1), body.rotary_emb.attention_scaling  # (S, d)
        self.cos, self.sin = angle.cos() * scaling, angle.sin() * scaling

    def _layer(self, layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        three = attention.q_proj, attention.k_proj, attention.v_proj
        normed = head_norms(attention)
        return Layer(
            before=self._weight(layer.input_layernorm),
            qkv=self._weight(*three),
            out=self._weight(attention.o_proj),
            after=self._weight(layer.post_attention_layernorm),
            gate_up=self._weight(mlp.gate_proj, mlp.up_proj),
            down=self._weight(mlp.down_proj),
            qkv_bias=self._biases(*three),
            out_bias=self._biases(attention.o_proj),
            norms=(self._weight(normed[0]), self._weight(normed[1])) if normed else None,
            rotates=rotates(attention),
        )

    def _weight(self, *parts: Any, name: str = "weight") -> torch.Tensor:
        """The tensors of some layers behind each other."""
        tensors = [_tensor(part, name).detach() for part in parts]
        if len(tensors) == 1:
            made = tensors[0].to(self.dtype, copy=self._own)  # else the tensor itself where the dtype is the same
        else:
            made = torch.cat([t.to(self.dtype) for t in tensors])
        self._fused.append((made, parts, name))
        return made

    def _biases(self, *parts: Any) -> torch.Tensor | None:
        return None if _bias(parts[0]) is None else self._weight(*parts, name="bias")

    @torch.no_grad()
    def sync(self) -> None:
        """Take over the present weights of the model this was made from."""
        for target, parts, name in self._fused:
            if target.data_ptr() != getattr(parts[0], name).data_ptr():
                sizes = [len(getattr(part, name)) for part in parts]
                for piece, part in zip(target.split(sizes), parts, strict=True):
                    piece.copy_(_tensor(part, name))


def _tensor(part: Any, name: str) -> torch.Tensor:
    return lora.weight_of(part) if name == "weight" else getattr(part, name)


def head_norms(attention: Any) -> tuple[Any, Any] | None:
    """The norms over each head of an attention's query and key, if it has them."""
    return (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None


def rotates(attention: Any) -> bool:
    """Whether an attention turns query and key by their position."""
    return bool(getattr(attention, "use_rope", True))


def decoder(model: PreTrainedModel) -> Any:
    """The layers of a model with embedding, norm and rotary embedding; transformers gives them no types."""
    return model.base_model


def forward(
    net: Llama, ops: Ops, ids: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, slot, fed, hidden
) -> None:
    """Feed one token a row and write the last hidden states, after the norm, into hidden (B, H).

    ids (B,); keys, values (layers, slots, groups, S, d), written in place; slot, fed (B,) int64 as in `Ops.attend`.
    """
    x = F.embedding(ids, net.embedding)
    for i, layer in enumerate(net.layers):
        qkv = ops.project(x, layer.before, layer.qkv, net.eps, False, layer.qkv_bias)
        how = layer.norms, net.eps, layer.rotates
        x.addmm_(ops.attend(qkv, keys[i], values[i], net.cos, net.sin, slot, fed, *how), layer.out.T)
        if layer.out_bias is not None:
            x += layer.out_bias
        x.addmm_(ops.project(x, layer.after, layer.gate_up, net.eps, True), layer.down.T)
    ops.settle(hidden, x, net.norm, net.eps, fed)


def prefill(net: Llama, ids: torch.Tensor, write) -> torch.Tensor:
    """(P, L, H) hidden states of ids (P, L), padded on the right; write(layer, keys, values) takes (P, groups, L, d) each."""
    rows, width = ids.shape
    x = F.embedding(ids, net.embedding)
    cos, sin = net.cos[:width], net.sin[:width]
    for i, layer in enumerate(net.layers):
        qkv = reference.project(x, layer.before, layer.qkv, net.eps, False, layer.qkv_bias)
        qkv = qkv.view(rows, width, -1, net.depth).transpose(1, 2)
        q, k, v = qkv.split([net.heads, net.groups, net.groups], 1)
        q, k = placed(q, k, cos, sin, layer.norms, net.eps, layer.rotates)
        write(i, k, v)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=net.heads != net.groups)
        x = x + F.linear(mixed.transpose(1, 2).reshape(rows, width, -1), layer.out, layer.out_bias)
        x = x + reference.project(x, layer.after, layer.gate_up, net.eps, True) @ layer.down.T
    return F.rms_norm(x, x.shape[-1:], net.norm, net.eps)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of x (..., d); halves are the two coordinates of each plane."""
    first, second = x.float().chunk(2, -1)
    return (x.float() * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)


def placed(q: torch.Tensor, k: torch.Tensor, cos, sin, norms: Norms, eps: float, rotates: bool):
    """Query and key (..., d) as attention compares them: each head normalised, then turned, where the layer does that."""
    if norms is not None:
        q, k = _normed(q, norms[0], eps), _normed(k, norms[1], eps)
    return (rotate(q, cos, sin), rotate(k, cos, sin)) if rotates else (q, k)


def _normed(x: torch.Tensor, gain: torch.Tensor, eps: float) -> torch.Tensor:
    """Root-mean-square norm of x (..., d), rounded before the gain as in transformers."""
    wide = x.float()
    return gain.to(x.dtype) * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


class _Reference:
    """`Ops` in plain torch, for processors and as what the kernels are tested against."""

    def project(self, x, gain, weight, eps, gated, bias=None):
        """See `Ops.project`."""
        y = F.linear(F.rms_norm(x, x.shape[-1:], gain, eps), weight, bias)
        if not gated:
            return y
        gate, up = y.chunk(2, -1)
        return F.silu(gate) * up

    def attend(self, qkv, keys, values, cos, sin, slot, fed, norms=None, eps=0.0, rotates=True):
        """See `Ops.attend`."""
        rows, (_, groups, _, depth) = len(qkv), keys.shape
        heads = qkv.shape[1] // depth - 2 * groups
        alive, at = fed >= 0, fed.clamp(min=0)
        q, k, v = qkv.view(rows, -1, depth).split([heads, groups, groups], 1)
        q, k = placed(q, k, cos[at][:, None], sin[at][:, None], norms, eps, rotates)
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
