"""CUDA-graph engine for decoders of Llama's shape: decodes in a static KV cache, sampled and measured on the device.

The host looks at the results every `CHUNK` steps, drops rows that ended, lets waiting ones in, and goes on with the graph
of the next smaller number of rows (`graph_slots`). Without a GPU the same steps run in plain torch, for tests.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.worlds.engines import Engine, Request, Segments
from workbench.worlds.engines.board import CHUNK
from workbench.worlds.engines.graph_session import GraphSession
from workbench.worlds.engines.graph_slots import Slots
from workbench.worlds.engines.llama import Llama, Ops, reference, supported
from workbench.worlds.engines.places import admitted
from workbench.worlds.engines.record import Record
from workbench.worlds.training import lora

ROWS = {"cuda": 2048, "cpu": 256}
"""Rows that are generated together at most; more wait for a place."""


class GraphEngine(Engine):
    """Samples from a Llama or a relative with static slots and CUDA graphs; on a CPU in plain torch, for tests.

    model: the policy's, its weights shared where dtype allows and else copied at `sync`, LoRA adapters merged in. dtype:
    of weights and cache; None is bfloat16 on a GPU and the model's elsewhere. max_rows: rows decoded together, None is
    `ROWS`, or what fits in memory. graphs: capture the steps; None where there is a GPU. own: share no weights, whatever
    the dtype.
    Raises ValueError for models whose arithmetic is not `llama`'s.
    """

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
        self.net = Llama(model, dtype, own)
        ops: Ops = reference
        if device == "cuda":
            from workbench.worlds.engines import kernels

            if self.net.depth not in kernels.DEPTHS:
                raise ValueError(f"the kernels are made for heads of {kernels.DEPTHS} numbers, not {self.net.depth}")
            ops = kernels
        graphs = device == "cuda" if graphs is None else graphs
        self.slots = Slots(self.net, ops, max_rows or ROWS.get(device, ROWS["cpu"]), graphs)

    @classmethod
    def obstacle(cls, trained: PreTrainedModel) -> str:
        """See `Engine.obstacle`."""
        return supported(trained)

    @classmethod
    def of(cls, name: str, trained: PreTrainedModel, dtype: str, **settings) -> GraphEngine:
        """See `Engine.of`."""
        return cls(trained, getattr(torch, dtype), **settings)

    def apart(self) -> GraphEngine:
        """See `Engine.apart`."""
        if self.copy_of is not None:
            return self
        slots = self.slots
        return GraphEngine(self.model, self.net.dtype, max_rows=slots.max_rows, graphs=slots.graphs, own=True)

    def sync(self) -> None:
        """Take over the weights of the policy; the graphs keep their addresses."""
        self.net.sync()

    def close(self) -> None:
        """Give back the slots and the captured steps; whoever generates again gets new ones."""
        self.slots.free()

    def open(self, request: Request) -> GraphSession:
        """See `Engine.open`. The slots are the session's until something else is generated."""
        return GraphSession(self.slots, request)

    @torch.no_grad()
    def generate(self, request: Request) -> Segments:
        """See `Engine.generate`."""
        began, request = time.perf_counter(), request.distinct()
        prefixes, owner, limit, stream = request.prefixes, request.owner, request.limit, request.position
        assert limit is not None and stream is not None
        record, slots = Record(limit, request.on_end), self.slots
        if not len(owner):
            return record.segments(time.perf_counter() - began)
        length = np.array([len(p) for p in prefixes], np.int64)
        slots.holder = None
        n = slots.reserve(len(owner), int((length[owner] + limit).max()))
        board, *_ = slots.held
        board.rules(request.temperature, request.stop, feed_last=False)
        stops = np.asarray(request.stop, np.int64)
        waiting = np.lexsort((owner, length[owner]))  # prefixes of like length together: little padding
        rows, slot, free = np.empty(0, np.int64), np.empty(0, np.int64), np.arange(n)
        while len(waiting) or len(rows):
            if len(waiting) and len(free) >= min(len(waiting), max(1, n // 8)):
                come, waiting = admitted(waiting, owner, len(free))
                mine, free = free[: len(come)], free[len(come) :]
                record.prefilled += slots.enter(
                    len(rows), prefixes, owner[come], mine, limit[come], request.keys[come], stream[come]
                )
                rows, slot = np.concatenate([rows, come]), np.concatenate([slot, mine])
            steps = int(min(CHUNK, (limit - record.length)[rows].max()))
            record.add(rows, *slots.run(len(rows), steps, request.temperature == 0), stops)
            stay = np.flatnonzero(~record.done[rows])
            if len(stay) < len(rows):
                record.report(np.delete(rows, stay))
                free = np.concatenate([free, np.delete(slot, stay)])
                rows, slot = rows[stay], slot[stay]
                board.order(stay)
        record.decoded = int(record.length.sum()) - len(owner)  # the last token of a row is not fed
        return record.segments(time.perf_counter() - began)
