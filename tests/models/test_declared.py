"""What a model folder declares: end tokens, context, and a vocabulary that fits its tokenizer."""

from __future__ import annotations

import pytest
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from workbench.models import TINY
from workbench.models.declared import check_vocabulary, context_length, end_ids


def model_of(kind: str = "qwen2", **more):
    """A small random model of a family."""
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model(kind, **{"vocab_size": 512, "num_key_value_heads": 2, **size, **more})
    return AutoModelForCausalLM.from_config(config)


@pytest.fixture
def tokenizer():
    return AutoTokenizer.from_pretrained(TINY)


def test_end_tokens_are_those_of_both_configs_that_the_model_knows() -> None:
    model = model_of(eos_token_id=[3, 4])
    model.generation_config.eos_token_id = 7
    assert end_ids(model) == {3, 4, 7}
    model.generation_config.eos_token_id = [9, 512, -1]
    assert end_ids(model) == {3, 4, 9}
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    assert end_ids(model) == frozenset()


@pytest.mark.parametrize(
    ("kind", "more", "length"),
    [
        ("llama", {"max_position_embeddings": 96}, 96),
        ("gpt2", {"n_positions": 48}, 48),
        ("gptj", {"n_positions": 40}, 40),
        ("falcon", {"max_position_embeddings": 64}, 64),
        ("falcon", {"alibi": True}, None),
        ("mamba", {}, None),
        ("bloom", {"seq_length": 64}, None),
        ("mpt", {"max_seq_len": 64}, 64),
        (
            "qwen2",
            {
                "max_position_embeddings": 64,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "rope_theta": 1e4,
                    "factor": 4.0,
                    "original_max_position_embeddings": 64,
                },
            },
            256,
        ),
        ("gemma3", {"text_config": {"max_position_embeddings": 80}}, 80),
    ],
)
def test_the_context_is_read_from_every_family(kind, more, length) -> None:
    assert context_length(AutoConfig.for_model(kind, **more)) == length


def test_a_tokenizer_with_more_ids_than_embeddings_is_refused(tokenizer) -> None:
    check_vocabulary(model_of(), tokenizer)
    check_vocabulary(model_of(vocab_size=600), tokenizer)
    with pytest.raises(ValueError, match=r"ids up to 511 \(512 tokens\), but the model has 500 embeddings"):
        check_vocabulary(model_of(vocab_size=500), tokenizer)
    tokenizer.add_tokens(["<more>"])
    with pytest.raises(ValueError, match=r"ids up to 512 \(513 tokens\), but the model has 512 embeddings"):
        check_vocabulary(model_of(), tokenizer)


def test_a_placeholder_of_images_needs_no_embedding(tokenizer) -> None:
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    tokenizer.image_token = "<image>"
    check_vocabulary(model_of(), tokenizer)
