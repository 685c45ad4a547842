"""The trajectory store: every rollout, reward, belief and decision of a run, kept whole and readable while it runs.

Commit directories are the truth, DuckDB is the engine. `Writer` records a run; `Store` reads any number of runs, in
this process or another; `compact` folds small commits into large files. Needs duckdb and pyarrow, never torch.
"""

from workbench.store.compaction import compact
from workbench.store.errors import LedgerError, QuestionError, ReadOnlyError, RunBusyError, StoreError
from workbench.store.reader import Store
from workbench.store.schema import SCHEMA_VERSION
from workbench.store.writer import Writer

__all__ = [
    "SCHEMA_VERSION",
    "LedgerError",
    "QuestionError",
    "ReadOnlyError",
    "RunBusyError",
    "Store",
    "StoreError",
    "Writer",
    "compact",
]
