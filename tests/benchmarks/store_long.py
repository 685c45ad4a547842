"""A long run: does a step cost the same at the end, and what does it take to ask a run of five million rollouts?

Recording and asking are processes of their own, so that their peak memory is theirs. Both print JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from tests.benchmarks.figure import Figure
from tests.benchmarks.store import make_beliefs, make_pool, make_step
from workbench.store import Store, Writer

STEPS, GROUPS, GROUP = 10_000, 64, 8
"""About five million rollouts."""

AT = (100, 1000, 10_000)
"""Steps whose cost is told: the median of the hundred around."""

QUESTIONS = {
    "history_of_prompt": ("outcomes_of_prompt", {"prompt": "p00007"}),
    "zero_advantage_by_step": ("zero_advantage_by_step", {}),
    "top_50_by_variance": ("most_varied", {"limit": 50}),
    "ledger_by_prompt": ("ledger_by_prompt", {}),
    "reward_by_step": ("reward_by_step", {}),
}


def long_run() -> Iterator[Figure]:
    """Cost per step over a long run, then questions to it, in fresh processes."""
    with tempfile.TemporaryDirectory() as where:
        yield from _cost(_told("record", where, STEPS, GROUPS, GROUP))
        yield from _answers(_told("ask", where, GROUPS, GROUP))


def _told(*words: object) -> dict:
    command = [sys.executable, "-m", "tests.benchmarks.store_long", *map(str, words)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _cost(told: dict) -> Iterator[Figure]:

    durable, cpu = np.array(told["durable"]), np.array(told["cpu"])
    note = f"{STEPS} steps of {GROUPS * GROUP} rollouts without token columns, beliefs of 1000 prompts at each"
    first = float(np.median(durable[50:150]))
    for step in (s for s in AT if s <= len(durable)):
        value = float(np.median(durable[max(step - 50, 0) : step + 50]))
        peer, ratio = ("", None) if step == AT[0] else ("step 100", value / first)
        yield Figure("long", f"durable_commit_at_step_{step}", 1000 * value, "ms", peer, ratio, note)
    tenth = max(len(durable) // 10, 1)
    for metric, values in (("mean_commit_of_last_decile", durable), ("cpu_per_step_of_last_decile", cpu)):
        early, late = float(np.mean(values[:tenth])), float(np.mean(values[-tenth:]))
        what = (
            f"{note}; CPU of the whole process but for making the step: compaction is in it" if values is cpu else note
        )
        yield Figure("long", metric, 1000 * late, "ms", "first decile", late / early, what)
    yield Figure("long", "slowest_commit", 1000 * durable.max(), "ms", note=f"{note}; the compactor runs beside it")
    yield Figure("long", "writer_peak_memory", told["peak"], "MiB", note=f"{note}; compaction is in it")


def _answers(told: dict) -> Iterator[Figure]:

    note = f"{told.pop('rollouts'):,.0f} rollouts, beliefs recorded; fresh reader, median of 5"
    yield Figure("long", "reader_peak_memory", told.pop("peak"), "MiB", note=f"{note}; after all questions")
    for name, seconds in told.items():
        yield Figure("long", name, 1000 * seconds, "ms", note=note)


def _record(folder: str, steps: int, groups: int, n: int) -> None:
    """Record a run; seconds until each step was durable, CPU seconds of each, and peak memory."""
    pool, rng = make_pool(1000), np.random.default_rng(0)
    durable, cpu = [], []
    with Writer(folder, {}, pool, run="long") as writer:
        spent = time.process_time()
        for number in range(1, steps + 1):
            making = time.thread_time()
            step, believed = make_step(number, pool, rng, groups, n, 0), make_beliefs(pool, rng)
            making = time.thread_time() - making
            began = time.perf_counter()
            writer.append(step, believed)
            writer.flush()
            durable.append(time.perf_counter() - began)
            before, spent = spent, time.process_time()
            cpu.append(spent - before - making)
            if number % 50 == 0:
                print(f"long {number}/{steps} steps", end="\r", file=sys.stderr, flush=True)
    print(json.dumps({"durable": durable, "cpu": cpu, "peak": _peak()}))


def _ask(folder: str, groups: int, n: int) -> None:
    """Open a store and ask; seconds by question, peak memory, and seconds to take in one step more."""
    told: dict[str, float] = {}
    began = time.perf_counter()
    with Store.open(folder) as store:
        told["open"] = time.perf_counter() - began
        told["rollouts"] = store.sql("SELECT count(*) AS n FROM rollouts")["n"][0].as_py()
        for name, (question, params) in QUESTIONS.items():
            told[name] = float(np.median([_seconds(lambda q=question, p=params: store.ask(q, **p)) for _ in range(5)]))
        told["peak"] = _peak()
        pool, rng, taken = make_pool(1000), np.random.default_rng(0), []
        with Writer(folder, {}, pool, run="beside", compacting=False) as writer:
            for number in range(1, 6):
                writer.append(make_step(number, pool, rng, groups, n, 0), make_beliefs(pool, rng))
                writer.flush()
                taken.append(_seconds(store.refresh))
        told["refresh_after_a_step"] = float(np.median(taken))
    print(json.dumps(told))


def _seconds(act) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _peak() -> float:
    """MiB that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    {"record": _record, "ask": _ask}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
