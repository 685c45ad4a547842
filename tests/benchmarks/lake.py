"""What a shared catalog costs: `python -m tests.benchmarks lake`, beside a folder on the same disk and in the same run.

A PostgreSQL of its own in a temporary folder on loopback, with its defaults (fsync on). Steps of 64 prompts x 8 rollouts
with token columns; each is flushed and then read by a reader that is open all the while.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.benchmarks.figure import Figure
from tests.benchmarks.store import make_pool, make_step
from workbench.store import Store, Writer, compact

STEPS = 40
PROMPTS, ROLLOUTS, TOKENS = 64, 8, 128


def bench(case: str | None) -> Iterator[Figure]:
    """Commit, refresh and opening times of both kinds of store, medians over the steps; no figures without PostgreSQL."""
    if not _program("initdb"):
        print("lake: PostgreSQL is not installed here (Debian: apt-get install postgresql)")
        return
    with tempfile.TemporaryDirectory() as place, postgres() as conninfo:
        folder = _measured(f"{place}/folder")
        shared = _measured(f"ducklake:postgres:{conninfo}?data={place}/data")
    note = f"{STEPS} steps of {PROMPTS} x {ROLLOUTS} rollouts x {TOKENS} tokens; load {os.getloadavg()[0]:.1f}"
    for metric, value in shared.items():
        yield Figure("shared", metric, value, "ms", "folder", value / max(folder[metric], 1e-9), note)


def _measured(url: str) -> dict[str, float]:
    draws = np.random.default_rng(0)
    pool = make_pool(2000)
    commits, refreshes, idle = [], [], []
    with Writer(url, {"name": "bench"}, pool, run="bench", compacting=False) as writer, Store.open(url) as store:
        for number in range(1, STEPS + 1):
            writer.append(make_step(number, pool, draws, PROMPTS, ROLLOUTS, TOKENS))
            commits.append(_ms(writer.flush))
            refreshes.append(_ms(store.refresh))
            idle.append(_ms(store.refresh))
    found = {"commit_p50": np.median(commits), "commit_max": max(commits), "refresh_p50": np.median(refreshes)}
    found |= {"refresh_max": max(refreshes), "refresh_nothing_new_p50": np.median(idle)}
    found["open"] = _ms(lambda: Store.open(url).close())
    found["compact"] = _ms(lambda: compact(url))
    found["open_compacted"] = _ms(lambda: Store.open(url).close())
    return {name: float(value) for name, value in found.items()}


def _ms(call) -> float:
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


@contextmanager
def postgres() -> Iterator[str]:
    """The conninfo of a server that lives as long as the block."""
    folder = Path(tempfile.mkdtemp(prefix="workbench-postgres-"))
    user: dict[str, object] = {"cwd": folder}
    if os.geteuid() == 0:  # PostgreSQL refuses root
        known = {somebody.pw_name: somebody for somebody in pwd.getpwall()}
        somebody = known.get("postgres") or known["nobody"]
        os.chown(folder, somebody.pw_uid, somebody.pw_gid)
        user |= {"user": somebody.pw_uid, "group": somebody.pw_gid, "extra_groups": []}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **user}
    data = str(folder / "data")
    try:
        subprocess.run([_program("initdb"), "-D", data, "-A", "trust", "-U", "workbench"], check=True, **quiet)  # type: ignore[call-overload]
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={port}", "-c", "unix_socket_directories="]
        server = subprocess.Popen([_program("postgres"), "-D", data, *settings], **quiet)  # type: ignore[call-overload]
        try:
            _wait_for(port)
            yield f"host=127.0.0.1 port={port} user=workbench dbname=postgres"
        finally:
            server.send_signal(2)  # SIGINT: fast shutdown
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int) -> None:
    ready = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    for _ in range(300):
        if subprocess.run(ready).returncode == 0:
            return
        time.sleep(0.1)
    raise TimeoutError("PostgreSQL did not start")


def _program(name: str) -> str:
    """A program of PostgreSQL: on the path, or where Debian puts it; "" where it is not installed."""
    return shutil.which(name) or next(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), "")
