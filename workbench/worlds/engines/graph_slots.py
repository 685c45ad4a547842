"""Static KV cache with CUDA graphs: rows in slots at fixed addresses, one captured decoding step per number of rows.

A small model's step is bound by launches, not by the chip, so a step is captured once per batch size and replayed.
What changes from step to step lives at fixed addresses (`Board`); rows name the slot that holds their keys and values,
so dropping finished rows moves a few numbers and never the cache. Attention reads of each slot what its row has written
(`kernels.attend`), so no graph per length is needed, and with the element-wise work in the same kernels torch.compile had
nothing left to fuse. Without a GPU the same step runs in plain torch.
"""

from __future__ import annotations

import numpy as np
import torch

from workbench.worlds.engines import Session
from workbench.worlds.engines.board import Board, uniform_on
from workbench.worlds.engines.llama import Llama, Ops, forward, prefill
from workbench.worlds.engines.places import BUCKETS, bucket, cuts

SHARE = 0.6
"""Of the GPU's free memory, what the slots may take."""


class Slots:
    """The keys and values of n rows of at most `capacity` tokens, the board, and the captured steps; none at first.

    keys, values (layers, n, groups, capacity, d). holder: the session whose rows stand here, None while whole rows are
    generated. graphs: whether steps are captured; max_rows: slots at most."""

    def __init__(self, net: Llama, ops: Ops, max_rows: int, graphs: bool) -> None:
        self.net, self.ops, self.max_rows, self.graphs = net, ops, max_rows, graphs
        self._captured: dict[tuple[int, bool], torch.cuda.CUDAGraph] = {}
        self.free()

    def free(self) -> None:
        """Give back the memory and the captured steps."""
        self.holder: Session | None = None
        self.board: Board | None = None
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None
        self.n = self.capacity = 0
        self._captured.clear()
        if self.net.device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def held(self) -> tuple[Board, torch.Tensor, torch.Tensor]:
        """Board, keys and values, which are there once rows were reserved."""
        assert self.board is not None and self.keys is not None and self.values is not None
        return self.board, self.keys, self.values

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
        self._check(tokens)
        rows, capacity = bucket(min(rows, self.max_rows)), -(-tokens // 64) * 64
        if rows <= self.n and capacity <= self.capacity:
            return self.n
        rows, capacity = max(rows, self.n), max(capacity, self.capacity)
        self.board = self.keys = self.values = None
        self._captured.clear()
        rows = self._fitting(rows, capacity)
        if not rows:
            raise ValueError(f"there is no memory for one row of {capacity} tokens")
        self._allocate(rows, capacity)
        return rows

    def _check(self, tokens: int) -> None:
        if tokens > len(self.net.cos):
            raise ValueError(f"a prefix and its answer may have {len(self.net.cos)} tokens together, not {tokens}")

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
        self.n, self.capacity = rows, capacity

    @torch.no_grad()
    def grow(self, rows: int, tokens: int) -> None:
        """More or longer slots, with all that the present ones hold; the steps are captured again.

        ValueError where the memory is not there: rows of a session pause together, so none of them can wait."""
        self._check(tokens)
        rows = max(bucket(rows), self.n)
        capacity = self.capacity if tokens <= self.capacity else max(-(-tokens // 64) * 64, 2 * self.capacity)
        capacity = min(capacity, -(-len(self.net.cos) // 64) * 64)
        self._captured.clear()
        if rows > self.max_rows or self._fitting(rows, capacity) < rows:
            raise ValueError(
                f"{rows} rows of {capacity} tokens do not fit at once (at most {self.max_rows} rows, and the free memory); "
                "ask for fewer rollouts in a step, or use engine='transformers'"
            )
        (old_board, *old_caches), width = self.held, self.capacity
        self._allocate(rows, capacity)
        board, *caches = self.held
        for mine, old in zip(caches, old_caches, strict=True):
            mine[:, : old.shape[1], :, :width] = old
        board.take_over(old_board)

    def enter(self, start: int, prefixes, owner, slot, limit, keys, stream) -> int:
        """Compute the prefixes of rows, once each, and put the rows at the places from start on; returns the tokens."""
        (board, *caches), net = self.held, self.net
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
                for cache, new in zip(caches, (k, v), strict=True):
                    cache[layer][into, :, :width] = new[of]

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
        (board, *_), size = self.held, min(bucket(rows), self.n)
        step = self._graph(size, greedy).replay if self.graphs else lambda: self._step(size, greedy)
        ahead = torch.arange(steps, device=board.t.device)
        board.draw[:rows, :steps] = uniform_on(board.key[:rows, None], board.stream[:rows, None] + ahead)
        board.t.zero_()
        for _ in range(steps):
            step()
        token = board.token[:rows, :steps]
        board.stream[:rows] += (token >= 0).sum(1)
        drawn, logp, entropy = (c[:rows, :steps].cpu().numpy() for c in (board.token, board.logp, board.entropy))
        return drawn, logp, entropy

    def _step(self, size: int, greedy: bool) -> None:
        """Draw a token for each active row of the first places, note it, and feed it."""
        (board, keys, values), net = self.held, self.net
        logits = board.hidden[:size] @ net.head.T
        draw = board.draw[:size].index_select(1, board.t)[:, 0]
        token, logp, entropy = self.ops.choose(logits, draw, board.inverse, greedy)
        fed = self.ops.note(board, size, token, logp, entropy)
        board.t += 1
        forward(net, self.ops, token, keys, values, board.slot[:size], fed, board.hidden[:size])

    def _graph(self, size: int, greedy: bool) -> torch.cuda.CUDAGraph:
        """The captured step for a number of places; captured with all rows idle, so that nothing moves."""
        if (size, greedy) not in self._captured:
            board = self.board
            assert board is not None
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
