"""The sampler for a transformers model in this process: prefill once per prefix, fan out, drop rows that have ended.

Small models with short answers spend their time in prompts and in launches, not in attention; computing each prompt
once for its whole group is what makes 128 short rollouts take seconds on two cores.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from copy import deepcopy

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.worlds.engines import Ended, Segments
from workbench.worlds.engines.draws import uniform
from workbench.worlds.engines.forward import body, fan_out, logits_of, prefill
from workbench.worlds.engines.record import Steps
from workbench.worlds.engines.sampling import choose, invert
from workbench.worlds.engines.session import TransformersSession
from workbench.worlds.training.fsdp import whole

__all__ = ["ROWS", "TransformersEngine", "choose", "invert"]

ROWS = 256
"""Rows that are generated together at most; more wait, so that their logits fit in memory."""


class TransformersEngine:
    """Samples from a transformers model; `copy_of` is the policy's model when this one is a copy in another dtype."""

    tells = True

    def __init__(self, model: PreTrainedModel, copy_of: PreTrainedModel | None = None, *, max_rows: int = ROWS) -> None:
        self.model = model
        self.copy_of = copy_of
        self.max_rows = max_rows

    def apart(self) -> TransformersEngine:
        """An engine whose weights change at `sync` alone: this one, or another where it shares the policy's."""
        if self.copy_of is not None:
            return self
        twin = deepcopy(self.model).eval().requires_grad_(False)
        return TransformersEngine(twin, copy_of=self.model, max_rows=self.max_rows)

    @torch.no_grad()
    def sync(self) -> None:
        """Copy the policy's weights into the sampling copy; nothing to do where they are the same tensors.

        Weights divided between processes are gathered one by one: every process has to come."""
        if self.copy_of is not None:
            for mine, theirs in zip(self.model.parameters(), self.copy_of.parameters(), strict=True):
                mine.copy_(whole(theirs))

    def close(self) -> None:
        """Nothing is held between two calls."""

    def open(
        self,
        prefixes: Sequence[Sequence[int]],
        owner: np.ndarray,
        keys: np.ndarray,
        *,
        position: np.ndarray | None = None,
        temperature: float = 1.0,
        stop: Collection[int] = (),
    ) -> TransformersSession:
        """See `SegmentEngine.open`."""
        return TransformersSession(self.model, prefixes, owner, keys, position, temperature, stop)

    @torch.inference_mode()
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
        owner = np.repeat([place.setdefault(tuple(p), len(place)) for p in prefixes], n)  # (R,)
        distinct = list(place)
        if not all(distinct):
            raise ValueError("a prefix without tokens cannot be continued; a prompt has at least one token")
        record = Steps(np.repeat(np.asarray(max_tokens, np.int64), n), ended)
        if len(owner) and record.limit.min() < 1:
            raise ValueError(f"max_tokens must be at least 1, not {record.limit.min()}")
        first = np.zeros(len(owner), np.int64) if position is None else np.asarray(position, np.int64)
        length = np.array([len(p) for p in distinct], np.int64)
        rows = np.lexsort((owner, length[owner]))  # prefixes of like length together: little padding
        stops = np.fromiter(sorted(stop), np.int64)
        for batch in self._batches(rows, owner):
            self._run(batch, distinct, owner, keys, first, temperature, stops, record)
        return record.segments(record.prefilled, record.decoded, time.perf_counter() - began)

    def _batches(self, rows: np.ndarray, owner: np.ndarray) -> list[np.ndarray]:
        """Rows in pieces of at most max_rows, cut between prefixes where a prefix has fewer rows than that."""
        pieces: list[np.ndarray] = []
        groups = np.split(rows, np.flatnonzero(np.diff(owner[rows])) + 1) if len(rows) else []
        for group in groups:
            for start in range(0, len(group), self.max_rows):
                part = group[start : start + self.max_rows]
                if pieces and len(pieces[-1]) + len(part) <= self.max_rows:
                    pieces[-1] = np.concatenate([pieces[-1], part])
                else:
                    pieces.append(part)
        return pieces

    def _run(self, rows, prefixes, owner, keys, first, temperature, stops, record) -> None:
        """Generate one batch of rows to their ends."""
        model, device = self.model, self.model.device
        mine, local = np.unique(owner[rows], return_inverse=True)
        start = prefill(model, [prefixes[i] for i in mine])
        record.prefilled += sum(len(prefixes[i]) for i in mine)
        local = torch.as_tensor(local, device=device)
        logits = logits_of(model, start.hidden)[local]
        state = None
        for t in range(int(record.limit[rows].max())):
            draw = torch.as_tensor(uniform(keys[rows], first[rows] + t), device=device)
            token, logp, entropy = choose(logits, draw, temperature)
            stopped = record.add(rows, t, token.cpu().numpy(), logp.cpu(), entropy.cpu(), stops)
            alive = ~stopped & (record.limit[rows] > t + 1)
            record.tell(rows[~alive])
            if not alive.any():
                return
            keep = torch.as_tensor(np.flatnonzero(alive), device=device)
            rows, token = rows[alive], token[keep]
            if state is None:
                state = fan_out(start, local[keep])
            elif not alive.all():
                state = fan_out(state, keep)
            mask = torch.cat([state.mask, state.mask.new_ones(len(rows), 1)], 1)
            hidden = body(model, token[:, None], mask, state.position[:, None], state.cache)
            state = state._replace(mask=mask, position=state.position + 1)
            record.decoded += len(rows)
            logits = logits_of(model, hidden[:, -1])
