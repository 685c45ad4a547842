"""A PostgreSQL of the tests' own: in a temporary folder, on loopback, gone with the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.timing import patience, until


def program(name: str) -> str | None:
    """A program of PostgreSQL: on the path, or where Debian puts it; the newest."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: float(p.parent.parent.name))
    return shutil.which(name) or (str(found[-1]) if found else None)


def missing() -> str | None:
    """Why there can be no server here; None where there can."""
    lacking = [name for name in ("initdb", "postgres", "psql") if program(name) is None]
    if lacking:
        return f"no PostgreSQL on this machine ({', '.join(lacking)} not found): install Debian's `postgresql`"
    if os.geteuid() == 0 and _somebody() is None:
        return "PostgreSQL refuses to run as root, and there is no user postgres or nobody"
    return None


def _somebody() -> pwd.struct_passwd | None:
    known = {user.pw_name: user for user in pwd.getpwall()}
    return known.get("postgres") or known.get("nobody")


class Server:
    """Starts when made. Trusts whoever reaches its port, which only this machine does."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="workbench-postgres-"))
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:
            user = _somebody()
            assert user is not None
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": self.folder}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._call(program("initdb"), "-D", self.folder / "data", "-A", "trust", "-U", "workbench", "--no-sync")
        self.start()

    def _call(self, *command: object) -> None:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **self._as)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Run, until it answers."""
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(program("postgres")), "-D", str(self.folder / "data"), *options]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdout=quiet, stderr=quiet, **self._as)  # type: ignore[call-overload]
        asked = [*self._psql("postgres"), "SELECT 1"]
        until(lambda: not subprocess.run(asked, capture_output=True).returncode, every=0.1)

    def stop(self) -> None:
        """Cut all connections and end."""
        self._process.send_signal(2)  # SIGINT: fast shutdown
        self._process.wait(patience(30))

    def remove(self) -> None:
        """End, and leave nothing."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _psql(self, database: str) -> list[str]:
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "workbench", "-d", database]
        return [str(program("psql")), *where, "-qtAc"]

    def sql(self, query: str, database: str = "postgres") -> str:
        """What psql prints."""
        done = subprocess.run([*self._psql(database), query], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def conninfo(self, database: str) -> str:
        """How to reach a database."""
        return f"host=127.0.0.1 port={self.port} user=workbench dbname={database}"
