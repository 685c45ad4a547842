"""LoRA through peft: low-rank updates of the linear layers are trained, the weights under them are not.

The layers are injected into the model itself, so whoever runs the model runs the adapters too; the class, the forward
pass and the shape of the model stay. Engines that read weights instead of calling layers take `weight_of` and
`plain_weights`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

ADAPTERS = "adapters.safetensors"


def add(
    model: PreTrainedModel,
    rank: int = 16,
    *,
    alpha: float | None = None,
    targets: Sequence[str] | None = None,
    seed: int = 0,
) -> PreTrainedModel:
    """The same model with adapters of a rank in its linear layers, freezing everything else; needs peft.

    targets: names of layers, None for all linear layers but the output embedding; experts that are kept as one tensor
    have no layers, and no adapters.
    W' = W + alpha / rank * B A with B = 0 at the start, so nothing changes yet; alpha is 2 * rank where it is None.
    A is drawn from the seed. ValueError where no layer has one of the names.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ValueError("LoRA needs peft: pip install 'rollout-workbench[lora]'") from error
    if present(model):
        raise ValueError("the model has LoRA adapters already; merge them or start from the plain model")
    scale, names = 2 * rank if alpha is None else alpha, list(targets or linear_layers(model))
    config = LoraConfig(r=rank, lora_alpha=scale, target_modules=names)  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model)
    return model


def linear_layers(model: PreTrainedModel) -> list[str]:
    """Names of a model's linear layers, GPT-2's transposed ones too, but for its output embedding."""
    head = model.get_output_embeddings()
    linear = (torch.nn.Linear, Conv1D)
    return [name for name, m in model.named_modules() if isinstance(m, linear) and m is not head]


def layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """(name, layer) of every layer with adapters, in the model's order; known by their shape, so peft is not imported."""
    return [(name, m) for name, m in model.named_modules() if hasattr(m, "lora_A") and hasattr(m, "base_layer")]


def present(model: torch.nn.Module) -> bool:
    """Whether the model has adapters."""
    return bool(layers(model))


@torch.no_grad()
def weight_of(layer: torch.nn.Module) -> torch.Tensor:
    """What a layer multiplies by now: its weight itself, or with adapters W + alpha / rank * B A, a tensor of its own."""
    if not hasattr(layer, "base_layer"):
        return layer.weight  # type: ignore[return-value]
    return layer.base_layer.weight + layer.get_delta_weight("default")  # type: ignore[union-attr, operator]


def plain_weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of the plain model's state as it is now; adapters are merged layer by layer, as each is asked for."""
    adapted = dict(layers(model))
    for name, value in model.state_dict().items():
        if "lora_" in name:
            continue
        owner, _, kind = name.replace(".base_layer.", ".").rpartition(".")
        merge = owner in adapted and kind == "weight"
        yield f"{owner}.{kind}", weight_of(adapted[owner]) if merge else value


@contextmanager
def off(model: torch.nn.Module) -> Iterator[None]:
    """Inside, the model computes without its adapters."""
    found = [layer for _, layer in layers(model)]
    try:
        for layer in found:
            layer.enable_adapters(False)  # type: ignore[operator]
        yield
    finally:
        for layer in found:
            layer.enable_adapters(True)  # type: ignore[operator]


def _state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p for name, p in model.named_parameters() if "lora_" in name}


def save(model: torch.nn.Module, folder: Path) -> None:
    """Write the adapters, and nothing else, into an existing folder."""
    save_file({name: p.detach().contiguous() for name, p in _state(model).items()}, folder / ADAPTERS)


@torch.no_grad()
def load(model: torch.nn.Module, folder: Path) -> None:
    """Take adapters that `save` wrote for the same layers and rank; ValueError where they do not fit."""
    if not (folder / ADAPTERS).exists():
        raise ValueError(f"{folder} holds no LoRA adapters; it was saved from a run that trained all weights")
    kept, mine = load_file(folder / ADAPTERS), _state(model)
    wrong = sorted(
        name
        for name in kept.keys() | mine.keys()
        if name not in kept or name not in mine or kept[name].shape != mine[name].shape
    )
    if wrong:
        raise ValueError(f"{folder} holds adapters of other layers or another rank: {wrong[0]} does not match")
    for name, p in mine.items():
        p.copy_(kept[name])
