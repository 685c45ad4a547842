"""What an engine has generated so far, as columns of R rows."""

from __future__ import annotations

import numpy as np

from workbench.types import Ragged
from workbench.worlds.engines import Ended, Segments


class Record:
    """R rows of at most limit (R,) tokens each; engines add to it as they draw, token by token or in chunks.

    ended: who wants to be told of rows that have ended; unfinished: the finish of rows that no token stopped."""

    def __init__(self, limit: np.ndarray, ended: Ended | None = None, unfinished: str = "length") -> None:
        shape = (len(limit), int(limit.max(initial=0)))
        self.limit, self.ended = limit, ended
        self.tokens, self.length = np.zeros(shape, np.int32), np.zeros(len(limit), np.int64)
        self.logp, self.entropy = np.zeros((2, *shape), np.float32)
        self.finish = np.full(len(limit), unfinished, dtype=object)

    def tell(self, rows: np.ndarray) -> None:
        """These rows have ended."""
        for row in rows.tolist() if self.ended is not None else ():
            self.ended(row, self.tokens[row, : self.length[row]].copy())  # type: ignore[misc]

    def segments(self, prefilled: int, decoded: int, seconds: float) -> Segments:
        """The ragged columns."""
        offsets = np.concatenate([[0], np.cumsum(self.length)]).astype(np.int64)
        inside = np.arange(self.tokens.shape[1]) < self.length[:, None]
        tokens, logp, entropy = (Ragged(c[inside], offsets) for c in (self.tokens, self.logp, self.entropy))
        return Segments(tokens, logp, entropy, self.finish, prefilled, decoded, seconds)


class Steps(Record):
    """A record that is written one position at a time, and counts what was computed."""

    prefilled = decoded = 0

    def add(self, rows: np.ndarray, t: int, token, logp, entropy, stop: np.ndarray) -> np.ndarray:
        """Write position t of rows (B,), from arrays or tensors of this machine; (B,) bool of those that it stopped."""
        self.tokens[rows, t], self.logp[rows, t], self.entropy[rows, t] = token, logp, entropy
        self.length[rows] = t + 1
        stopped = np.isin(token, stop)
        self.finish[rows[stopped]] = "stop"
        return stopped
