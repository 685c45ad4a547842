"""Columns of generated tokens, log-probabilities and entropies, filled while an engine draws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.types import Ragged
from workbench.worlds.engines import Segments


class Record:
    """R rows of at most limit (R,) tokens each; engines append to it as they draw, one step or several at a time.

    on_end: see `Request`; unfinished: the finish of rows that no token stopped. prefilled, decoded: what was computed."""

    def __init__(
        self,
        limit: np.ndarray,
        on_end: Callable[[int, np.ndarray], None] | None = None,
        unfinished: str = "length",
    ) -> None:
        shape = (len(limit), int(limit.max(initial=0)))
        self.limit, self.on_end = limit, on_end
        self.tokens, self.length = np.zeros(shape, np.int32), np.zeros(len(limit), np.int64)
        self.logp, self.entropy = np.zeros((2, *shape), np.float32)
        self.finish = np.full(len(limit), unfinished, dtype=object)
        self.prefilled = self.decoded = 0

    def add(
        self, rows: np.ndarray, token: np.ndarray, logp: np.ndarray, entropy: np.ndarray, stop: np.ndarray
    ) -> np.ndarray:
        """Append (B, k) columns to rows (B,), token -1 where nothing was drawn; (B,) bool of the rows that stopped here."""
        place, step = np.nonzero(token >= 0)  # a row draws at its first steps, then no more
        row = rows[place]
        at = self.length[row] + step
        for column, values in ((self.tokens, token), (self.logp, logp), (self.entropy, entropy)):
            column[row, at] = values[place, step]
        n = np.bincount(place, minlength=len(rows))
        self.length[rows] += n
        last = np.take_along_axis(token, np.maximum(n - 1, 0)[:, None], 1)[:, 0]
        stopped = (n > 0) & np.isin(last, stop)
        self.finish[rows[stopped]] = "stop"
        return stopped

    @property
    def done(self) -> np.ndarray:
        """(R,) bool: rows that ended."""
        return (self.finish == "stop") | (self.length >= self.limit)

    def report(self, rows: np.ndarray) -> None:
        """Call on_end for rows that have ended."""
        if self.on_end is not None:
            for row in rows.tolist():
                self.on_end(row, self.tokens[row, : self.length[row]].copy())

    def segments(self, seconds: float) -> Segments:
        """The ragged columns."""
        offsets = np.concatenate([[0], np.cumsum(self.length)]).astype(np.int64)
        inside = np.arange(self.tokens.shape[1]) < self.length[:, None]
        tokens, logp, entropy = (Ragged(c[inside], offsets) for c in (self.tokens, self.logp, self.entropy))
        return Segments(tokens, logp, entropy, self.finish, self.prefilled, self.decoded, seconds)
