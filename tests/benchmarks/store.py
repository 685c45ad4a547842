"""What recording costs and what asking costs: the figures of `python -m tests.benchmarks store`.

Cases: tiny (a step of the demo), wide (512 rollouts x 512 tokens with token columns), long (10,000 steps of 512
rollouts, then questions to the five million, in `store_long`), search (100,000 completions, in `store_search`),
kill (a writer killed at 200 points, two ranks at 200 more, in `store_kill`), damage (bits flipped, in `store_damage`),
forged (exports that lie, there too). trackio, MLflow and TRL's completions
log are measured beside the store by `python -m tests.benchmarks peers`.

Ours is the whole of recording: the ledger's check, building the tables, writing, fsync, rename. Three peers are plain
Parquet: "same rows" is every table of the step written as a file of its own from ready-made Arrow tables, with and
without fsync; "completions log" is one file of the rollouts' text, rewards and token columns, as trainers keep it,
without plan, fates, ledger and beliefs.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.figure import Figure
from workbench.pipeline.fates import fates
from workbench.store import Writer
from workbench.store.folder.contents import contents
from workbench.types import Advantage, Plan, Pool, Ragged, Rollouts, Step

PEERS = {
    "plain Parquet, same rows": False,
    "plain Parquet, same rows, fsynced": True,
    "plain Parquet, completions log": False,
    "plain Parquet, completions log, fsynced": True,
}
"""Whether the files are made durable, as ours are."""


def bench(case: str | None) -> Iterator[Figure]:
    """Recording and asking, by case; see the module."""
    from tests.benchmarks.store_damage import damaged, forgeries
    from tests.benchmarks.store_kill import killed
    from tests.benchmarks.store_long import long_run
    from tests.benchmarks.store_search import search

    cases: dict[str, Callable[[], Iterator[Figure]]] = {
        "tiny": _tiny,
        "wide": _wide,
        "long": long_run,
        "search": search,
        "kill": killed,
        "damage": damaged,
        "forged": forgeries,
    }
    if case is not None and case not in cases:
        raise ValueError(f"no case {case!r}; there are {', '.join(cases)}")
    for name, figures in cases.items():
        if case in (None, name):
            yield from figures()


def make_pool(n: int) -> Pool:
    """n short prompts."""
    ids = np.array([f"p{i:05d}" for i in range(n)], object)
    text = np.array([f"what is {i} + {i}?" for i in range(n)], object)
    empty = np.full(n, "", object)
    return Pool(ids, text, text, empty, np.where(np.arange(n) % 2, "odd", "even").astype(object))


def make_step(
    number: int,
    pool: Pool,
    rng: np.random.Generator,
    groups: int,
    n: int,
    tokens: int,
    among: np.ndarray | None = None,
) -> Step:
    """A finished step of groups x n rollouts with tokens each; tokens=0 leaves the token columns out.

    among: rows of the pool that may be asked, such as those of one rank; all of them without it."""
    chosen = rng.choice(len(pool) if among is None else among, groups, replace=False)
    plan = Plan(chosen, np.full(groups, n), why={"score": rng.random(groups)}, step=number, folded_through=number - 1)
    rows = Rollouts.of_plan(plan, pool, version=number - 1)
    r = len(rows)
    correct = (rng.random(r) < 0.1 * (chosen % 10)[rows.ask]).astype(float)
    rows = rows.with_(
        text=np.array([f"the answer is {i}" for i in range(r)], object), correct=correct, reward=0.7 * correct + 0.1,
        length=np.full(r, max(tokens, 8)), finish=np.full(r, "stop", object), group=rows.ask,
        rewards={"format": np.full(r, 0.1), "exactness": 0.7 * correct},
    )  # fmt: skip
    if tokens:
        offsets = np.arange(r + 1, dtype=np.int64) * tokens
        rows = rows.with_(
            tokens=Ragged(rng.integers(0, 32000, r * tokens).astype(np.int32), offsets),
            logp=Ragged(-rng.random(r * tokens, np.float32), offsets),
            entropy=Ragged(rng.random(r * tokens, np.float32), offsets),
        )
    mean = (np.bincount(rows.group, rows.reward) / n)[rows.group]
    start = Advantage.start(rows)
    advantage = Advantage(rows.reward - mean, start.keep, start.weight, mean, start.reason)
    seconds = {"generate": 1.0, "update": 0.5}
    return Step(number, chosen, plan, rows, advantage, *fates(rows, advantage), {"loss": 0.1}, seconds)


def make_beliefs(pool: Pool, rng: np.random.Generator) -> dict[str, dict[str, np.ndarray]]:
    """Beliefs of one method, all of which moved."""
    mean = rng.random(len(pool))
    return {"mopps": {"mean": mean, "low": mean, "high": mean}}


def _tiny() -> Iterator[Figure]:
    yield from _recording("tiny", groups=16, n=8, tokens=8, steps=40)


def _wide() -> Iterator[Figure]:
    yield from _recording("wide", groups=64, n=8, tokens=512, steps=8)


def _recording(case: str, *, groups: int, n: int, tokens: int, steps: int) -> Iterator[Figure]:
    """Hand-over, durable commit, and cost per row beside plain Parquet."""

    pool, rng = make_pool(1000), np.random.default_rng(0)
    made = [make_step(s, pool, rng, groups, n, tokens) for s in range(1, steps + 1)]
    beliefs = [make_beliefs(pool, rng) for _ in made]
    handed, durable, spent = [], [], []
    taken: dict[str, list[tuple[float, float]]] = {peer: [] for peer in PEERS}
    note = f"{groups * n} rollouts x {tokens} tokens, beliefs of {len(pool)} prompts, median of {steps} steps"
    note += f", load average {os.getloadavg()[0]:.1f}"
    with tempfile.TemporaryDirectory() as where:
        with Writer(where, {}, pool, run="a", compacting=False) as writer:
            for step, believed in zip(made, beliefs, strict=True):
                began, cpu = time.perf_counter(), time.process_time()
                writer.append(step, believed)
                handed.append(time.perf_counter() - began)
                writer.flush()
                durable.append(time.perf_counter() - began)
                spent.append(time.process_time() - cpu)
                commit = max(p for p in Path(where).glob("commits/a/r0/*") if p.name.isdigit())
                for peer, seconds in _plain_parquet(Path(where), _tables(commit), completions_log(step, pool)):
                    taken[peer].append(seconds)
        size = sum(p.stat().st_size for p in Path(where).rglob("*") if p.is_file()) / (steps * groups * n)
    ours, per_row = float(np.median(durable)), 1e6 / (groups * n)
    yield Figure(case, "hand_over", 1000 * float(np.median(handed)), "ms", note=note)
    yield Figure(case, "durable_commit", 1000 * ours, "ms", note=note)
    yield Figure(case, "share_of_a_5_s_step", 100 * ours / 5, "%", note=f"{note}; all of it, most in the background")
    for peer, found in taken.items():
        wall, cpu = np.median(found, axis=0)
        mine = float(np.median(spent))
        yield Figure(case, "cost_per_row", ours * per_row, "us", peer, ours / float(wall), note)
        yield Figure(case, "cpu_per_row", mine * per_row, "us", peer, mine / float(cpu), f"{note}; CPU of all threads")
    yield Figure(case, "bytes_per_rollout", size, "B", note=f"{note}, before compaction")


def _tables(commit: Path) -> dict[str, pa.Table]:
    """The tables of a commit, as Arrow."""
    found = contents([commit])
    return found.rows | {t: pq.read_table(paths) for t, paths in found.files.items()}


def _plain_parquet(
    where: Path, tables: dict[str, pa.Table], log: pa.Table
) -> Iterator[tuple[str, tuple[float, float]]]:
    """(peer, (wall seconds, CPU seconds)) to write the rows of a step as plain Parquet files."""
    for (peer, durably), rows in zip(PEERS.items(), (tables, tables, {"log": log}, {"log": log}), strict=True):
        paths = [where / f"{name}.parquet" for name in rows]
        began, cpu = time.perf_counter(), time.process_time()
        for path in paths:
            pq.write_table(rows[path.stem], path)
        for path in paths if durably else ():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        yield peer, (time.perf_counter() - began, time.process_time() - cpu)
        for path in paths:
            path.unlink()


def completions_log(step: Step, pool: Pool) -> pa.Table:
    """What trainers keep of a step: one row a rollout with text, rewards, advantage and token columns."""
    r = step.rollouts
    columns = {
        "step": r.step, "id": r.id, "prompt": pool.text[r.prompt], "text": r.text, "reward": r.reward,
        "advantage": step.advantage.value, "length": r.length,
    }  # fmt: skip
    columns |= {name: pa.array(v) for name, v in r.rewards.items()}
    for name in ("tokens", "logp", "entropy"):
        ragged = getattr(r, name)
        if ragged is not None:
            columns[name] = pa.ListArray.from_arrays(pa.array(ragged.offsets, pa.int32()), pa.array(ragged.values))
    return pa.table(columns)
