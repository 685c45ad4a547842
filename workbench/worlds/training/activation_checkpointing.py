"""Gradient checkpointing (activation checkpointing): trade time for memory in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer


def layers_of(model: PreTrainedModel) -> list[GradientCheckpointingLayer]:
    """The layers of a model, embedding and output apart; ValueError where transformers does not mark them."""
    if not (layers := [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]):
        raise ValueError(f"the layers of {type(model).__name__} are not known; train it without recompute and shard")
    return layers


@contextmanager
def recomputed(model: PreTrainedModel) -> Iterator[None]:
    """Inside, every decoder layer keeps its input alone and is computed again in the backward pass.

    transformers' own switch acts in training mode only, which would turn dropout on and part trainer and sampler. The
    layers are changed for the forward pass and no longer, so that copies of the model are plain ones. ValueError where none are known.
    """
    layers = layers_of(model)
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
