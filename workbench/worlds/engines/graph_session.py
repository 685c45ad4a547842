"""KV cache of paused rows (CUDA graphs): in the static slots of the decoder rows pause, fork, rewind and go on where their keys and values lie.

A pause is a row that falls idle with its last token fed, so that its next distribution is known. A fork copies one slot
to another; going back is a smaller position, since what lies behind a row's position is never read. Rows that pause
early step aside, and the others go on with the graph of fewer rows.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from workbench.worlds.engines import NEVER, Request, Segments, Session, Until
from workbench.worlds.engines.board import CHUNK
from workbench.worlds.engines.graph_slots import Slots
from workbench.worlds.engines.llama import forward
from workbench.worlds.engines.places import bucket
from workbench.worlds.engines.record import Record

AHEAD = 256
"""Tokens for which a session makes room at first; more room costs a copy and new graphs."""


class GraphSession(Session):
    """See `workbench.worlds.engines.Session`. Row i of the caller stands at place i of the board between calls.

    slot (B,): where the keys and values of each row lie; free: slots of no row."""

    @torch.no_grad()
    def __init__(self, slots: Slots, request: Request) -> None:
        request = request.distinct()
        super().__init__(request)
        self.slots, slots.holder = slots, None
        rows, longest = len(self), max(map(len, request.prefixes))
        if slots.reserve(max(rows, 1), min(longest + AHEAD, len(slots.net.cos))) < rows:
            slots.grow(rows, longest)  # says why not
        board, *_ = slots.held
        board.rules(self.temperature, request.stop, feed_last=True)
        self.slot, self.free = np.arange(rows), list(range(rows, slots.n))
        if rows:
            limit = np.zeros(rows, np.int64)
            self.prefilled = slots.enter(
                0, request.prefixes, request.owner, self.slot, limit, self.keys, request.position
            )
        board.active.fill_(False)
        self._first = board.hidden[:rows].clone()  # what a row taken back to its start goes on from
        slots.holder = self

    @torch.no_grad()
    def advance(self, limit: np.ndarray, until: Until = NEVER) -> Segments:
        """See `Session.advance`."""
        self._mine()
        began, rows = time.perf_counter(), len(self)
        limit = self._limits(limit)
        record, decoded = Record(limit, unfinished=""), self.decoded
        if not rows:
            return record.segments(time.perf_counter() - began)
        self._room(limit)
        board, *_ = self.slots.held
        board.pauses(until)
        board.left[:rows] = torch.as_tensor(limit, device=board.left.device)
        board.active[:rows] = board.left[:rows] > 0
        self._take_forced(record)
        self._run(record, rows)
        board.active.fill_(False)
        if (stopped := record.finish == "stop").any():
            self._select(np.flatnonzero(~stopped))
        record.decoded = self.decoded - decoded
        return record.segments(time.perf_counter() - began)

    def _run(self, record: Record, rows: int) -> None:
        """Steps until no row draws, with the rows that still do at the first places; all are put back at the end."""
        (board, *_), slots = self.slots.held, self.slots
        order, here = np.arange(rows), rows  # caller's row at each place; places that are computed
        while True:
            active = board.active[:here].cpu().numpy()
            n = int(active.sum())
            if not n:
                break
            if bucket(n) < bucket(here):  # those that pause step aside
                whole = np.concatenate([np.flatnonzero(active), np.flatnonzero(~active), np.arange(here, rows)])
                board.order(whole)
                order, here = order[whole], n
            # at most: rows may pause before
            steps = int(min(CHUNK, board.left[:here][board.active[:here]].max()))
            drawn = slots.run(here, steps, self.temperature == 0)
            stopped = record.add(order[:here], *drawn, self.stops)
            self.decoded += int((drawn[0] >= 0).sum() - stopped.sum())  # the token that stops a row is not fed
        board.order(np.argsort(order))

    @torch.no_grad()
    def keep(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """See `Session.keep`. A fork copies what its row has written."""
        self._mine()
        if len(rows) > (held := self.slots.n):
            self.slots.grow(len(rows), self.slots.capacity)
            self.free += range(held, self.slots.n)
        super().keep(rows, keys)
        board, *_ = self.slots.held
        bits = np.ascontiguousarray(self.keys).view(np.int64)
        board.key[: len(rows)] = torch.as_tensor(bits, device=board.key.device)

    @torch.no_grad()
    def rewind(self, row: int, tokens: int, last: int | None) -> None:
        """See `Session.rewind`. One token, the last one left, is fed again for the distribution after it."""
        self._mine()
        if tokens < 1:
            return
        board, *_ = self.slots.held
        board.position[row] -= tokens + (last is not None)
        board.stream[row] -= tokens
        if last is None:
            board.hidden[row] = self._first[row]
        else:
            self._feed(np.array([row]), np.array([last]))

    @torch.no_grad()
    def top(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Session.top`."""
        self._mine()
        logits = self.slots.held[0].hidden[: len(self)] @ self.slots.net.head.T
        logp, ids = torch.log_softmax(logits.float(), -1).topk(min(m, logits.shape[1]), -1)
        return ids.to(torch.int32).cpu().numpy(), logp.cpu().numpy()

    @torch.no_grad()
    def hidden(self) -> np.ndarray:
        """See `Session.hidden`."""
        self._mine()
        return self.slots.held[0].hidden[: len(self)].float().cpu().numpy()

    def _mine(self) -> None:
        if self.slots.holder is not self:
            raise RuntimeError(
                "the slots of this session were given to another generation; open it again from its tokens"
            )

    def _room(self, limit: np.ndarray) -> None:
        position = self.slots.held[0].position[: len(self)].cpu().numpy()
        need = int((position + limit).max())
        if need > self.slots.capacity:
            self.slots.grow(len(self), need)

    def _take_forced(self, record: Record) -> None:
        """Rows with a forced token take it now, and pause or stop by it as by one they drew."""
        if not self._forced:
            return
        rows, token = np.array(list(self._forced)), np.array(list(self._forced.values()))
        self._forced = {}
        (board, *_), net = self.slots.held, self.slots.net
        at, ids = (torch.as_tensor(c, device=net.device) for c in (rows, token))
        logp = torch.log_softmax((board.hidden[at] @ net.head.T).float() * board.inverse, -1)
        entropy = -(logp.exp() * logp.clamp(min=-1e4)).sum(-1)
        chosen = logp.gather(1, ids[:, None])[:, 0]
        taken, logps, entropies = (c.cpu().numpy()[:, None] for c in (ids, chosen, entropy))
        stopped = record.add(rows, taken, logps, entropies, self.stops)
        board.left[at] -= 1
        board.stream[at] += 1
        board.active[at] = (
            ~board.stop[ids] & ~board.marker[ids] & (board.left[at] > 0) & (entropy <= board.threshold)
        )  # fmt: skip
        self._feed(rows[~stopped], token[~stopped])

    def _feed(self, rows: np.ndarray, token: np.ndarray) -> None:
        """Feed one token to each of some rows; outside the graphs, since it is rare."""
        if not len(rows):
            return
        slots, (board, keys, values) = self.slots, self.slots.held
        at, ids = (torch.as_tensor(c, device=slots.net.device) for c in (rows, token))
        hidden = board.hidden[at]
        forward(slots.net, slots.ops, ids, keys, values, board.slot[at], board.position[at], hidden)
        board.hidden[at] = hidden
        board.position[at] += 1
        self.decoded += len(rows)

    def _select(self, rows: np.ndarray) -> None:
        """Rows as named; a row named again gets a slot of its own, with a copy of what the first one has written."""
        board, *caches = self.slots.held
        _, first = np.unique(rows, return_index=True)
        copies = np.setdiff1d(np.arange(len(rows)), first)
        slot = self.slot[rows]
        self.free += np.setdiff1d(self.slot, slot).tolist()
        if len(copies):
            source = slot[copies]
            slot[copies] = [self.free.pop() for _ in copies]
            width = int(board.position[torch.as_tensor(rows[copies], device=board.slot.device)].max())
            into, of = (torch.as_tensor(c, device=board.slot.device) for c in (slot[copies], source))
            for cache in caches:
                for layer in cache:  # layer by layer: the copy of all layers at once would need their memory twice
                    layer[into, :, :width] = layer[of, :, :width]
        board.order(rows)
        board.slot[: len(rows)] = torch.as_tensor(slot, device=board.slot.device)
        self.slot, self.keys = slot, self.keys[rows]
        self._first = self._first[torch.as_tensor(rows, device=board.slot.device)]
