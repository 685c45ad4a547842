"""How long tests wait: for a condition, never for a time, with limits that one factor scales."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

FACTOR = float(os.environ.get("TEST_PATIENCE", "4"))
"""Limits are met only by what hangs, so that a busy machine should not meet them either."""

T = TypeVar("T")


def patience(seconds: float) -> float:
    """The limit of a wait that takes at most this long on an idle machine."""
    return FACTOR * seconds


def until(met: Callable[[], T], seconds: float = 30, *, every: float = 0.02, or_say: Callable[[], object] = str) -> T:
    """Wait until `met()` is true, and its value; after too long, a failure with what `or_say()` gives."""
    end = time.monotonic() + patience(seconds)
    while not (value := met()):
        assert time.monotonic() < end, or_say() or "waited too long"
        time.sleep(every)
    return value
