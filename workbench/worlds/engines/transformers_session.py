"""KV cache of paused rows (transformers): rows pause at checkpoints with their keys and values, fork, rewind and go on.

All rows of a session share the columns of one cache. A row that pauses while others go on gets columns that its mask
hides, so that rows may stop at different places and still be computed together. The last token of a row is fed with the
next pass that others need, or when somebody asks for the distribution after it or forks the row, so that a fork costs a
copy and a row that does not go on costs nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.worlds.engines import Request
from workbench.worlds.engines.forward import Prefixed, body, fan_out, logits_of, prefill
from workbench.worlds.engines.stepped_session import SteppedSession


class TransformersSession(SteppedSession):
    """See `workbench.worlds.engines.Session`."""

    @torch.inference_mode()
    def __init__(self, model: PreTrainedModel, request: Request) -> None:
        request = request.distinct()
        super().__init__(request)
        self.model, self._owner = model, request.owner
        self.prefilled = sum(map(len, request.prefixes))
        start = prefill(model, request.prefixes)
        self._first = start.hidden  # (P, d): what a row rewound to its start goes on from
        at = torch.as_tensor(self._owner, device=model.device)
        self._hidden, self._logits = self._first[at], logits_of(model, start.hidden)[at]
        self._state: Prefixed = fan_out(start, at)
        self._owed = np.full(len(at), -1)  # (B,) token that each row has made and not fed, -1 for none

    def _logits_after(self, rows: np.ndarray) -> torch.Tensor:
        return self._logits if len(rows) == len(self) else self._logits[torch.as_tensor(rows, device=self.model.device)]

    def _take(self, rows: np.ndarray, token: np.ndarray) -> None:
        self._owed[rows] = token

    @torch.inference_mode()
    def keep(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """See `Session.keep`."""
        if len(np.unique(rows)) < len(rows):  # fed once for all that go on from there
            self._settle()
        super().keep(rows, keys)

    @torch.inference_mode()
    def rewind(self, row: int, tokens: int, last: int | None) -> None:
        """See `Session.rewind`. The last token left is fed again, for the distribution after it."""
        if tokens < 1:
            return
        mask = self._state.mask
        taken = tokens + (last is not None) - (self._owed[row] >= 0)
        if taken:
            seen = torch.nonzero(mask[row])[:, 0]
            mask[row, seen[len(seen) - taken :]] = 0
            self._state.position[row] -= taken
        self.place[row] -= tokens
        self._owed[row] = -1 if last is None else last
        if last is None:
            self._hidden[row] = self._first[int(self._owner[row])]
            self._logits[row] = logits_of(self.model, self._hidden[row][None])[0]

    @torch.inference_mode()
    def hidden(self) -> np.ndarray:
        """See `Session.hidden`."""
        self._settle()
        return self._hidden.float().cpu().numpy()

    def _select(self, rows: np.ndarray) -> None:
        at = torch.as_tensor(rows, device=self.model.device)
        self._state = fan_out(self._state, at)
        self._hidden, self._logits = self._hidden[at], self._logits[at]
        self.keys, self.place, self._owner = self.keys[rows], self.place[rows], self._owner[rows]
        self._owed = self._owed[rows]

    def _settle(self) -> None:
        """Feed what rows owe: one column more for all; those that owe nothing hide it and keep their distribution."""
        fed = self._owed >= 0
        if not fed.any():
            return
        device, state = self.model.device, self._state
        real = torch.as_tensor(fed, device=device)
        mask = seen = torch.cat([state.mask, real[:, None].to(state.mask.dtype)], 1)
        if not fed.all():  # a hidden row must still see something: it looks at itself in a mask that is thrown away
            seen = mask.clone()
            seen[:, -1] = 1
        token = torch.as_tensor(self._owed.clip(min=0), device=device)[:, None]
        hidden = body(self.model, token, seen, state.position[:, None], state.cache)[:, -1]
        logits = logits_of(self.model, hidden)
        if not fed.all():
            hidden = torch.where(real[:, None], hidden, self._hidden)
            logits = torch.where(real[:, None], logits, self._logits)
        self._hidden, self._logits = hidden, logits
        self._state = state._replace(mask=mask, position=state.position + real.to(torch.int64))
        self.decoded += int(fed.sum())
        self._owed[:] = -1
