"""Promises of a method: what every class keeps, or every class that acts at a verb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from workbench.stages import Method


class Promise(NamedTuple):
    """A sentence, the verbs of which a method must have one (none: every method), and the check that asserts it."""

    sentence: str
    verbs: tuple[str, ...]
    check: Callable[[type[Method]], None]


PROMISES: list[Promise] = []


def promise(*verbs: str) -> Callable[[Callable[[type[Method]], None]], Callable[[type[Method]], None]]:
    """Add a check to the contract; the first line of its docstring is the sentence."""

    def add(check: Callable[[type[Method]], None]) -> Callable[[type[Method]], None]:
        PROMISES.append(Promise((check.__doc__ or "").splitlines()[0].rstrip("."), verbs, check))
        return check

    return add


@contextmanager
def case(**given: object) -> Iterator[None]:
    """Say in a failing assertion which case of several it was."""
    try:
        yield
    except Exception as error:
        error.add_note(", ".join(f"{name} = {value}" for name, value in given.items()))
        raise
