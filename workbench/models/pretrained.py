"""Models in transformers format: read a folder or hub id, without progress bars, and the error where a model is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class ModelUnavailable(RuntimeError):
    """A model could not be fetched (no network, no installer, wrong content); the message names the way out."""


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars that transformers draws for every file it reads or writes."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def pretrained(where: str | Path, dtype: str | torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model, in eval mode on the CPU, and tokenizer of a transformers folder or a hub id; a missing pad token is the end's."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with quiet():
        model = AutoModelForCausalLM.from_pretrained(where, dtype=dtype)
        tokenizer = AutoTokenizer.from_pretrained(where)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.eval(), tokenizer
