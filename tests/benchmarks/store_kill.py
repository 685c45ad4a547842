"""Writers killed by kill -9, then looked at: the figures of `python -m tests.benchmarks store --case kill`.

Each point is a store of its own, written by one process or by two ranks of one run. They die at a random moment of a
random step, ranks at different ones; every other point compacts all the time. What a writer had reported as durable
before must be there, whole: with two ranks a step is there once both committed it.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.benchmarks.figure import Figure
from tests.benchmarks.store import make_beliefs, make_pool, make_step
from workbench.store import Store, Writer

KILLS = 200
"""Points for one writer, and as many for two ranks."""

WHOLE = """
WITH here AS (SELECT step, rank, count(*) AS n FROM rollouts GROUP BY ALL)
SELECT step, bool_and(n_rollouts = coalesce(n, 0)) AND count(*) = $ranks AS whole
FROM steps LEFT JOIN here USING (step, rank) GROUP BY step ORDER BY step
"""


def killed() -> Iterator[Figure]:
    """Steps that were reported as durable and are not there after kill -9, and steps there in part; both must be 0."""

    for ranks in (1, 2):
        with tempfile.TemporaryDirectory() as where:
            command = [sys.executable, "-m", "tests.benchmarks.store_kill", where, str(KILLS), str(ranks)]
            told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            lost = torn = 0
            for point, acknowledged in enumerate(told):
                gone, broken = _looked_at(Path(where) / str(point), ranks, acknowledged)
                lost, torn = lost + gone, torn + broken
        who = "one writer" if ranks == 1 else f"{ranks} ranks of a run"
        note = f"{who}, {KILLS} points, {sum(told)} steps acknowledged before them"
        yield Figure("kill", "acknowledged_steps_lost", lost, "steps", note=note)
        yield Figure("kill", "steps_torn", torn, "steps", note=note)


def _looked_at(folder: Path, ranks: int, acknowledged: int) -> tuple[int, int]:
    """(acknowledged steps that are gone, steps that are torn, out of row or do not add up) of one store."""
    with Store.open(folder) as store:
        rows = store.sql(WHOLE, {"ranks": ranks}).to_pylist()
        torn = sum(not r["whole"] for r in rows) + ([r["step"] for r in rows] != list(range(1, len(rows) + 1)))
        torn += store.sql("SELECT count(*) AS n FROM ledger WHERE NOT balanced")["n"][0].as_py()
    return max(acknowledged - len(rows), 0), torn


def _kill(folder: Path, points: int, ranks: int) -> None:
    """Fork the writers of each point and kill them; prints the steps all of them had acknowledged as JSON."""
    told = []
    for point in range(points):
        rng = random.Random(point)
        where = folder / str(point)
        where.mkdir()
        children = [_fork(where, point, rank, ranks) for rank in range(ranks)]
        first, after = point % ranks, rng.randrange(12)
        said = [b""] * ranks
        while said[first].count(b"\n") < after and select.select([children[first][1]], [], [], 60)[0]:
            got = os.read(children[first][1], 4096)
            if not got:
                raise RuntimeError(f"rank {first} of point {point} ended by itself")
            said[first] += got
        for rank in (first, *(r for r in range(ranks) if r != first)):
            time.sleep(rng.uniform(0, 0.08))
            os.kill(children[rank][0], signal.SIGKILL)
        for rank, (child, reading) in enumerate(children):
            while got := os.read(reading, 4096):
                said[rank] += got
            os.close(reading)
            os.waitpid(child, 0)
        told.append(min(max((int(line) for line in text.split(b"\n")[:-1]), default=0) for text in said))
        print(f"kill {point + 1}/{points}", end="\r", file=sys.stderr, flush=True)
    print(json.dumps(told))


def _fork(where: Path, point: int, rank: int, ranks: int) -> tuple[int, int]:
    """(process id, the end of a pipe that tells the last durable step after each step) of a writer."""
    from workbench.store import background

    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    background.FEWEST = background.MOST = 3 if point % 2 else 1000
    pool, draws = make_pool(50), np.random.default_rng([point, rank])
    with Writer(where, {}, pool, run="a", rank=rank, ranks=ranks) as writer:
        for number in range(1, 10_000):
            step = make_step(number, pool, draws, 4, 4, 8, among=np.arange(rank, len(pool), ranks))
            writer.append(step, None if rank else make_beliefs(pool, draws))
            os.write(writing, f"{writer.committed}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    _kill(Path(sys.argv[1]), *map(int, sys.argv[2:]))
