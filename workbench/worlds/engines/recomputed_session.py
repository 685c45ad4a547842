"""Generation without a KV cache, for any causal model: every token is read from the model's own forward over the whole row.

Recurrent layers, convolutions and position biases have no keys and values that could be fanned out to a group, moved or
taken back. Here a row is its tokens and nothing else: slow (quadratic in the answer), and right for every family.
"""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.worlds.engines import Request
from workbench.worlds.engines.forward import next_logits, rectangle
from workbench.worlds.engines.stepped_session import SteppedSession


class RecomputedSession(SteppedSession):
    """See `workbench.worlds.engines.Session`. rows: all tokens of each row.

    prefilled and decoded count every prefix token once and every token fed once, not what is computed again."""

    def __init__(self, model: PreTrainedModel, request: Request) -> None:
        request = request.distinct()
        super().__init__(request)
        self.model = model
        self.rows = [list(request.prefixes[i]) for i in request.owner]
        self.prefilled = sum(map(len, request.prefixes))
        self._fed = np.array([len(row) for row in self.rows], np.int64)  # (B,) tokens that count as computed

    def _logits_after(self, rows: np.ndarray) -> torch.Tensor:
        length = np.array([len(self.rows[i]) for i in rows], np.int64)
        self.decoded += int((length - self._fed[rows]).sum())
        self._fed[rows] = length
        return next_logits(self.model, [self.rows[i] for i in rows])

    def _take(self, rows: np.ndarray, token: np.ndarray) -> None:
        for row, made in zip(rows.tolist(), token.tolist(), strict=True):
            self.rows[row].append(made)

    def rewind(self, row: int, tokens: int, last: int | None) -> None:
        """See `Session.rewind`."""
        if tokens > 0:
            del self.rows[row][-tokens:]
            self.place[row] -= tokens
            self._fed[row] = len(self.rows[row]) - (last is not None)  # the last one counts as fed again

    @torch.inference_mode()
    def hidden(self) -> np.ndarray:
        """See `Session.hidden`."""
        ids, mask = rectangle(self.rows, self.model.device)
        states = self.model.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        last = mask.sum(1) - 1
        return states[torch.arange(len(last)), last].float().cpu().numpy()

    def _select(self, rows: np.ndarray) -> None:
        self.rows = [list(self.rows[i]) for i in rows]
        self.keys, self.place, self._fed = self.keys[rows], self.place[rows], self._fed[rows]
