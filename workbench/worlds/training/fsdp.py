"""FSDP: weights, gradients and optimiser states sharded between processes, for models one GPU cannot train.

FSDP2 (`torch.distributed.fsdp.fully_shard`): each process holds a part of every tensor and gathers a layer while it
computes it. A pass does not go through the model's own forward (a prefix is computed once for its answers, logits exist
only where a token is predicted), so the whole pass is a module around the model, and that module is what is sharded:
its hooks gather embedding, norm and head for as long as the pass needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from workbench.worlds.engines.forward import Packed, answer_statistics
from workbench.worlds.training.activation_checkpointing import layers_of


class Pass(torch.nn.Module):
    """`answer_statistics` of a model, as a module."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, packed: Packed, temperature: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `forward.answer_statistics`."""
        return answer_statistics(self.model, packed, temperature)


def sharded(model: PreTrainedModel) -> Pass:
    """The pass over a model whose parameters are divided from now on, layer by layer; gradients are summed, not averaged.

    ValueError where torch.distributed was not set up."""
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError("sharding needs processes: start them with torchrun and set up torch.distributed first")
    whole = Pass(model)
    mesh = init_device_mesh(model.device.type, (dist.get_world_size(),))
    layers = layers_of(model)
    for module in (*layers, whole):
        # the root too gives its weights back after a pass: one that scores is not followed by a backward pass that would
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
    for module in (*layers, whole):
        assert isinstance(module, FSDPModule)
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # gloo cannot scale while it adds up
    return whole


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor, gathered from the processes where it is divided; every process has to ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def part_of(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """What a process holds of a whole tensor that is divided like another one."""
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)


def gathered(state: Any) -> Any:
    """A nest of dicts and lists with every divided tensor whole, on the processor."""
    if isinstance(state, Mapping):
        return {k: gathered(v) for k, v in state.items()}
    if isinstance(state, list):
        return [gathered(v) for v in state]
    return whole(state.detach()).cpu() if isinstance(state, torch.Tensor) else state


def divided(optimizer: Mapping[str, Any], parameters: Sequence[torch.nn.Parameter]) -> dict[str, Any]:
    """An optimiser's state_dict that `gathered` made whole, divided as its parameters are."""
    state = {
        i: {n: part_of(v, parameters[i]) if v.ndim else v for n, v in mine.items()}
        for i, mine in optimizer["state"].items()
    }
    return {**optimizer, "state": state}


@contextmanager
def exchanged(parameters: Sequence[torch.nn.Parameter], kept: Sequence[torch.Tensor]) -> Iterator[None]:
    """Inside, the parameters hold what stands in kept, in the same memory: gathering reads that memory alone."""
    mine = [p.to_local() if isinstance(p, DTensor) else p for p in (p.detach() for p in parameters)]
    now = [m.clone() for m in mine]
    try:
        for m, k in zip(mine, kept, strict=True):
            m.copy_(k.to_local() if isinstance(k, DTensor) else k)
        yield
    finally:
        for m, n in zip(mine, now, strict=True):
            m.copy_(n)
