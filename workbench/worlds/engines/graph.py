"""The segment decoder: rows in static slots, sampled and measured on the device, one CUDA graph per number of rows.

A small model's step is bound by launches, not by the chip, so a step is captured once per batch size and replayed.
What changes from step to step lives at fixed addresses (`Board`); rows name the slot that holds their keys and values,
so dropping finished rows moves a few numbers and never the cache. The host looks at the results every `CHUNK` steps,
drops rows that ended, lets waiting ones in, and goes on with the graph of the next smaller number of rows. Attention
reads of each slot what its row has written (`kernels.attend`), so no graph per length is needed, and with the element-wise
work in the same kernels torch.compile had nothing left to fuse. Without a GPU the same step runs in plain torch.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.worlds.engines import Ended, Segments
from workbench.worlds.engines.board import CHUNK, Board, Chunks, uniform_on
from workbench.worlds.engines.llama import Llama, forward, prefill, reference
from workbench.worlds.engines.places import BUCKETS, admitted, bucket, cuts
from workbench.worlds.training import lora

if TYPE_CHECKING:
    from workbench.worlds.engines.graph_session import GraphSession

ROWS = {"cuda": 2048, "cpu": 256}
"""Rows that are generated together at most; more wait for a place."""

SHARE = 0.6
"""Of the GPU's free memory, what the slots may take."""


