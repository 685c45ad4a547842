"""What sessions without a cache of their own keep of their rows: the tokens so far, and where each stream of draws stands."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np


def check(limit: np.ndarray, forced: Collection[int]) -> None:
    """Raises ValueError where limit (B,) is below 0, or holds back a row that a token was forced on."""
    if np.min(limit, initial=0) < 0:
        raise ValueError(f"a row makes no fewer than 0 tokens, not {np.min(limit)}")
    if held := [row for row in forced if limit[row] < 1]:
        raise ValueError(f"row {held[0]} cannot wait: a token was forced on it, so its limit is 1 at least")


class PathSession:
    """The part of `workbench.worlds.engines.Session` that is about rows alone; advance and what it counts are an engine's.

    paths: the tokens of each row, prefix and generated; keys (B,) uint64 and place (B,) int64: its stream and position."""

    def __init__(
        self, prompts: Sequence[tuple[int, ...]], owner: np.ndarray, keys: np.ndarray, position: np.ndarray | None
    ) -> None:
        self.paths = [prompts[o] for o in np.asarray(owner, np.int64)]
        self.keys = np.asarray(keys, np.uint64)
        self.place = np.zeros(len(self.paths), np.int64) if position is None else np.asarray(position, np.int64).copy()
        self.prefilled = self.decoded = 0
        self._forced: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def keep(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """See `Session.keep`."""
        if self._forced:
            raise ValueError("forced tokens wait for their rows; advance before keep")
        self._select(np.asarray(rows, np.int64))
        self.keys = np.asarray(keys, np.uint64)

    def rewind(self, row: int, tokens: int, last: int | None) -> None:
        """See `Session.rewind`."""
        if tokens < 1:
            return
        path = self.paths[row][:-tokens]
        if last is not None and path[-1] != last:
            raise ValueError(f"the token before those taken back is {path[-1]}, not {last}")
        self.paths[row] = path
        self.place[row] -= tokens

    def force(self, row: int, token: int) -> None:
        """See `Session.force`."""
        self._forced[row] = int(token)

    def _select(self, rows: np.ndarray) -> None:
        self.paths = [self.paths[r] for r in rows]
        self.keys, self.place = self.keys[rows], self.place[rows]
