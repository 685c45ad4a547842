"""Rows that draw one token at a time in torch, to a pause, a stop token or their limit: what sessions over transformers share."""

from __future__ import annotations

import time

import numpy as np
import torch

from workbench.worlds.engines import NEVER, Request, Segments, Session, Until
from workbench.worlds.engines.draws import uniform
from workbench.worlds.engines.record import Record
from workbench.worlds.engines.sampling import choose


class SteppedSession(Session):
    """See `workbench.worlds.engines.Session`. place (B,): where in its stream each row is."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        assert request.position is not None
        self.place = request.position

    @torch.inference_mode()
    def advance(self, limit: np.ndarray, until: Until = NEVER) -> Segments:
        """See `Session.advance`."""
        began, limit = time.perf_counter(), self._limits(limit)
        self._settle()
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
            self._take(at, token)
            going[at] = ~(stopped | paused)
            if stopped.any():
                stay = np.delete(np.arange(len(here)), at[stopped])
                self._select(stay)
                here, going = here[stay], going[stay]
            if going.any():
                self._settle()
        record.decoded = self.decoded - decoded
        return record.segments(time.perf_counter() - began)

    def _draw(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(B,) next token of rows, its log-probability and the entropy it was drawn with."""
        logits = self._logits_after(rows)
        draw = torch.as_tensor(uniform(self.keys[rows], self.place[rows]), device=logits.device)
        token, logp, entropy = (c.cpu().numpy() for c in choose(logits, draw, self.temperature))
        for row, wanted in self._forced.items():  # at the first draw after they were asked for, when they all go
            k = np.searchsorted(rows, row)
            tempered = logits[k].float() / (self.temperature or 1.0)
            token[k], logp[k] = wanted, float(torch.log_softmax(tempered, -1)[wanted])
        self._forced.clear()
        return token, logp, entropy

    @torch.inference_mode()
    def top(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Session.top`."""
        self._settle()
        logits = self._logits_after(np.arange(len(self)))
        logp, ids = torch.log_softmax(logits.float(), -1).topk(min(m, logits.shape[1]), -1)
        return ids.to(torch.int32).cpu().numpy(), logp.cpu().numpy()

    def _settle(self) -> None:
        """Compute what rows have made and is not computed yet, before anything is read."""

    def _logits_after(self, rows: np.ndarray) -> torch.Tensor:
        """(B, vocabulary) after the last token of rows, in ascending order."""
        raise NotImplementedError

    def _take(self, rows: np.ndarray, token: np.ndarray) -> None:
        """Rows have made a token each."""
        raise NotImplementedError
