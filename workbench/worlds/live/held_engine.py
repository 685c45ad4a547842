"""The sampler of an asynchronous run: an engine whose weights change when it is told, not at each update."""

from __future__ import annotations

from collections.abc import Callable

from workbench.stages import HeldSampler
from workbench.worlds.engines import Engine


class HeldEngine(HeldSampler):
    """An engine held for the time of a run: the update neither changes weights under a running generation, nor puts it to
    sleep. One that shares the trained weights gets a copy of them. use: makes an engine the world's."""

    def __init__(self, own: Engine, use: Callable[[Engine], None]) -> None:
        self._own, self._use = own, use
        self._engine = own.apart()
        self._sync = self._engine.sync
        self._engine.sync = self._engine.rest = lambda: None
        use(self._engine)

    def take_over(self) -> None:
        """Let the sampler have the trained weights; nobody may be generating."""
        self._sync()

    def release(self) -> None:
        """Give the world its own engine back, up to date."""
        self._use(self._own)
        del self._engine.sync, self._engine.rest  # those of its class again
        if self._engine is not self._own:
            self._engine.close()
        self._own.sync()
