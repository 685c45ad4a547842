"""Segments in the slots of the graph decoder: rows pause, fork, rewind and go on where their keys and values lie.

A pause is a row that falls idle with its last token fed, so that its next distribution is known. A fork copies one slot
to another; going back is a smaller position, since what lies behind a row's position is never read. Rows that pause
early step aside, and the others go on with the graph of fewer rows.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from workbench.types import Ragged
from workbench.worlds.engines import NEVER, Segments, Until
from workbench.worlds.engines.board import CHUNK
from workbench.worlds.engines.llama import forward
from workbench.worlds.engines.paths import check
from workbench.worlds.engines.places import bucket

if TYPE_CHECKING:
    from workbench.worlds.engines.graph import GraphEngine

AHEAD = 256
"""Tokens for which a session makes room at first; more room costs a copy and new graphs."""


class _Made:
    """What B rows draw in one call: tokens, logp and entropy row by row, and how each ended."""

    def __init__(self, rows: int) -> None:
        self.columns: list[list[list]] = [[[] for _ in range(rows)] for _ in range(3)]
        self.stopped = np.zeros(rows, bool)

    def add(self, row: int, values: Sequence[Sequence]) -> None:
        for column, more in zip(self.columns, values, strict=True):
            column[row].extend(more)

    def segments(self, decoded: int, seconds: float) -> Segments:
        packed = [Ragged.of(c, d) for c, d in zip(self.columns, (np.int32, np.float32, np.float32), strict=True)]
        return Segments(*packed, np.where(self.stopped, "stop", "").astype(object), 0, decoded, seconds)


class GraphSession:
    """See `workbench.worlds.engines.Session`. Row i of the caller stands at place i of the board between calls."""

    @torch.no_grad()
    def __init__(
        self,
        engine: GraphEngine,
        prefixes: Sequence[Sequence[int]],
        owner: np.ndarray,
        keys: np.ndarray,
        position: np.ndarray | None = None,
        temperature: float = 1.0,
        stop: Collection[int] = (),
    ) -> None:
        self.engine, self.temperature = engine, temperature
        place: dict[tuple[int, ...], int] = {}
        of_prefix = np.array([place.setdefault(tuple(p), len(place)) for p in prefixes], np.int64)
        distinct = list(place)
        if not distinct or not all(distinct):
            raise ValueError("a session needs prefixes, each with one token at least")
        owner = of_prefix[np.asarray(owner, np.int64)]
        self.keys = np.asarray(keys, np.uint64)
        self.stops = np.fromiter(sorted(stop), np.int64)
        self.decoded = self.prefilled = 0
        rows, longest = len(owner), max(map(len, distinct))
        if engine.reserve(max(rows, 1), min(longest + AHEAD, len(engine.net.cos))) < rows:
            engine.grow(rows, longest)  # says why not
        engine.board.rules(temperature, stop, feed_last=True)
        self.slot, self.free = np.arange(rows), list(range(rows, engine.slots))
        if rows:
            place_ = np.zeros(rows, np.int64) if position is None else np.asarray(position, np.int64)
            self.prefilled = engine.enter(0, distinct, owner, self.slot, np.zeros(rows, np.int64), self.keys, place_)
        engine.board.active.fill_(False)
        self._first = engine.board.hidden[:rows].clone()  # what a row taken back to its start goes on from
        self._forced: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.keys)

    @torch.no_grad()
    def advance(self, limit: np.ndarray, until: Until = NEVER) -> Segments:
        """See `Session.advance`."""
        self._mine()
        began, rows = time.perf_counter(), len(self)
        limit = np.asarray(limit, np.int64)
        check(limit, self._forced)
        made, decoded = _Made(rows), self.decoded
        if not rows:
            return made.segments(0, time.perf_counter() - began)
        self._room(limit)
        board = self.engine.board
        board.pauses(until)
        board.left[:rows] = torch.as_tensor(limit, device=board.left.device)
        board.active[:rows] = board.left[:rows] > 0
        self._force(made)
        self._run(made, limit, rows)
        board.active.fill_(False)
        if made.stopped.any():
            self._select(np.flatnonzero(~made.stopped))
        return made.segments(self.decoded - decoded, time.perf_counter() - began)

    def _run(self, made: _Made, limit: np.ndarray, rows: int) -> None:
        """Steps until no row draws, with the rows that still do at the first places; all are put back at the end."""
        board, engine = self.engine.board, self.engine
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
            token, logp, entropy = engine.run(here, steps, self.temperature == 0)
            drawn = (token >= 0).sum(1)
            for place in np.flatnonzero(drawn):
                k, row = drawn[place], order[place]
                made.add(row, [c[place, :k].tolist() for c in (token, logp, entropy)])
                made.stopped[row] = token[place, k - 1] in self.stops
            self.decoded += int(drawn.sum()) - int(made.stopped[order[:here]][drawn > 0].sum())
        board.order(np.argsort(order))

    @torch.no_grad()
    def keep(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """See `Session.keep`. A fork copies what its row has written."""
        self._mine()
        if self._forced:
            raise ValueError("forced tokens wait for their rows; advance before keep")
        rows = np.asarray(rows, np.int64)
        if len(rows) > self.engine.slots:
            held = self.engine.slots
            self.engine.grow(len(rows), self.engine.capacity)
            self.free += range(held, self.engine.slots)
        self._select(rows)
        self.keys = np.asarray(keys, np.uint64)
        board = self.engine.board
        bits = np.ascontiguousarray(self.keys).view(np.int64)
        board.key[: len(rows)] = torch.as_tensor(bits, device=board.key.device)

    @torch.no_grad()
    def rewind(self, row: int, tokens: int, last: int | None) -> None:
        """See `Session.rewind`. One token, the last one left, is fed again for the distribution after it."""
        self._mine()
        if tokens < 1:
            return
        board = self.engine.board
        board.position[row] -= tokens + (last is not None)
        board.stream[row] -= tokens
        if last is None:
            board.hidden[row] = self._first[row]
        else:
            self._feed(np.array([row]), np.array([last]))

    def force(self, row: int, token: int) -> None:
        """See `Session.force`."""
        self._forced[row] = int(token)

    @torch.no_grad()
    def top(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Session.top`."""
        self._mine()
        logits = self.engine.board.hidden[: len(self)] @ self.engine.net.head.T
        logp, ids = torch.log_softmax(logits.float(), -1).topk(min(m, logits.shape[1]), -1)
        return ids.to(torch.int32).cpu().numpy(), logp.cpu().numpy()

    @torch.no_grad()
    def hidden(self) -> np.ndarray:
        """See `Session.hidden`."""
        self._mine()
        return self.engine.board.hidden[: len(self)].float().cpu().numpy()

    def _mine(self) -> None:
        if self.engine.session is not self:
            raise RuntimeError(
                "the slots of this session were given to another generation; open it again from its tokens"
            )

    def _room(self, limit: np.ndarray) -> None:
        position = self.engine.board.position[: len(self)].cpu().numpy()
        need = int((position + limit).max())
        if need > self.engine.capacity:
            self.engine.grow(len(self), need)

    def _force(self, made: _Made) -> None:
        """Rows with a forced token take it now, and pause or stop by it as by one they drew."""
        if not self._forced:
            return
        rows, token = np.array(list(self._forced)), np.array(list(self._forced.values()))
        self._forced = {}
        board, net = self.engine.board, self.engine.net
        at, ids = (torch.as_tensor(c, device=net.device) for c in (rows, token))
        logp = torch.log_softmax((board.hidden[at] @ net.head.T).float() * board.inverse, -1)
        entropy = -(logp.exp() * logp.clamp(min=-1e4)).sum(-1)
        chosen = logp.gather(1, ids[:, None])[:, 0]
        for k, row in enumerate(rows.tolist()):
            made.add(row, [[c[k].item()] for c in (ids, chosen, entropy)])
        made.stopped[rows] = np.isin(token, self.stops)
        board.left[at] -= 1
        board.stream[at] += 1
        board.active[at] = (
            ~board.stop[ids] & ~board.marker[ids] & (board.left[at] > 0) & (entropy <= board.threshold)
        )  # fmt: skip
        go = ~made.stopped[rows]
        self._feed(rows[go], token[go])

    def _feed(self, rows: np.ndarray, token: np.ndarray) -> None:
        """Feed one token to each of some rows; outside the graphs, since it is rare."""
        if not len(rows):
            return
        engine, board = self.engine, self.engine.board
        at, ids = (torch.as_tensor(c, device=engine.net.device) for c in (rows, token))
        hidden = board.hidden[at]
        forward(engine.net, engine.ops, ids, engine.keys, engine.values, board.slot[at], board.position[at], hidden)
        board.hidden[at] = hidden
        board.position[at] += 1
        self.decoded += len(rows)

    def _select(self, rows: np.ndarray) -> None:
        """Rows as named; a row named again gets a slot of its own, with a copy of what the first one has written."""
        engine, board = self.engine, self.engine.board
        _, first = np.unique(rows, return_index=True)
        copies = np.setdiff1d(np.arange(len(rows)), first)
        slot = self.slot[rows]
        self.free += np.setdiff1d(self.slot, slot).tolist()
        if len(copies):
            source = slot[copies]
            slot[copies] = [self.free.pop() for _ in copies]
            width = int(board.position[torch.as_tensor(rows[copies], device=board.slot.device)].max())
            into, of = (torch.as_tensor(c, device=board.slot.device) for c in (slot[copies], source))
            for cache in (engine.keys, engine.values):
                for layer in cache:  # layer by layer: the copy of all layers at once would need their memory twice
                    layer[into, :, :width] = layer[of, :, :width]
        board.order(rows)
        board.slot[: len(rows)] = torch.as_tensor(slot, device=board.slot.device)
        self.slot, self.keys = slot, self.keys[rows]
        self._first = self._first[torch.as_tensor(rows, device=board.slot.device)]
