"""A language model that generates and learns in this process: `LiveWorld`, loaded at first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.worlds.live.world import LiveWorld

__all__ = ["LiveWorld"]


def __getattr__(name: str) -> object:
    if name == "LiveWorld":
        from workbench.worlds.live.world import LiveWorld

        return LiveWorld
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
