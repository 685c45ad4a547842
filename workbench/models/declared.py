"""What a model folder declares beside its weights: the tokens that end an answer, the context, the ids it has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length", "n_ctx")
_PLACEHOLDERS = ("image_token", "audio_token", "video_token")


def end_ids(model: PreTrainedModel) -> frozenset[int]:
    """Ids that end a text: `eos_token_id`, a number or a list, of config and generation config; unknown ids are left out."""
    config = model.config
    sources = (config, config.get_text_config(), getattr(model, "generation_config", None))
    rows = n_embeddings(model)
    return frozenset(i for s in sources for i in _numbers(getattr(s, "eos_token_id", None)) if 0 <= i < rows)


def context_length(config: PreTrainedConfig) -> int | None:
    """Tokens that a prompt and its answer may have together; None where nothing bounds them (Mamba, ALiBi).

    YaRN reaches factor times the length that the model was trained at, which the field itself need not say."""
    text = config.get_text_config()
    if text.model_type == "bloom" or getattr(text, "alibi", False) is True:
        return None
    lengths = (getattr(text, name, None) for name in _LENGTHS)
    length = next((n for n in lengths if isinstance(n, int) and n > 0), None)
    rope = getattr(text, "rope_parameters", None) or {}
    if length is not None and rope.get("rope_type") == "yarn":
        return max(length, int(rope.get("factor", 1) * (rope.get("original_max_position_embeddings") or length)))
    return length


def n_embeddings(model: PreTrainedModel) -> int:
    """Ids that a model has an embedding for."""
    return model.get_input_embeddings().weight.shape[0]  # type: ignore[union-attr]


def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ValueError where a tokenizer gives ids that a model has no embedding for.

    Placeholders of images and sounds are no text: Gemma 3's tokenizer has one that its text model lacks."""
    vocabulary, rows = tokenizer.get_vocab(), n_embeddings(model)
    other = {getattr(tokenizer, name, None) for name in _PLACEHOLDERS}
    used = 1 + max((i for token, i in vocabulary.items() if token not in other), default=-1)
    if used > rows:
        raise ValueError(
            f"the tokenizer uses ids up to {used - 1} ({used} tokens), but the model has {rows} embeddings; take the "
            "tokenizer that belongs to the model, or resize: model.resize_token_embeddings(len(tokenizer))"
        )


def _numbers(value: int | Iterable[int] | None) -> list[int]:
    if value is None:
        return []
    return [int(i) for i in ([value] if isinstance(value, int) else value)]
