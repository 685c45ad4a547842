"""A writer process for the tests: write_steps.py FOLDER RUN STEPS [RANK RANKS]; prints each step once it is durable.

A rank has a share of the pool of its own."""

import sys

import numpy as np
from made_steps import made_beliefs, made_pool, made_step

from workbench.store import Writer

if __name__ == "__main__":
    folder, run, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rank, ranks = (int(a) for a in sys.argv[4:] or (0, 1))
    pool, rng = made_pool(8), np.random.default_rng(rank)
    among = None if ranks == 1 else np.arange(rank, 8, ranks)
    with Writer(folder, {}, pool, run=run, rank=rank, ranks=ranks) as writer:
        for step in range(writer.step + 1, writer.step + n + 1):
            writer.append(made_step(step, pool, rng, among=among), None if rank else made_beliefs(pool, rng))
            writer.flush()
            print(writer.committed, flush=True)
