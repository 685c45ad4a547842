"""Rollout Workbench: where should the next rollout go?

In reinforcement learning with verifiable rewards most of the compute is generation. Here published methods that select
prompts, allocate rollouts, grow trees, prune, estimate advantages and replay are combined, run on a real model, watched and
compared.

    from workbench import Experiment, Store
    session = Experiment(model="tiny", pipeline="grpo + mopps").start()    # trains in the background
    session.swap("grpo + vade")                                            # another pipeline from the next step on
    Store.open("store").ask("ledger_by_fate", run=session.run_id)          # where its rollouts went

To train: `Experiment` (a run as data; `run` and `start` it), `Session` (one in the background), `Remote` (one of another
process), `Budget` (what a step may spend), `tasks` (prompts with verifiers), `models` (weights by name).

To combine: `Pipeline`, `Only` (some verbs of a method), `catalog` (all methods; by class in `workbench.methods`), `Method` and
`Card` (to write one's own; `workbench.testing.contract` checks it), `run` (the loop alone, over any world), `SimWorld`,
`LiveWorld`, `ReplayWorld`.

To look: `Store` (recorded runs, in SQL), `compare` (runs at equal cost), `replay` (what another pipeline would have asked),
`diagnose` (what is wrong), `report` (a file to give away), `plots` and `controls` (in a notebook).

Every name is loaded when it is first used, so that `import workbench` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from workbench.version import __version__ as __version__

if TYPE_CHECKING:
    from workbench import models as models
    from workbench import report as report
    from workbench import tasks as tasks
    from workbench.analysis.compare import compare as compare
    from workbench.analysis.diagnose import diagnose as diagnose
    from workbench.analysis.whatif import replay as replay
    from workbench.pipeline import Pipeline as Pipeline
    from workbench.pipeline import catalog as catalog
    from workbench.pipeline import run as run
    from workbench.runs.experiment import Experiment as Experiment
    from workbench.runs.session import Session as Session
    from workbench.runs.steering.remote import Remote as Remote
    from workbench.stages import Card as Card
    from workbench.stages import Method as Method
    from workbench.stages import Only as Only
    from workbench.store import Store as Store
    from workbench.types import Budget as Budget
    from workbench.views.notebook import controls as controls
    from workbench.views.notebook import plots as plots
    from workbench.worlds.live.world import LiveWorld as LiveWorld
    from workbench.worlds.replay import ReplayWorld as ReplayWorld
    from workbench.worlds.sim.world import SimWorld as SimWorld

_MODULE_OF = {
    "Budget": "workbench.types",
    "Card": "workbench.stages",
    "Experiment": "workbench.runs.experiment",
    "LiveWorld": "workbench.worlds.live.world",
    "Method": "workbench.stages",
    "Only": "workbench.stages",
    "Pipeline": "workbench.pipeline",
    "Remote": "workbench.runs.steering.remote",
    "ReplayWorld": "workbench.worlds.replay",
    "Session": "workbench.runs.session",
    "SimWorld": "workbench.worlds.sim.world",
    "Store": "workbench.store",
    "compare": "workbench.analysis.compare",
    "controls": "workbench.views.notebook",
    "diagnose": "workbench.analysis.diagnose",
    "plots": "workbench.views.notebook",
    "replay": "workbench.analysis.whatif",
    "run": "workbench.pipeline",
}
"""Name -> the module that defines it."""

_MODULES = {name: f"workbench.{name}" for name in ("models", "report", "tasks")} | {
    "catalog": "workbench.pipeline.catalog"
}
"""Names that are modules."""

__all__ = [
    "Budget",
    "Card",
    "Experiment",
    "LiveWorld",
    "Method",
    "Only",
    "Pipeline",
    "Remote",
    "ReplayWorld",
    "Session",
    "SimWorld",
    "Store",
    "__version__",
    "catalog",
    "compare",
    "controls",
    "diagnose",
    "models",
    "plots",
    "replay",
    "report",
    "run",
    "tasks",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"workbench has no {name!r}; it has {', '.join(__all__)}; methods are in workbench.methods")


def __dir__() -> list[str]:
    return __all__
