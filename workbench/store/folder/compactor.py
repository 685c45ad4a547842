"""Compacts a store while its writer goes on: in a thread of its own, whenever enough commits wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

from workbench.store.folder.compaction import is_due


class Compactor:
    """Calls fold(), which returns the last commit that is folded then, one call at a time.

    folded: the last commit that was before, -1 for none. Where it fails, failed(error) is called and nothing is compacted
    any more: the commits are all there, reading is only slower. A compactor that is not on does nothing."""

    def __init__(self, fold: Callable[[], int], folded: int, failed: Callable[[Exception], None], on: bool) -> None:
        self._fold, self._folded, self._failed, self._on = fold, folded, failed, on
        self._held = 0  # bytes of commits that the next compaction will fold
        self._thread: threading.Thread | None = None

    def wrote(self, seq: int, n_bytes: int) -> None:
        """Another commit is there, of so many bytes that readers hold; seq: the number of the next one."""
        self._held += n_bytes
        if not self._on or (self._thread and self._thread.is_alive()):
            return
        if is_due(seq, self._folded, self._held):
            self._held = 0
            self._thread = threading.Thread(target=self._work, name="compactor", daemon=True)
            self._thread.start()

    def join(self) -> None:
        """Wait for the compaction that is under way."""
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            self._folded = self._fold()
        except Exception as error:
            self._on = False
            self._failed(error)
