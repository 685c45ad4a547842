"""Rollout Workbench: where should the next rollout go?

    from workbench import Experiment
    Experiment(model="tiny", pipeline="grpo + mopps").start()

The names below load what they need on first use, so that `import workbench` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from workbench.version import __version__ as __version__

_HOME = {
    "Budget": "workbench.types",
    "Experiment": "workbench.runs.experiment",
    "Only": "workbench.stages",
    "Pipeline": "workbench.pipeline",
    "Session": "workbench.runs.session",
    "Store": "workbench.store",
    "catalog": "workbench.pipeline.catalog",
    "run": "workbench.pipeline",
}

__all__ = sorted([*_HOME, "__version__"])

if TYPE_CHECKING:
    from workbench.pipeline import Pipeline as Pipeline
    from workbench.pipeline import catalog as catalog
    from workbench.pipeline import run as run
    from workbench.runs.experiment import Experiment as Experiment
    from workbench.runs.session import Session as Session
    from workbench.stages import Only as Only
    from workbench.store import Store as Store
    from workbench.types import Budget as Budget


def __getattr__(name: str) -> object:
    if name == "catalog":
        return import_module("workbench.pipeline.catalog")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"workbench has no {name!r}; it has {', '.join(__all__)}; methods are in workbench.methods")


def __dir__() -> list[str]:
    return __all__
