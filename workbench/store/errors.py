"""What can go wrong with a store, each with its own name."""


class StoreError(RuntimeError):
    """The store cannot do what was asked; the message says what to do instead."""


class Damaged(StoreError):
    """A file that does not hold what was written into it."""


class LedgerError(StoreError):
    """A step whose rollouts or tokens do not add up; it was not recorded."""


class RunBusyError(StoreError):
    """Another writer holds the run."""


class ReadOnlyError(StoreError):
    """A query that would write, or look outside the store."""


class QuestionError(StoreError, ValueError):
    """A question or parameter that does not exist; the message lists those that do."""
