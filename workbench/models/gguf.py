"""GGUF to transformers: a Llama in a GGUF file as a fresh model and tokenizer.

transformers can read GGUF, but leaves the model flagged as quantised: it cannot be saved and does not count as
trainable. Here the file is read and dequantised with the `gguf` package and copied into a model built from the
configuration alone; weights are equal to the last bit to what transformers makes of the same file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CONTROL = 3
"""Token type of special tokens in GGUF."""


def read(path: str | Path, *, progress: bool = False) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Model (float32, eval mode) and tokenizer of a GGUF file of architecture llama; ValueError for any other."""
    from gguf import GGUFReader

    reader = GGUFReader(path)
    facts = {name: reader.fields[name].contents() for name in reader.fields}
    architecture = facts.get("general.architecture")
    if architecture != "llama":
        raise ValueError(f"{Path(path).name} holds a model of architecture {architecture!r}; only 'llama' is read")
    return _model(reader, facts, progress), _tokenizer(facts)


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    """(heads * d, k) rows from interleaved rotary pairs, as GGUF keeps them, to transformers' two halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _weights(reader, heads: int, key_heads: int, progress: bool) -> Iterator[tuple[str, np.ndarray]]:
    """(transformers' name, float32 array) of every tensor of the file."""
    from gguf.quants import dequantize
    from tqdm import tqdm

    for tensor in tqdm(reader.tensors, desc="dequantising", unit="tensor", disable=not progress):
        weight = dequantize(tensor.data, tensor.tensor_type)
        first, *rest = tensor.name.split(".")
        if first != "blk":
            yield f"{OUTSIDE[first]}.weight", weight
            continue
        layer, part = rest[0], rest[1]
        if part in ("attn_q", "attn_k"):
            weight = unpermute(weight, heads if part == "attn_q" else key_heads)
        yield f"model.layers.{layer}.{LAYER[part]}.weight", weight


def _model(reader, facts: dict, progress: bool) -> LlamaForCausalLM:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    llama = {name.removeprefix("llama."): value for name, value in facts.items() if name.startswith("llama.")}
    heads = llama["attention.head_count"]
    key_heads = llama.get("attention.head_count_kv", heads)
    state = {
        name: torch.from_numpy(np.array(weight, np.float32, order="C"))
        for name, weight in _weights(reader, heads, key_heads, progress)
    }
    config = LlamaConfig(
        vocab_size=len(state["model.embed_tokens.weight"]),
        hidden_size=llama["embedding_length"],
        intermediate_size=llama["feed_forward_length"],
        num_hidden_layers=llama["block_count"],
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=llama["context_length"],
        rms_norm_eps=float(llama["attention.layer_norm_rms_epsilon"]),
        rope_parameters={"rope_theta": float(llama.get("rope.freq_base", 10_000.0)), "rope_type": "default"},
        tie_word_embeddings="lm_head.weight" not in state,
        bos_token_id=facts.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=facts.get("tokenizer.ggml.eos_token_id"),
        pad_token_id=facts.get("tokenizer.ggml.padding_token_id"),
        dtype=torch.float32,
    )
    with torch.random.fork_rng():  # the weights drawn here are thrown away; the caller's generator must not move
        model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if not (config.tie_word_embeddings and name == "lm_head.weight")]
    if missing or unexpected:
        raise ValueError(
            f"the GGUF file lacks {missing[:3] or 'nothing'} and has unknown {unexpected[:3] or 'nothing'}"
        )
    return model.eval()


def _tokenizer(facts: dict) -> PreTrainedTokenizerFast:
    """Byte-level BPE with single digits, as SmolLM2 was trained with; ids are those of the file."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    kind = facts.get("tokenizer.ggml.model"), facts.get("tokenizer.ggml.pre")
    if kind != ("gpt2", "smollm"):
        raise ValueError(f"tokenizer {kind} is not known; only the byte-level BPE of SmolLM ('gpt2', 'smollm') is read")
    token, types = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ")) for pair in facts["tokenizer.ggml.merges"]]
    bpe = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(token)}, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(token, types, strict=True) if kind == CONTROL]
    bpe.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    end = token[facts["tokenizer.ggml.eos_token_id"]]
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=token[facts["tokenizer.ggml.bos_token_id"]],
        eos_token=end,
        pad_token=token[facts.get("tokenizer.ggml.padding_token_id", facts["tokenizer.ggml.eos_token_id"])],
        unk_token=token[facts.get("tokenizer.ggml.unknown_token_id", 0)],
        chat_template=facts.get("tokenizer.chat_template"),
        padding_side="left",
    )
