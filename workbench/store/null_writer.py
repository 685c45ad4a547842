"""A writer that records nothing, for a process whose run another process records."""

from __future__ import annotations


class NullWriter:
    """Takes what a `Writer` of the run would take."""

    def __init__(self, run: str) -> None:
        self.run = run

    def nothing(self, *args: object, **options: object) -> None:
        """Every act of a `Writer`."""

    acting = append = evaluation = beliefs = command = event = flush = close = give_up = nothing
