"""Transformers engine: samples any causal transformers model in this process, each prefix in the KV cache once for all its rows.

Small models with short answers spend their time in prompts and in launches, not in attention; computing each prompt
once for its whole group, and dropping rows that have ended, is what makes 128 short rollouts take seconds on two cores.
"""

from __future__ import annotations

import time
from copy import deepcopy

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.worlds.engines import Engine, Request, Segments, Session
from workbench.worlds.engines.draws import uniform
from workbench.worlds.engines.forward import body, fan_out, logits_of, prefill
from workbench.worlds.engines.recomputed_session import RecomputedSession
from workbench.worlds.engines.record import Record
from workbench.worlds.engines.sampling import choose
from workbench.worlds.engines.transformers_session import TransformersSession
from workbench.worlds.training.fsdp import whole

ROWS = 256
"""Rows that are generated together at most; more wait, so that their logits fit in memory."""


class TransformersEngine(Engine):
    """Samples from a transformers model; `copy_of` is the policy's model when this one is a copy in another dtype.

    cached: with keys and values; "whole" for whole rows alone, not for those that pause; False where neither would be
    the model's own distribution (recurrent layers): then every token is computed from the whole row."""

    def __init__(
        self,
        model: PreTrainedModel,
        copy_of: PreTrainedModel | None = None,
        *,
        max_rows: int = ROWS,
        cached: bool | str = True,
    ) -> None:
        self.model = model
        self.copy_of = copy_of
        self.max_rows = max_rows
        self.cached = cached

    @classmethod
    def of(cls, name: str, trained: PreTrainedModel, dtype: str, **settings) -> TransformersEngine:
        """See `Engine.of`; in float32 the trained weights themselves sample."""
        return (
            cls(trained, **settings) if dtype == "float32" else cls.copied(trained, getattr(torch, dtype), **settings)
        )

    @classmethod
    def copied(cls, trained: PreTrainedModel, dtype: torch.dtype, **settings) -> TransformersEngine:
        """A sampler over a copy of the trained weights in a dtype; `sync` copies them again."""
        twin = deepcopy(trained).eval().requires_grad_(False)
        for weight in twin.parameters():  # not twin.to(dtype): that would round the rotary frequencies too
            weight.data = weight.data.to(dtype)
        return cls(twin, copy_of=trained, **settings)

    def apart(self) -> TransformersEngine:
        """See `Engine.apart`."""
        if self.copy_of is not None:
            return self
        return self.copied(self.model, self.model.dtype, max_rows=self.max_rows, cached=self.cached)

    @torch.no_grad()
    def sync(self) -> None:
        """Copy the policy's weights into the sampling copy; nothing to do where they are the same tensors.

        Weights divided between processes are gathered one by one: every process has to come."""
        if self.copy_of is not None:
            for mine, theirs in zip(self.model.parameters(), self.copy_of.parameters(), strict=True):
                mine.copy_(whole(theirs))

    def open(self, request: Request) -> Session:
        """See `Engine.open`."""
        return (TransformersSession if self.cached is True else RecomputedSession)(self.model, request)

    @torch.inference_mode()
    def generate(self, request: Request) -> Segments:
        """See `Engine.generate`."""
        began, request = time.perf_counter(), request.distinct()
        assert request.limit is not None
        if not self.cached:
            return self._recomputed(request)
        record = Record(request.limit, request.on_end)
        length = np.array([len(p) for p in request.prefixes], np.int64)
        rows = np.lexsort((request.owner, length[request.owner]))  # prefixes of like length together: little padding
        for batch in self._batches(rows, request.owner):
            self._run(batch, request, record)
        return record.segments(time.perf_counter() - began)

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

    def _recomputed(self, request: Request) -> Segments:
        """Rows that are made without a cache; they are reported once all have ended."""
        assert request.limit is not None
        session = RecomputedSession(self.model, request)
        made = session.advance(request.limit)
        if request.on_end is not None:
            for row, tokens in enumerate(made.tokens.rows()):
                request.on_end(row, tokens.copy())
        finish = np.where(made.finish == "stop", made.finish, "length").astype(object)
        return made._replace(finish=finish, prefilled=session.prefilled)

    def _run(self, rows: np.ndarray, request: Request, record: Record) -> None:
        """Generate one batch of rows to their ends."""
        model, device = self.model, self.model.device
        stops, position = np.asarray(request.stop, np.int64), request.position
        assert position is not None
        mine, local = np.unique(request.owner[rows], return_inverse=True)
        start = prefill(model, [request.prefixes[i] for i in mine])
        record.prefilled += sum(len(request.prefixes[i]) for i in mine)
        local = torch.as_tensor(local, device=device)
        logits = logits_of(model, start.hidden)[local]
        state = None
        for t in range(int(record.limit[rows].max())):
            draw = torch.as_tensor(uniform(request.keys[rows], position[rows] + t), device=device)
            token, *statistics = choose(logits, draw, request.temperature)
            stopped = record.add(rows, *(c.cpu().numpy()[:, None] for c in (token, *statistics)), stops)
            alive = ~stopped & (record.limit[rows] > t + 1)
            record.report(rows[~alive])
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
