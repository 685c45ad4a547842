"""A writer process for the tests: write_steps.py FOLDER RUN STEPS [compacting]; prints each step once it is durable."""

import sys

import numpy as np
from made_steps import made_beliefs, made_pool, made_step

from workbench.store import Writer

if __name__ == "__main__":
    folder, run, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    pool, rng = made_pool(8), np.random.default_rng(0)
    with Writer(folder, {}, pool, run=run) as writer:
        for step in range(writer.step + 1, writer.step + n + 1):
            writer.append(made_step(step, pool, rng), made_beliefs(pool, rng))
            writer.flush()
            print(writer.committed, flush=True)