class GraphEngine:
    """Samples from a Llama with static slots and CUDA graphs; on a CPU the same in plain torch, for tests.

    model: the policy's, its weights shared where dtype allows and else copied at `sync`, LoRA adapters merged in. dtype:
    of weights and cache; None is bfloat16 on a GPU and the model's elsewhere. max_rows: rows decoded together, None is
    `ROWS`, or what fits in memory. graphs: capture the steps; None where there is a GPU. own: share no weights, whatever
    the dtype.
    Raises ValueError for models whose arithmetic is not `llama`'s.
    """

    tells = True

    def __init__(
        self,
        model: PreTrainedModel,
        dtype: torch.dtype | None = None,
        *,
        max_rows: int | None = None,
        graphs: bool | None = None,
        own: bool = False,
    ) -> None:
        device = model.device.type
        dtype = dtype or (torch.bfloat16 if device == "cuda" else model.dtype)
        copied = own or dtype != model.dtype or lora.present(model)  # with adapters: all that is trained is copied
        self.model, self.copy_of = model, model if copied else None
        self.net = Llama(model, dtype, max(model.config.max_position_embeddings, 2048), own)
        self.max_rows = max_rows or ROWS.get(device, ROWS["cpu"])
        self.graphs = device == "cuda" if graphs is None else graphs
        if device == "cuda":
            from workbench.worlds.engines import kernels

            if self.net.depth not in kernels.DEPTHS:
                raise ValueError(f"the kernels are made for heads of {kernels.DEPTHS} numbers, not {self.net.depth}")
            self.ops = kernels
        else:
            self.ops = reference
        self.slots = self.capacity = 0
        self.session: GraphSession | None = None
        self._captured: dict[tuple[int, bool], torch.cuda.CUDAGraph] = {}

    def apart(self) -> GraphEngine:
        """An engine whose weights change at `sync` alone: this one, or another where it shares the policy's."""
        if self.copy_of is not None:
            return self
        return GraphEngine(self.model, self.net.dtype, max_rows=self.max_rows, graphs=self.graphs, own=True)

    def sync(self) -> None:
        """Take over the weights of the policy; the graphs keep their addresses."""
        self.net.sync()

    def close(self) -> None:
        """Give back the slots and the captured steps; whoever generates again gets new ones."""
        self.session = self.board = self.keys = self.values = None
        self.slots = self.capacity = 0
        self._captured.clear()
        if self.net.device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of one token in all layers."""
        net = self.net
        return 2 * len(net.layers) * net.groups * net.depth * torch.empty((), dtype=net.dtype).element_size()

    @torch.no_grad()
    def reserve(self, rows: int, tokens: int) -> int:
        """Slots for rows of at most `tokens` tokens, or for as many as fit in memory; returns how many there are.

        Existing slots that are large enough are kept, and with them the captured graphs.
        """
        if tokens > len(self.net.cos):
            raise ValueError(f"a prefix and its answer may have {len(self.net.cos)} tokens together, not {tokens}")
        rows, capacity = bucket(min(rows, self.max_rows)), -(-tokens // 64) * 64
        if rows <= self.slots and capacity <= self.capacity:
            return self.slots
        rows, capacity = max(rows, self.slots), max(capacity, self.capacity)
        self.board = self.keys = self.values = None
        self._captured.clear()
        rows = self._fitting(rows, capacity)
        if not rows:
            raise ValueError(f"there is no memory for one row of {capacity} tokens")
        self._allocate(rows, capacity)
        return rows

    def _fitting(self, rows: int, capacity: int) -> int:
        """As many rows of a capacity, up to `rows`, as the GPU has memory for."""
        if self.net.device.type != "cuda":
            return rows
        torch.cuda.empty_cache()
        fit = int(SHARE * torch.cuda.mem_get_info()[0] / (self.bytes_per_token * capacity))
        return rows if fit >= rows else max((b for b in BUCKETS if b <= fit), default=0)

    def _allocate(self, rows: int, capacity: int) -> None:
        net = self.net
        shape = (len(net.layers), rows, net.groups, capacity, net.depth)
        # zeros: keys of places nobody has written are read under a mask, and must not be NaN
        self.keys, self.values = (torch.zeros(shape, dtype=net.dtype, device=net.device) for _ in range(2))
        self.board = Board(net, rows)
        self.slots, self.capacity = rows, capacity

    @torch.no_grad()
    def grow(self, rows: int, tokens: int) -> None:
        """More or longer slots, with all that the present ones hold; the steps are captured again.

        ValueError where the memory is not there: rows of a session pause together, so none of them can wait."""
        if tokens > len(self.net.cos):
            raise ValueError(f"a prefix and its answer may have {len(self.net.cos)} tokens together, not {tokens}")
        rows = max(bucket(rows), self.slots)
        capacity = self.capacity if tokens <= self.capacity else max(-(-tokens // 64) * 64, 2 * self.capacity)
        capacity = min(capacity, -(-len(self.net.cos) // 64) * 64)
        self._captured.clear()
        if rows > self.max_rows or self._fitting(rows, capacity) < rows:
            raise ValueError(
                f"{rows} rows of {capacity} tokens do not fit at once (at most {self.max_rows} rows, and the free memory); "
                "ask for fewer rollouts in a step, or use engine='transformers'"
            )
        board, keys, values, held = self.board, self.keys, self.values, self.capacity
        self._allocate(rows, capacity)
        for mine, old in ((self.keys, keys), (self.values, values)):
            mine[:, : old.shape[1], :, :held] = old
        self.board.take_over(board)

    def open(
        self,
        prefixes: Sequence[Sequence[int]],
        owner: np.ndarray,
        keys: np.ndarray,
        *,
        position: np.ndarray | None = None,
        temperature: float = 1.0,
        stop: Collection[int] = (),
    ) -> GraphSession:
        """See `SegmentEngine.open`. The slots are the session's until something else is generated."""
        from workbench.worlds.engines.graph_session import GraphSession

        self.session = None
        self.session = GraphSession(self, prefixes, owner, keys, position, temperature, stop)
        return self.session

    @torch.no_grad()
    def generate(
        self,
        prefixes: Sequence[Sequence[int]],
        n: np.ndarray,
        max_tokens: np.ndarray,
        keys: np.ndarray,
        *,
        position: np.ndarray | None = None,
        temperature: float = 1.0,
        stop: Collection[int] = (),
        ended: Ended | None = None,
    ) -> Segments:
        """See `Engine.generate`. Equal prefixes are computed once, also when they come from several asks."""
        began = time.perf_counter()
        n = np.asarray(n, np.int64)
        place: dict[tuple[int, ...], int] = {}
        owner = np.repeat([place.setdefault(tuple(p), len(place)) for p in prefixes], n).astype(np.int64)  # (R,)
        distinct = list(place)
        if not all(distinct):
            raise ValueError("a prefix without tokens cannot be continued; a prompt has at least one token")
        limit = np.repeat(np.asarray(max_tokens, np.int64), n)
        if len(owner) and limit.min() < 1:
            raise ValueError(f"max_tokens must be at least 1, not {limit.min()}")
        record = Chunks(limit, ended)
        if not len(owner):
            return record.segments(0, 0, time.perf_counter() - began)
        length = np.array([len(p) for p in distinct], np.int64)
        self.session = None
        slots = self.reserve(len(owner), int((length[owner] + limit).max()))
        self.board.rules(temperature, stop, feed_last=False)
        stream = np.zeros(len(owner), np.int64) if position is None else np.asarray(position, np.int64)
        stops = np.fromiter(sorted(stop), np.int64)
        waiting = np.lexsort((owner, length[owner]))  # prefixes of like length together: little padding
        rows, slot, free = np.empty(0, np.int64), np.empty(0, np.int64), np.arange(slots)
        prefilled = 0
        while len(waiting) or len(rows):
            if len(waiting) and len(free) >= min(len(waiting), max(1, slots // 8)):
                come, waiting = admitted(waiting, owner, len(free))
                prefilled += self.enter(
                    len(rows), distinct, owner[come], free[: len(come)], limit[come], keys[come], stream[come]
                )
                rows, slot, free = (
                    np.concatenate([rows, come]),
                    np.concatenate([slot, free[: len(come)]]),
                    free[len(come) :],
                )
            steps = int(min(CHUNK, (limit - record.length)[rows].max()))
            record.add(rows, *self.run(len(rows), steps, temperature == 0), stops)
            stay = np.flatnonzero(~record.done[rows])
            if len(stay) < len(rows):
                record.tell(np.delete(rows, stay))
                free = np.concatenate([free, np.delete(slot, stay)])
                rows, slot = rows[stay], slot[stay]
                self.board.order(stay)
        decoded = int(record.length.sum()) - len(owner)  # the last token of a row is not fed
        return record.segments(prefilled, decoded, time.perf_counter() - began)

    def enter(self, start: int, prefixes, owner, slot, limit, keys, stream) -> int:
        """Compute the prefixes of rows, once each, and put the rows at the places from start on; returns the tokens."""
        board, net = self.board, self.net
        here = slice(start, start + len(owner))
        mine, local = np.unique(owner, return_inverse=True)
        board.slot[here] = torch.as_tensor(slot, device=net.device)
        for piece in np.split(mine, cuts([len(prefixes[i]) for i in mine])):
            rows = np.flatnonzero(np.isin(owner, piece))
            width = max(len(prefixes[i]) for i in piece)
            ids = np.zeros((len(piece), width), np.int64)
            for line, i in zip(ids, piece, strict=True):
                line[: len(prefixes[i])] = prefixes[i]
            of = torch.as_tensor(np.searchsorted(piece, owner[rows]), device=net.device)
            into = torch.as_tensor(slot[rows], device=net.device)

            def write(layer: int, k: torch.Tensor, v: torch.Tensor, of=of, into=into, width=width) -> None:
                self.keys[layer][into, :, :width] = k[of]
                self.values[layer][into, :, :width] = v[of]

            hidden = prefill(net, torch.as_tensor(ids, device=net.device), write)
            last = torch.as_tensor(np.array([len(prefixes[i]) - 1 for i in piece]), device=net.device)
            board.hidden[start + torch.as_tensor(rows, device=net.device)] = hidden[torch.arange(len(piece)), last][of]
        length = np.array([len(prefixes[i]) for i in mine], np.int64)
        columns = (board.position, length[local]), (board.left, limit), (board.stream, stream)
        for column, values in (*columns, (board.key, np.ascontiguousarray(keys, np.uint64).view(np.int64))):
            column[here] = torch.as_tensor(values, device=net.device)
        board.active[here] = True
        return int(length.sum())

    def run(self, rows: int, steps: int, greedy: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Let the first `rows` places take steps (at most CHUNK); (rows, steps) token, -1 where none, logp, entropy."""
        board, size = self.board, min(bucket(rows), self.slots)
        step = self._graph(size, greedy).replay if self.graphs else lambda: self._step(size, greedy)
        ahead = torch.arange(steps, device=board.t.device)
        board.draw[:rows, :steps] = uniform_on(board.key[:rows, None], board.stream[:rows, None] + ahead)
        board.t.zero_()
        for _ in range(steps):
            step()
        token = board.token[:rows, :steps]
        board.stream[:rows] += (token >= 0).sum(1)
        return tuple(c[:rows, :steps].cpu().numpy() for c in (board.token, board.logp, board.entropy))

    def _step(self, size: int, greedy: bool) -> None:
        """Draw a token for each active row of the first places, note it, and feed it."""
        board, net = self.board, self.net
        logits = board.hidden[:size] @ net.head.T
        draw = board.draw[:size].index_select(1, board.t)[:, 0]
        token, logp, entropy = self.ops.choose(logits, draw, board.inverse, greedy)
        fed = self.ops.note(board, size, token, logp, entropy)
        board.t += 1
        forward(net, self.ops, token, self.keys, self.values, board.slot[:size], fed, board.hidden[:size])

    def _graph(self, size: int, greedy: bool) -> torch.cuda.CUDAGraph:
        """The captured step for a number of places; captured with all rows idle, so that nothing moves."""
        if (size, greedy) not in self._captured:
            board = self.board
            active = board.active.clone()
            board.active.fill_(False)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                board.t.zero_()
                self._step(size, greedy)  # kernels are compiled and libraries are set up outside the capture
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            shared = next(iter(self._captured.values())).pool() if self._captured else None
            # another thread may train meanwhile: its calls must not break the capture
            with torch.cuda.graph(graph, pool=shared, capture_error_mode="thread_local"):
                self._step(size, greedy)
            board.active.copy_(active)
            self._captured[size, greedy] = graph
        return self._captured[size, greedy]
