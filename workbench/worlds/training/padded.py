"""Training passes over padded rows, for any causal model: its own forward, every row with its own prefix.

Packing answers behind one prefix needs a mask that the model's layers obey; recurrent layers and position biases do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.worlds.engines.forward import own_statistics
from workbench.worlds.training.activation_checkpointing import recomputed
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
        start = np.array([len(p) for p in lines.prefixes])
        width = start[lines.owner[rows]] + np.maximum(lines.tokens.lengths[rows] - 1, 0)
        batches: list[list[np.ndarray]] = []
        for at in np.argsort(width, kind="stable"):
            if batches and width[at] * (len(batches[-1]) + 1) <= self.room(lines):
                batches[-1].append(rows[at : at + 1])
            else:
                batches.append([rows[at : at + 1]])
        return batches

    def statistics(
        self, lines: Lines, sequences: Sequence[np.ndarray]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `Policy.statistics`."""
        rows = np.concatenate(sequences)
        prefixes = [lines.prefixes[i] for i in lines.owner[rows].tolist()]
        answers = [lines.tokens.row(i).tolist() for i in rows]
        again = recomputed(self.model) if self.recompute and torch.is_grad_enabled() else nullcontext()
        with again, torch.autocast(self.model.device.type, self.precision, enabled=self.precision != torch.float32):
            return own_statistics(self.model, prefixes, answers, self.temperature)
