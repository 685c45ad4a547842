"""Segments of a transformers model: rows pause at checkpoints with their keys and values, fork, rewind and go on.

All rows of a session share the columns of one cache. A row that pauses while others go on gets columns that its mask
hides, so that rows may stop at different places and still be computed together. A paused row's last token has been fed:
its next distribution is known, for whoever wants to look at it, and a fork costs a copy.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.types import Ragged
from workbench.worlds.engines import NEVER, Segments, Until
from workbench.worlds.engines.draws import uniform
from workbench.worlds.engines.forward import Prefixed, body, fan_out, logits_of, prefill
from workbench.worlds.engines.sampling import choose


class TransformersSession:
    """See `workbench.worlds.engines.Session`."""

    @torch.inference_mode()
    def __init__(
        self,
        model: PreTrainedModel,
        prefixes: Sequence[Sequence[int]],
        owner: np.ndarray,
        keys: np.ndarray,
        position: np.ndarray | None = None,
        temperature: float = 1.0,
        stop: Collection[int] = (),
    ) -> None:
        self.model, self.temperature = model, temperature
        if len(owner):  # a prefix that no row continues is not computed
            mine, owner = np.unique(owner, return_inverse=True)
            prefixes = [prefixes[i] for i in mine]
        place: dict[tuple[int, ...], int] = {}
        of_prefix = np.array([place.setdefault(tuple(p), len(place)) for p in prefixes], np.int64)
        distinct = list(place)
        if not distinct or not all(distinct):
            raise ValueError("a session needs prefixes, each with one token at least")
        owner = of_prefix[np.asarray(owner, np.int64)]
        self.keys = np.asarray(keys, np.uint64)
        self.place = np.zeros(len(owner), np.int64) if position is None else np.asarray(position, np.int64).copy()
        self.stops = np.fromiter(sorted(stop), np.int64)
        self.prefilled, self.decoded = sum(map(len, distinct)), 0
        start = prefill(model, distinct)
        self._first = start.hidden  # (P, d): what a row rewound to its start goes on from
        first = logits_of(model, start.hidden)  # (P, V)
        self._owner = owner
        at = torch.as_tensor(owner, device=model.device)
        self._hidden, self._logits = self._first[at], first[at]
        self._state: Prefixed = fan_out(start, at)
        self._forced: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.keys)

    @torch.inference_mode()
    def advance(self, limit: np.ndarray, until: Until = NEVER) -> Segments:
        """See `Session.advance`."""
        began, rows = time.perf_counter(), len(self)
        limit = np.asarray(limit, np.int64)
        if rows and limit.min() < 1:
            raise ValueError("a row that goes on makes one token at least; leave out the others with keep")
        markers = np.fromiter(sorted(until.markers), np.int64)
        made: list[list[tuple[int, float, float]]] = [[] for _ in range(rows)]
        finish = np.full(rows, "", dtype=object)
        prefilled, decoded = self.prefilled, self.decoded
        here = np.arange(rows)  # caller's row of each row that is still in the cache
        going = np.ones(rows, bool)
        while going.any():
            at = np.flatnonzero(going)
            device = self.model.device
            draw = torch.as_tensor(uniform(self.keys[at], self.place[at]), device=device)
            pick = torch.as_tensor(at, device=device)
            token, logp, entropy = (c.cpu().numpy() for c in choose(self._logits[pick], draw, self.temperature))
            token = token.copy()
            for i, row in enumerate(at):
                if row in self._forced:
                    token[i] = self._forced.pop(row)
                    logp[i] = self._logp_of(row, int(token[i]))
                made[here[row]].append((int(token[i]), float(logp[i]), float(entropy[i])))
            self.place[at] += 1
            stopped = np.isin(token, self.stops)
            finish[here[at[stopped]]] = "stop"
            paused = np.array([len(made[here[r]]) >= limit[here[r]] for r in at], bool) | np.isin(token, markers)
            if until.entropy is not None:
                paused |= entropy > until.entropy
            fed = np.zeros(len(here), bool)
            fed[at[~stopped]] = True
            ids = np.zeros(len(here), np.int64)
            ids[at] = token
            going[at] = ~(stopped | paused)
            gone = np.zeros(len(here), bool)
            gone[at[stopped]] = True
            if gone.any():
                self._select(np.flatnonzero(~gone))
                here, going, fed, ids = here[~gone], going[~gone], fed[~gone], ids[~gone]
            if fed.any():
                self._feed(ids, fed)
        columns = [
            Ragged.of([[t[k] for t in row] for row in made], d)
            for k, d in enumerate((np.int32, np.float32, np.float32))
        ]
        return Segments(
            *columns, finish, self.prefilled - prefilled, self.decoded - decoded, time.perf_counter() - began
        )

    @torch.inference_mode()
    def keep(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """See `Session.keep`."""
        rows = np.asarray(rows, np.int64)
        if self._forced:
            raise ValueError("forced tokens wait for their rows; advance before keep")
        self._select(rows)
        self.keys = np.asarray(keys, np.uint64)

    @torch.inference_mode()
    def rewind(self, row: int, tokens: int, last: int | None) -> None:
        """See `Session.rewind`. One token, the last one left, is fed again for the distribution after it."""
        if tokens < 1:
            return
        mask = self._state.mask
        seen = torch.nonzero(mask[row])[:, 0]
        taken = tokens + (last is not None)
        mask[row, seen[len(seen) - taken :]] = 0
        self._state.position[row] -= taken
        self.place[row] -= tokens
        if last is None:
            self._hidden[row] = self._first[int(self._owner[row])]
            self._logits[row] = logits_of(self.model, self._hidden[row][None])[0]
            return
        ids, fed = np.zeros(len(self), np.int64), np.zeros(len(self), bool)
        ids[row], fed[row] = last, True
        self._feed(ids, fed)

    def force(self, row: int, token: int) -> None:
        """See `Session.force`."""
        self._forced[row] = int(token)

    @torch.inference_mode()
    def top(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Session.top`."""
        logp, ids = torch.log_softmax(self._logits.float(), -1).topk(min(m, self._logits.shape[1]), -1)
        return ids.to(torch.int32).cpu().numpy(), logp.cpu().numpy()

    @torch.inference_mode()
    def hidden(self) -> np.ndarray:
        """See `Session.hidden`."""
        return self._hidden.float().cpu().numpy()

    def _logp_of(self, row: int, token: int) -> float:
        return float(torch.log_softmax(self._logits[row].float() / (self.temperature or 1.0), -1)[token])

    def _select(self, rows: np.ndarray) -> None:
        at = torch.as_tensor(rows, device=self.model.device)
        self._state = fan_out(self._state, at)
        self._hidden, self._logits = self._hidden[at], self._logits[at]
        self.keys, self.place, self._owner = self.keys[rows], self.place[rows], self._owner[rows]
        self._forced = {i: self._forced[r] for i, r in enumerate(rows.tolist()) if r in self._forced}

    def _feed(self, ids: np.ndarray, fed: np.ndarray) -> None:
        """One column more for all rows; those not fed hide it and keep their distribution."""
        device = self.model.device
        real = torch.as_tensor(fed, device=device)
        mask = torch.cat([self._state.mask, real[:, None].to(self._state.mask.dtype)], 1)
        # a hidden row must still see something: it looks at itself in a mask that is thrown away
        seen = mask.clone()
        seen[:, -1] = 1
        token = torch.as_tensor(ids, device=device)[:, None]
        hidden = body(self.model, token, seen, self._state.position[:, None], self._state.cache)
        self._state = self._state._replace(mask=mask, position=self._state.position + real.to(torch.int64))
        self._hidden = torch.where(real[:, None], hidden[:, -1], self._hidden)
        self._logits = torch.where(real[:, None], logits_of(self.model, hidden[:, -1]), self._logits)
        self.decoded += int(fed.sum())
