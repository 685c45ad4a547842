"""Errors of the store; each message says what to do."""

from __future__ import annotations

import shlex
from pathlib import Path


class StoreError(RuntimeError):
    """The store cannot do what was asked; the message says what to do instead."""


class Damaged(StoreError):
    """A file that does not hold what was written into it; path: which one, where that is known."""

    def __init__(self, text: str, path: Path | None = None) -> None:
        super().__init__(text)
        self.path = path


def repaired_by(folder: object) -> str:
    """The way out of damage, as messages name it."""
    return (
        f"`workbench store check --repair {shlex.quote(str(folder))}` puts back what can be, and says what it gives up"
    )


class LedgerError(StoreError):
    """A step whose rollouts or tokens do not add up; it was not recorded."""


class RunBusyError(StoreError):
    """Another writer holds the run."""

    @classmethod
    def of(cls, run: str, rank: int, holder: str) -> RunBusyError:
        """The error that names who holds a rank of a run."""
        what = f"rank {rank} of run {run}" if rank else f"run {run}"
        who = holder or "another writer"
        return cls(f"{what} is being written by {who}; stop it, or start a run under another id")


class ReadOnlyError(StoreError):
    """A query that would write, or look outside the store."""


class QuestionError(StoreError, ValueError):
    """A question or parameter that does not exist; the message lists those that do."""
