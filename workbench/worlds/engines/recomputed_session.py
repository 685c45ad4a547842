"""Generation without a KV cache, for any causal model: every token is read from the model's own forward over the whole row.

Recurrent layers, convolutions and position biases have no keys and values that could be fanned out to a group, moved or
taken back. Here a row is its tokens and nothing else: slow (quadratic in the answer), and right for every family.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.worlds.engines import NEVER, Request, Segments, Session, Until
from workbench.worlds.engines.draws import uniform
from workbench.worlds.engines.forward import next_logits, rectangle
from workbench.worlds.engines.record import Record
from workbench.worlds.engines.sampling import choose


class RecomputedSession(Session):
    """See `workbench.worlds.engines.Session`. rows: all tokens of each row; place (B,): where in its stream each is.

    prefilled and decoded count every prefix token once and every token fed once, not what is computed again."""

    def __init__(self, model: PreTrainedModel, request: Request) -> None:
        request = request.distinct()
        super().__init__(request)
        assert request.position is not None
        self.model, self.place = model, request.position
        self.rows = [list(request.prefixes[i]) for i in request.owner]
        self.prefilled = sum(map(len, request.prefixes))
        self._fed = np.array([len(row) for row in self.rows], np.int64)  # (B,) tokens that count as computed

    @torch.inference_mode()
    def advance(self, limit: np.ndarray, until: Until = NEVER) -> Segments:
        """See `Session.advance`."""
        began, limit = time.perf_counter(), self._limits(limit)
        markers = np.fromiter(sorted(until.markers), np.int64)
        record, decoded = Record(limit, unfinished=""), self.decoded
        here, going, t = np.arange(len(self)), limit > 0, 0  # caller's row of each row that can go on
        while going.any():
            at = np.flatnonzero(going)
            token, logp, entropy = self._draw(at)
            stopped = record.add(here[at], token[:, None], logp[:, None], entropy[:, None], self.stops)
            t += 1
            paused = (limit[here[at]] <= t) | np.isin(token, markers)
            if until.entropy is not None:
                paused |= entropy > until.entropy
            self.place[at] += 1
            for row, made in zip(at.tolist(), token.tolist(), strict=True):
                self.rows[row].append(made)
            going[at] = ~(stopped | paused)
            if stopped.any():
                stay = np.delete(np.arange(len(here)), at[stopped])
                self._select(stay)
                self.keys, here, going = self.keys[stay], here[stay], going[stay]
        record.decoded = self.decoded - decoded
        return record.segments(time.perf_counter() - began)

    def _draw(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(B,) next token of rows, its log-probability and the entropy it was drawn with."""
        logits = self._logits(rows)
        draw = torch.as_tensor(uniform(self.keys[rows], self.place[rows]), device=logits.device)
        token, logp, entropy = (c.cpu().numpy() for c in choose(logits, draw, self.temperature))
        for row, wanted in self._forced.items():  # at the first draw after they were asked for, when they all go
            k = np.searchsorted(rows, row)
            token[k] = wanted
            logp[k] = float(torch.log_softmax(logits[k].float() / (self.temperature or 1.0), -1)[wanted])
        self._forced.clear()
        return token, logp, entropy

    def _logits(self, rows: np.ndarray) -> torch.Tensor:
        """(B, vocabulary) after the last token of rows."""
        length = np.array([len(self.rows[i]) for i in rows], np.int64)
        self.decoded += int((length - self._fed[rows]).sum())
        self._fed[rows] = length
        return next_logits(self.model, [self.rows[i] for i in rows])

    def rewind(self, row: int, tokens: int, last: int | None) -> None:
        """See `Session.rewind`."""
        if tokens > 0:
            del self.rows[row][-tokens:]
            self.place[row] -= tokens
            self._fed[row] = len(self.rows[row]) - (last is not None)  # the last one counts as fed again

    @torch.inference_mode()
    def top(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Session.top`."""
        logp = torch.log_softmax(self._logits(np.arange(len(self))).float(), -1)
        logp, ids = logp.topk(min(m, logp.shape[1]), -1)
        return ids.to(torch.int32).cpu().numpy(), logp.cpu().numpy()

    @torch.inference_mode()
    def hidden(self) -> np.ndarray:
        """See `Session.hidden`."""
        ids, mask = rectangle(self.rows, self.model.device)
        states = self.model.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        last = mask.sum(1) - 1
        return states[torch.arange(len(last)), last].float().cpu().numpy()

    def _select(self, rows: np.ndarray) -> None:
        self.rows = [list(self.rows[i]) for i in rows]
        self.place, self._fed = self.place[rows], self._fed[rows]
