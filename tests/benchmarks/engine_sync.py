"""How little changes in a bfloat16 copy after an update, and what sending it costs: `python -m tests.benchmarks engine --case sync`.

Policies learn for some steps as `workbench demo` would; after each update the weights become a patch (`worlds.engines.patches`)
that a receiver applies. Bytes and seconds stand against sending all weights.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator

import numpy as np

from tests.benchmarks.figure import Figure
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.types import Budget

CASES = (("tiny", 1e-4, 12), ("tiny", 1e-5, 12), ("tiny", 1e-6, 12), ("smollm2", 1e-5, 3), ("smollm2", 1e-6, 3))
"""Model, learning rate, steps."""


def sync() -> Iterator[Figure]:
    """Share of elements changed, bytes against dense ones, and seconds of both ends, median over steps."""
    for model, lr, steps in CASES:
        yield from _one(model, lr, steps)


def _one(model: str, lr: float, steps: int) -> Iterator[Figure]:
    from workbench.worlds.engines.patches import Receiver, Sender, from_bytes, to_bytes

    case, shares, sizes, sent, received = f"sync_{model}_{lr:g}", [], [], [], []
    with tempfile.TemporaryDirectory() as store:
        experiment = Experiment(
            model=model, pipeline="grpo", budget=Budget(rollouts=64), steps=steps, eval_every=0, checkpoint_every=0,
            store=store, world={"lr": lr},
        )  # fmt: skip
        with Run(experiment) as run:
            run.begin()
            net = run.world.policy.model  # type: ignore[attr-defined]
            sender, receiver = Sender(), Receiver()
            tied = set(net.all_tied_weights_keys)
            for step in range(steps + 1):
                if step:
                    run.step()
                began = time.perf_counter()
                sender.advance((n, t) for n, t in net.state_dict().items() if n not in tied)
                patch = sender.patch(receiver.version)
                data = to_bytes(patch)
                sent.append(time.perf_counter() - began)
                began = time.perf_counter()
                receiver.apply(from_bytes(data))
                received.append(time.perf_counter() - began)
                if any((receiver.bits[n] != sender.bits[n]).any() for n in sender.bits):
                    raise AssertionError("the receiver's weights are not the sender's")
                shares.append(patch.changed)
                sizes.append(len(data))
    elements = sum(map(len, sender.bits.values()))
    share, size = float(np.median(shares[1:])) / elements, float(np.median(sizes[1:]))
    note = f"lr {lr:g}, {elements} weights, {steps} steps of 64 rollouts, equal bit for bit after each"
    yield Figure(case, "elements_sent", share, "share", note=note)
    yield Figure(case, "bytes", size, "bytes", "dense", size / (2 * elements), f"{note}; dense {2 * elements} bytes")
    yield Figure(case, "seconds_to_make", float(np.median(sent[1:])), "s", note=note)
    yield Figure(case, "seconds_to_apply", float(np.median(received[1:])), "s", note=note)
