"""A figure of speed or learning, and what it was measured on: machine, card, versions.

One object a figure: bench, case, metric, value, unit, peer, ratio (ours / peer, measured in the same run), machine,
card, date, versions. Wall seconds stand beside CPU seconds, since two busy cores can slow a step twofold.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Figure(NamedTuple):
    """One measured figure; peer and ratio where something was measured beside it."""

    case: str
    metric: str
    value: float
    unit: str
    peer: str = ""
    ratio: float | None = None
    note: str = ""


def machine() -> str:
    """Processor, cores and memory in a few words."""
    import psutil

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB"


def card() -> str:
    """The GPU's name, or "" without one (asked only where torch is loaded already)."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else ""


def versions() -> dict[str, str]:
    """Versions of what decides speed, of what is installed."""
    found = {"python": platform.python_version()}
    for name in ("rollout-workbench", "torch", "transformers", "duckdb", "numpy", "panel", "triton", "trl", "vllm"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
