"""What a process has in place of a `Writer` where another process records the run of both."""

from __future__ import annotations


class Silent:
    """Takes what a `Writer` of the run would take, and records nothing."""

    def __init__(self, run: str) -> None:
        self.run = run

    def acting(self, *args: object) -> None:
        """See `Writer.acting`."""

    def append(self, *args: object, **columns: object) -> None:
        """See `Writer.append`."""

    def evaluation(self, *args: object) -> None:
        """See `Writer.evaluation`."""

    def beliefs(self, *args: object) -> None:
        """See `Writer.beliefs`."""

    def command(self, *args: object) -> None:
        """See `Writer.command`."""

    def event(self, *args: object) -> None:
        """See `Writer.event`."""

    def flush(self) -> None:
        """Nothing waits."""

    def close(self, *args: object) -> None:
        """Nothing is open."""

    def give_up(self) -> None:
        """See `Writer.give_up`."""
