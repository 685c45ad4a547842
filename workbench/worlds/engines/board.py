"""Buffers of a CUDA-graph decoding step: what it reads and writes at fixed addresses."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch

from workbench.worlds.engines import NEVER, Until
from workbench.worlds.engines.draws import GOLDEN
from workbench.worlds.engines.llama import Llama

CHUNK = 16
"""Steps between two looks of the host; a row that ended waits for the next look, 8 steps on average."""


def uniform_on(keys: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """`draws.uniform` on the device: float64 in (0, 1) of int64 keys (the bits of the uint64 ones) and positions."""

    def shifted(z: torch.Tensor, by: int) -> torch.Tensor:
        return (z >> by) & ((1 << (64 - by)) - 1)  # logical: int64 shifts keep the sign

    z = keys + (position + 1) * _signed(int(GOLDEN))
    z = (z ^ shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ shifted(z, 27)) * _signed(0x94D049BB133111EB)
    z = z ^ shifted(z, 31)
    return (shifted(z, 32).double() + 0.5) * 2.0**-32


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


class Board:
    """What a step reads and writes, at fixed addresses. Place b holds one row.

    hidden (B, H) after the last token fed; slot; position: tokens in the cache; left: tokens it may still draw; key and
    stream of its draws; active: it draws at the next step. draw, token (-1 where none), logp, entropy (B, CHUNK), column t
    of the step. feed_last: a row at its limit feeds its last token,
    so that it can go on later. threshold (nats) and marker pause rows, stop ends them.
    """

    def __init__(self, net: Llama, size: int) -> None:
        at = net.device
        self.hidden = torch.zeros(size, net.hidden, dtype=net.dtype, device=at)
        self.slot, self.position, self.left, self.key, self.stream = torch.zeros(5, size, dtype=torch.int64, device=at)
        self.active = torch.zeros(size, dtype=torch.bool, device=at)
        self.draw = torch.zeros(size, CHUNK, dtype=torch.float64, device=at)
        self.token = torch.full((size, CHUNK), -1, device=at)
        self.logp, self.entropy = torch.zeros(2, size, CHUNK, device=at)
        self.t = torch.zeros(1, dtype=torch.int64, device=at)
        self.inverse = torch.ones(1, device=at)
        self.threshold = torch.full((1,), torch.inf, device=at)
        self.feed_last = torch.zeros(1, dtype=torch.bool, device=at)
        self.stop, self.marker = torch.zeros(2, net.vocabulary, dtype=torch.bool, device=at)

    def columns(self) -> tuple[torch.Tensor, ...]:
        """The tensors with one line per place that a row takes along when it moves."""
        return (self.hidden, self.slot, self.position, self.left, self.key, self.stream, self.active)

    def take_over(self, other: Board) -> None:
        """All that stands on a smaller board, and its rules."""
        for mine, old in zip(self.columns(), other.columns(), strict=True):
            mine[: len(old)] = old
        for name in ("inverse", "threshold", "feed_last", "stop", "marker"):
            getattr(self, name).copy_(getattr(other, name))

    def order(self, places: np.ndarray) -> None:
        """Place i takes over what stands in places[i]; the places behind them fall idle."""
        index = torch.as_tensor(places, device=self.slot.device)
        for column in self.columns():
            column[: len(places)] = column[index]
        self.active[len(places) :] = False

    def rules(self, temperature: float, stop: Collection[int], feed_last: bool) -> None:
        """What holds for all rows until the next call; nothing pauses them."""
        self.inverse.fill_(1 / (temperature or 1.0))
        self.feed_last.fill_(feed_last)
        self._mark(self.stop, stop)
        self.pauses(NEVER)

    def pauses(self, until: Until) -> None:
        """After which tokens rows pause."""
        self.threshold.fill_(torch.inf if until.entropy is None else until.entropy)
        self._mark(self.marker, until.markers)

    @staticmethod
    def _mark(column: torch.Tensor, tokens: Collection[int]) -> None:
        column.fill_(False)
        if len(tokens):
            column[torch.as_tensor(sorted(tokens), device=column.device)] = True
