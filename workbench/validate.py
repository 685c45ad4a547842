"""Validation of settings: a name that is known, a value of its kind and in its range; else one sentence says what is wrong.

A temperature of -1, or a gradient clipped at -1, would train without complaint and to no use.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from numbers import Real

RANGES = {"temperature": (0.01, 10.0), "lr": (0.0, 1.0)}
"""What can also be set while a run goes, and between what it must lie."""

MOST = 10**9
"""Above any count that is meant."""


def known(given: Iterable[str], names: Collection[str], what: str) -> None:
    """Raise ValueError for a name that is not one of those there, with the nearest of them."""
    for name in given:
        if name not in names:
            raise ValueError(f"{what} has no {name!r}{nearest(name, names)} (it takes {', '.join(sorted(names))})")


def nearest(name: object, names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: "; did you mean mopps?", or "" where none of the names is near."""
    near = get_close_matches(str(name), list(names), 1)
    return f"; did you mean {near[0]}?" if near else ""


def number(name: str, value: object, low: float, high: float = math.inf) -> float:
    """A number from low to high."""
    if isinstance(value, bool) or not isinstance(value, Real) or value < low or not value <= high:
        allowed = f"from {low:g} to {high:g}" if high < math.inf else f"of at least {low:g}"
        raise ValueError(f"{name} must be a number {allowed}, got {value!r}")
    return float(value)


def whole(name: str, value: object, low: int = 1, high: int = MOST) -> int:
    """A whole number from low to high."""
    if isinstance(value, bool) or not isinstance(value, Real) or value < low or not value <= high or value % 1 != 0:
        allowed = f"from {low} to {high}" if high < MOST else f"of at least {low}"
        raise ValueError(f"{name} must be a whole number {allowed}, got {value!r}")
    return int(value)  # type: ignore[arg-type]  every Real here is a whole number


def one_of(name: str, value: object, allowed: Collection[object]) -> None:
    """Raise ValueError for a value that is none of those allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, got {value!r}")
