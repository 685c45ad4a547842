"""Where rollouts come from: `LiveWorld` (a model that generates and learns) and `SimWorld` (prompts with latent skill).

Both are loaded at first use, so importing this package costs nothing.
"""

from __future__ import annotations

import importlib
import os

# Idle OpenMP threads that spin slow a shared machine two to ten times; read once, when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_HOME = {"LiveWorld": "live.world", "SimWorld": "sim.world"}

__all__ = ["LiveWorld", "SimWorld"]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(importlib.import_module(f"workbench.worlds.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
