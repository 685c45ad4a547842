"""Advisory locks in PostgreSQL: the server lets go of one as soon as the connection of who holds it is gone.

An advisory lock lives in a transaction that stays open: DuckDB cleans a connection when a transaction gives it back,
which would drop a lock of the session. The transaction reads committed rows and has written nothing, so it holds back
no clean-up of the catalog.
"""

from __future__ import annotations

import hashlib
import os
import platform
import threading
from contextlib import suppress

import duckdb

from workbench.store.background import STILL
from workbench.store.errors import RunBusyError
from workbench.store.lake.catalog import Lake, attach, reported
from workbench.store.statements import quoted

HERE = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"


def key_of(lake: Lake, what: str) -> int:
    """The 64-bit key of a lock, signed as PostgreSQL wants it."""
    return int.from_bytes(hashlib.blake2b(f"{lake.schema}/{what}".encode(), digest_size=8).digest(), "big", signed=True)


class Lock:
    """A lock that is ours while it is open. what: a writer's name (<run>/r<rank>), "catalog" or "compaction"."""

    def __init__(self, con: duckdb.DuckDBPyConnection, lake: Lake, what: str) -> None:
        self._con, self._lake, self.what = con.cursor(), lake, what
        self._key = key_of(lake, what)
        self._busy = threading.Lock()
        low, high = self._key & 0xFFFFFFFF, self._key >> 32 & 0xFFFFFFFF
        self._mine = f"locktype = 'advisory' AND granted AND objsubid = 1 AND {HERE} AND classid = {high}::oid AND objid = {low}::oid"

    def take(self, *, wait: bool = False) -> bool:
        """Take it; False where somebody else has it."""
        with reported(self._lake):
            self._con.execute("BEGIN TRANSACTION")
            who = quoted(f"process {os.getpid()} on {platform.node()}"[:60])
            self._run("SET LOCAL idle_in_transaction_session_timeout = 0")
            self._run(f"SET LOCAL application_name = {who}")
            if wait:
                self._ask(f"SELECT count(*) AS n FROM (SELECT pg_advisory_xact_lock({self._key})) l")
                return True
            if self._ask(f"SELECT pg_try_advisory_xact_lock({self._key}) AS ok"):
                return True
            self._con.execute("ROLLBACK")
            return False

    def holder(self) -> str:
        """Who has it, as far as the server says."""
        with reported(self._lake):
            query = "SELECT max(application_name) AS who FROM pg_locks JOIN pg_stat_activity USING (pid)"
            found = self._ask(f"{query} WHERE {self._mine}")
        return str(found or "")

    def sure(self) -> None:
        """Look whether it is still ours: after a lost connection take it again, or RunBusyError."""
        with self._busy:
            with suppress(duckdb.Error):
                if self._ask(f"SELECT count(*) AS n FROM pg_locks WHERE {self._mine} AND pid = pg_backend_pid()"):
                    return
            with suppress(duckdb.Error):
                self._con.execute("ROLLBACK")
            if not self.take():
                who = self.holder() or "another writer"
                raise RunBusyError(f"{self.what} was taken over by {who} while the server was not reached")

    def beat(self) -> None:
        """Give a sign of life: the server notes when a connection was last asked for something."""
        with self._busy, suppress(duckdb.Error):
            self._ask("SELECT 1 AS n")

    def close(self) -> None:
        """Let go."""
        with suppress(duckdb.Error):
            self._con.execute("ROLLBACK")
        with suppress(duckdb.Error):
            self._con.close()

    def _ask(self, query: str) -> object:
        return self._con.execute(f"FROM postgres_query('gate', {quoted(query)})").fetchone()[0]  # type: ignore[index]

    def _run(self, statement: str) -> None:
        self._con.execute(f"CALL postgres_execute('gate', {quoted(statement)})")


def attach_to_write(con: duckdb.DuckDBPyConnection, lake: Lake) -> str:
    """Attach the catalog as `lake`, made or upgraded by one while others wait for it; the folder of its data."""
    making = Lock(con, lake, "catalog")
    making.take(wait=True)
    try:
        return attach(con, lake, create=True)
    finally:
        making.close()


def held(con: duckdb.DuckDBPyConnection) -> set[int]:
    """The keys of all locks whose holders gave a sign of life lately; of those that another user holds, of all."""
    query = (
        "SELECT classid::bigint AS high, objid::bigint AS low FROM pg_locks LEFT JOIN pg_stat_activity USING (pid)"
        f" WHERE coalesce(state_change > now() - interval '{STILL} s', true) AND locktype = 'advisory' AND granted AND objsubid = 1 AND {HERE}"
    )
    rows = con.execute(f"FROM postgres_query('gate', {quoted(query)})").fetchall()
    return {((high << 32 | low) ^ 1 << 63) - (1 << 63) for high, low in rows}
