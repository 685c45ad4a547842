"""The update on several GPUs of one host: `python -m tests.benchmarks loop --case ranks`.

One process a GPU. "parallel": each holds all weights and computes some of the streams; "sharded": weights and optimiser
are divided (see `fsdp`), passes are transformers' own. Run as a script it is one of the processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from tests.benchmarks.figure import Figure
from tests.benchmarks.loop_gpu import GROUP, PROMPT, PROMPTS, SHAPE, _prompts, subject, timed
from workbench.types import Advantage, Ragged
from workbench.worlds.training.policy import Lines, Policy

ROWS = 2 * PROMPTS * GROUP
"""Of a step: six streams of 32,768 tokens, which two processes can share evenly."""

ANSWER = 128


def ranks() -> Iterator[Figure]:
    """Tokens a second of an optimiser step on one GPU and on all; memory of a process."""

    everyone = torch.cuda.device_count()
    alone: dict[str, float] = {}
    for how in ("parallel", "sharded"):
        for n in sorted({1, everyone}):
            found = _measured(how, n)
            rate = found["tokens"] / found["seconds"]
            alone.setdefault(how, rate)
            note = (
                f"{found['note']}; {ROWS} rows of {PROMPT} + {ANSWER} tokens, prompts counted; {rate / alone[how]:.2f}x one "
                f"process; peak {found['peak'] / 2**30:.1f} GiB and {found['held'] / 2**30:.2f} GiB between steps in each"
            )
            yield Figure("ranks", f"update_tokens_per_second_{how}_{n}", rate, "tokens/s", note=note)


def _measured(how: str, n: int) -> dict:
    """What the first of n processes found; RuntimeError where one of them failed."""
    with tempfile.TemporaryDirectory() as folder:
        commands = [
            [sys.executable, "-m", "tests.benchmarks.loop_ranks", how, str(rank), str(n), folder] for rank in range(n)
        ]
        running = [subprocess.Popen(command) for command in commands]
        codes = [one.wait() for one in running]
        if any(codes):
            raise RuntimeError(f"{how} on {n} GPUs: the processes ended with {codes}")
        return json.loads((Path(folder) / "found.json").read_text(encoding="utf-8"))


def _policy(how: str, model) -> Policy:
    from workbench.worlds.training.packing import StreamPolicy

    if how == "parallel":
        return StreamPolicy(model, precision="bfloat16")
    return Policy(model, precision="bfloat16", budget=16_384, shard=True)


def _process(how: str, rank: int, n: int, folder: Path) -> None:
    """One of the processes."""
    import torch.distributed as dist

    from workbench.methods.grpo import Grpo

    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", init_method=f"file://{folder}/meet", rank=rank, world_size=n, device_id=torch.device("cuda", rank)
    )
    it, grpo = subject(), Grpo()
    policy = _policy(how, it.model)
    rng = np.random.default_rng(3)
    tokens = Ragged.of(rng.integers(10, SHAPE["vocab_size"] - 10, (ROWS, ANSWER)), np.int32)
    lines = Lines(_prompts(2 * PROMPTS), np.repeat(np.arange(2 * PROMPTS), GROUP), tokens)
    none = np.zeros(ROWS)
    advantage = Advantage(rng.normal(size=ROWS), np.ones(ROWS, bool), none + 1, none, np.full(ROWS, "", object))

    def update() -> None:
        policy.update(lines, advantage, lambda batch: grpo.loss(None, batch))

    began = time.perf_counter()
    update()
    first = time.perf_counter() - began
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    seconds = timed(update)
    peak = torch.cuda.max_memory_allocated()
    if rank == 0:
        found = {
            "tokens": ROWS * (PROMPT + ANSWER),
            "seconds": seconds,
            "peak": peak,
            "held": held,
            "note": f"{it.note}; first call {first:.1f} s",
        }
        (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


CASES = {"ranks": ranks}

if __name__ == "__main__":
    _process(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
