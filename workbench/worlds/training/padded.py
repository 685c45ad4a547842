"""Training passes over padded rows, for any causal model: its own forward, every row with its own prefix.

Packing answers behind one prefix needs a mask that the model's layers obey; recurrent layers and position biases do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.worlds.engines.forward import own_statistics
from workbench.worlds.training.microbatch import pack
from workbench.worlds.training.policy import Lines, Policy


class PaddedPolicy(Policy):
    """A policy whose passes are the model's own forward over rows padded on the right. Settings as `Policy`'s."""

    def __init__(self, model: PreTrainedModel, **settings) -> None:
        if settings.get("shard"):
            raise ValueError(
                f"shard divides models whose answers can be packed, and {type(model).__name__} is not one; train it whole"
            )
        super().__init__(model, **settings)

    def cut(self, lines: Lines, rows: np.ndarray) -> list[list[np.ndarray]]:
        """Micro-batches of at most budget padded tokens, rows of like width together; every row is a sequence."""
        return pack(lines, rows, self.room(lines), widest=0)

    def _computed(
        self, lines: Lines, sequences: Sequence[np.ndarray]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows = np.concatenate(sequences)
        prefixes = [lines.prefixes[i] for i in lines.owner[rows].tolist()]
        answers = [lines.tokens.row(i).tolist() for i in rows]
        return own_statistics(self.model, prefixes, answers, self.temperature)
