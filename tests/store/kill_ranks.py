"""One of two ranks is killed: kill_ranks.py FOLDER POINTS STEPS SWAP; one JSON line a point.

Both ranks of a point are forked processes that record one run, each its part. One dies by kill -9 after a random number
of steps and a random time more; the other goes on for a while and is then stopped in good order.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from run_steps import make_world, ranked_run

from workbench.store import Writer, background

RANKS = 2


def record(folder: Path, rank: int, point: int, run: list, out: int) -> None:
    """Record the parts of a rank; ranks drift apart as real ones do."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    background.FEWEST = background.MOST = 3 if point % 3 == 0 else 1000
    rng = random.Random(1000 * point + rank)
    with Writer(folder, {"name": "ranks"}, make_world().pool, run="a", rank=rank, ranks=RANKS) as writer:
        for pipeline, states, parts, _ in run:
            time.sleep(rng.uniform(0, 0.01))
            writer.acting(pipeline.who())
            writer.append(parts[rank], None if rank else pipeline.reveal(states))
            if rng.random() < 0.5:
                writer.flush()
            os.write(out, f"{writer.committed}\n".encode())
        while True:  # a fast machine is done early: it is killed or stopped all the same
            signal.pause()


def fork(*arguments) -> tuple[int, int]:
    """(process id, the end of the pipe that is read) of a rank."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        record(*arguments, writing)
    except KeyboardInterrupt:
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def acknowledged(text: bytes) -> int:
    """The last step said to be durable."""
    return max((int(line) for line in text.split(b"\n")[:-1]), default=0)


def one(folder: Path, point: int, run: list) -> dict:
    """Kill one rank; what both had acknowledged, and how they ended."""
    rng = random.Random(point)
    folder.mkdir(parents=True)
    dying, after = point % RANKS, 1 + point % (len(run) - 1)
    children = [fork(folder, rank, point, run) for rank in range(RANKS)]
    told = [b"", b""]
    while told[dying].count(b"\n") < after:
        got = os.read(children[dying][1], 4096)
        assert got, f"rank {dying} of point {point} ended by itself"
        told[dying] += got
    time.sleep(rng.uniform(0, 0.02))
    os.kill(children[dying][0], signal.SIGKILL)
    told[1 - dying] += os.read(children[1 - dying][1], 4096)  # it has begun
    time.sleep(rng.uniform(0, 0.06))
    os.kill(children[1 - dying][0], signal.SIGTERM)
    for rank, (child, reading) in enumerate(children):
        while got := os.read(reading, 4096):
            told[rank] += got
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) if rank == dying else status == 0, (point, rank, status)
    return {"killed": dying, "acknowledged": [acknowledged(t) for t in told]}


if __name__ == "__main__":
    where, points, n, swapped = Path(sys.argv[1]), *map(int, sys.argv[2:])
    whole = list(ranked_run(n, swapped, RANKS))
    for number in range(points):
        print(json.dumps(one(where / str(number), number, whole)), flush=True)
