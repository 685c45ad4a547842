"""The methods, one paper each, by class: `from workbench.methods import Grpo, Vade`.

Written by `python -m workbench.reference.lists`. A class is imported at its first use; its module is its name in
lower case, with underscores: `DrGrpo` is in `dr_grpo`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.methods.adhint import Adhint as Adhint
    from workbench.methods.aepo import Aepo as Aepo
    from workbench.methods.april import April as April
    from workbench.methods.arrol import Arrol as Arrol
    from workbench.methods.async_staleness import AsyncStaleness as AsyncStaleness
    from workbench.methods.branchgrpo import Branchgrpo as Branchgrpo
    from workbench.methods.brorl import Brorl as Brorl
    from workbench.methods.brts import Brts as Brts
    from workbench.methods.cispo import Cispo as Cispo
    from workbench.methods.cures import Cures as Cures
    from workbench.methods.d3s import D3s as D3s
    from workbench.methods.dapo import Dapo as Dapo
    from workbench.methods.dapo_dynamic_sampling import DapoDynamicSampling as DapoDynamicSampling
    from workbench.methods.dars import Dars as Dars
    from workbench.methods.dart import Dart as Dart
    from workbench.methods.dora import Dora as Dora
    from workbench.methods.dots_rr import DotsRr as DotsRr
    from workbench.methods.dps import Dps as Dps
    from workbench.methods.dr_grpo import DrGrpo as DrGrpo
    from workbench.methods.duet import Duet as Duet
    from workbench.methods.dump import Dump as Dump
    from workbench.methods.echo import Echo as Echo
    from workbench.methods.epo import Epo as Epo
    from workbench.methods.ettrl import Ettrl as Ettrl
    from workbench.methods.fapo import Fapo as Fapo
    from workbench.methods.gdpo import Gdpo as Gdpo
    from workbench.methods.gdro import Gdro as Gdro
    from workbench.methods.grpo import Grpo as Grpo
    from workbench.methods.grpo_roc import GrpoRoc as GrpoRoc
    from workbench.methods.gspo import Gspo as Gspo
    from workbench.methods.insight import Insight as Insight
    from workbench.methods.latr import Latr as Latr
    from workbench.methods.mc_grpo import McGrpo as McGrpo
    from workbench.methods.minpro import Minpro as Minpro
    from workbench.methods.missing_old_logits import MissingOldLogits as MissingOldLogits
    from workbench.methods.mopps import Mopps as Mopps
    from workbench.methods.mssr import Mssr as Mssr
    from workbench.methods.nudgerl import Nudgerl as Nudgerl
    from workbench.methods.otr import Otr as Otr
    from workbench.methods.probe_set import ProbeSet as ProbeSet
    from workbench.methods.reinforce_pp import ReinforcePp as ReinforcePp
    from workbench.methods.rlad import Rlad as Rlad
    from workbench.methods.rloo import Rloo as Rloo
    from workbench.methods.sage_hint import SageHint as SageHint
    from workbench.methods.sapo import Sapo as Sapo
    from workbench.methods.scope import Scope as Scope
    from workbench.methods.sgpo import Sgpo as Sgpo
    from workbench.methods.trace import Trace as Trace
    from workbench.methods.uniform import Uniform as Uniform
    from workbench.methods.v0 import V0 as V0
    from workbench.methods.v05 import V05 as V05
    from workbench.methods.vade import Vade as Vade
    from workbench.methods.vcpo import Vcpo as Vcpo
    from workbench.methods.xrpo import Xrpo as Xrpo

__all__ = [
    "V0", "V05", "Adhint", "Aepo", "April", "Arrol", "AsyncStaleness", "Branchgrpo", "Brorl", "Brts", "Cispo",
    "Cures", "D3s", "Dapo", "DapoDynamicSampling", "Dars", "Dart", "Dora", "DotsRr", "Dps", "DrGrpo", "Duet",
    "Dump", "Echo", "Epo", "Ettrl", "Fapo", "Gdpo", "Gdro", "Grpo", "GrpoRoc", "Gspo", "Insight", "Latr", "McGrpo",
    "Minpro", "MissingOldLogits", "Mopps", "Mssr", "Nudgerl", "Otr", "ProbeSet", "ReinforcePp", "Rlad", "Rloo",
    "SageHint", "Sapo", "Scope", "Sgpo", "Trace", "Uniform", "Vade", "Vcpo", "Xrpo",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in iter_modules(__path__):
            if module.name.replace("_", "") == name.lower():
                return getattr(import_module(f"{__name__}.{module.name}"), name)
    raise AttributeError(f"workbench.methods has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
