"""Atomic checkpoint folders: the files of a world appear whole, or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from workbench.models.pretrained import quiet
from workbench.parallel import processes
from workbench.worlds.training import fsdp, lora

OPTIMIZER = "optimizer.pt"


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """An empty folder to write to, which takes the place of folder where the block ends well, and goes where it does not.

    Of several `processes` all have to enter and to leave it; all write to the same one."""
    draft = processes.on_first(partial(_draft_of, folder))
    try:
        yield draft
        processes.on_first(partial(_publish, draft, folder))
    finally:
        if processes.first():
            shutil.rmtree(draft, ignore_errors=True)


def _draft_of(folder: Path) -> Path:
    """An empty folder beside the one that is to appear."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))


def _publish(draft: Path, folder: Path) -> None:
    if folder.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
        folder.rename(old / folder.name)
        draft.rename(folder)
        shutil.rmtree(old)
    else:
        draft.rename(folder)


def save_training(
    folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer, version: int, *, sharded: bool
) -> None:
    """Write weights (transformers format), optimiser and version into an existing folder.

    With LoRA the weights are merged, so that any reader can use the folder; the adapters stand beside them. Of several
    processes the first one writes, and weights that are sharded are gathered."""
    adapted = lora.present(model)
    state, kept = dict(lora.plain_weights(model)) if adapted else None, optimizer.state_dict()
    if sharded:
        tied = set(model.all_tied_weights_keys)
        state = fsdp.gathered({n: p for n, p in model.state_dict().items() if n not in tied})
        kept = fsdp.gathered(kept)

    def write() -> None:
        if adapted:
            lora.save(model, folder)
        with quiet():
            model.save_pretrained(folder, state_dict=state)
        torch.save({"optimizer": kept, "version": version}, folder / OPTIMIZER)

    processes.on_first(write)


def load_training(
    folder: Path,
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[torch.nn.Parameter],
    *,
    sharded: bool,
) -> int:
    """Take weights and optimiser that `save_training` wrote for the same architecture; the version.

    With LoRA the adapters are taken; the weights under them must be those that they were trained on."""
    if lora.present(model):
        lora.load(model, folder)
    else:
        state = load_file(folder / "model.safetensors", device=str(model.device))
        if sharded:
            held = model.state_dict()
            state = {name: fsdp.part_of(t, held[name]) if name in held else t for name, t in state.items()}
        missing, unexpected = model.load_state_dict(state, strict=False)
        tied = set(model.all_tied_weights_keys)
        if set(missing) - tied or unexpected:
            names = sorted(set(missing) - tied)[:3] + list(unexpected)[:3]
            raise ValueError(f"{folder} was saved from another architecture: {names} do not match")
    kept = torch.load(folder / OPTIMIZER, map_location=model.device, weights_only=True)
    optimizer.load_state_dict(fsdp.divided(kept["optimizer"], parameters) if sharded else kept["optimizer"])
    return int(kept["version"])
