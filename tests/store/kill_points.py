"""Writers that are killed: kill_points.py FOLDER POINTS STEPS SWAP; one JSON line a point, with the steps acknowledged.

Each point is a forked process, so that the imports are paid once. It records a run and prints every step once it is
durable; the parent kills it after a random number of those and a random time more.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from run_steps import live_run, make_world

from workbench.store import Writer, background


def record(folder: Path, steps: int, swap: int, patient: bool, out: int) -> None:
    """Record a run; patient writers wait for the disk after every step."""
    pool = make_world().pool
    with Writer(folder, {"name": "killed"}, pool, run="a") as writer:
        for pipeline, states, step in live_run(steps, swap):
            if step.step == swap:
                writer.command("swap", {"to": pipeline.text})
            writer.acting(pipeline.who())
            writer.append(step, pipeline.reveal({m.name: states[m.name] for m in pipeline.methods}))
            if patient:
                writer.flush()
            os.write(out, f"{writer.committed}\n".encode())
        signal.pause()  # a fast machine is done early: it is killed all the same


def one(folder: Path, steps: int, swap: int, point: int) -> dict:
    """Kill one writer; what it had acknowledged by then."""
    rng = random.Random(point)
    patient, after, more = point % 2 == 0, point % (steps - 1), rng.uniform(0, 0.08)
    folder.mkdir(parents=True)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            background.FEWEST = background.MOST = 3 if point % 4 < 2 else 1000
            os.close(reading)
            record(folder, steps, swap, patient, writing)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    text = b""
    while text.count(b"\n") < after and (got := os.read(reading, 4096)):
        text += got
    time.sleep(more)
    os.kill(child, signal.SIGKILL)
    while got := os.read(reading, 4096):
        text += got
    os.close(reading)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0
    told = [int(line) for line in text.split(b"\n")[:-1]]
    return {"point": point, "acknowledged": max(told, default=0), "killed": os.WIFSIGNALED(status)}


if __name__ == "__main__":
    where, points, n, swapped = Path(sys.argv[1]), *map(int, sys.argv[2:])
    for number in range(points):
        print(json.dumps(one(where / str(number), n, swapped, number)), flush=True)
