"""What recording costs and what asking costs: the figures of `workbench bench store`.

Cases: tiny (a step of the demo), wide (512 rollouts x 512 tokens with token columns), long (2,000 steps of 512 rollouts,
then questions to the million), kill (a writer killed at 200 points). Peers write the same rows in the same run; those
that are not installed are named and left out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.pipeline import fates
from workbench.store import Store, Writer
from workbench.types import Advantage, Plan, Pool, Ragged, Rollouts, Step

if TYPE_CHECKING:
    from workbench.bench import Figure

STEPS, GROUPS, GROUP = 2000, 64, 8
"""Of the long case: about a million rollouts."""

KILLS = 200
QUESTIONS = {
    "history_of_prompt": ("outcomes_of_prompt", {"prompt": "p00007"}),
    "zero_advantage_by_step": ("zero_advantage_by_step", {}),
    "top_50_by_variance": ("most_varied", {"limit": 50}),
    "ledger_by_prompt": ("ledger_by_prompt", {}),
    "reward_by_step": ("reward_by_step", {}),
}


def bench_store(case: str | None) -> Iterator[Figure]:
    """Recording and asking, by case; see the module."""
    cases: dict[str, Callable[[], Iterator[Figure]]] = {"tiny": _tiny, "wide": _wide, "long": _long, "kill": _kill}
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


def make_step(number: int, pool: Pool, rng: np.random.Generator, groups: int, n: int, tokens: int) -> Step:
    """A finished step of groups x n rollouts with tokens each; tokens=0 leaves the token columns out."""
    chosen = rng.choice(len(pool), groups, replace=False)
    plan = Plan(chosen, np.full(groups, n), why={"score": rng.random(groups)}, step=number, folded_through=number - 1)
    rows = Rollouts.asked(plan, pool, version=number - 1)
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


def _beliefs(pool: Pool, rng: np.random.Generator) -> dict[str, dict[str, np.ndarray]]:
    mean = rng.random(len(pool))
    return {"mopps": {"mean": mean, "low": mean, "high": mean}}


def _tiny() -> Iterator[Figure]:
    yield from _recording("tiny", groups=16, n=8, tokens=8, steps=40)


def _wide() -> Iterator[Figure]:
    yield from _recording("wide", groups=64, n=8, tokens=512, steps=8)


def _recording(case: str, *, groups: int, n: int, tokens: int, steps: int) -> Iterator[Figure]:
    """Hand-over, durable commit, and rows per second against plain Parquet."""
    from workbench.bench import Figure

    pool, rng = make_pool(1000), np.random.default_rng(0)
    made = [make_step(s, pool, rng, groups, n, tokens) for s in range(1, steps + 1)]
    beliefs = [_beliefs(pool, rng) for _ in made]
    handed, durable, plain = [], [], []
    note = f"{groups * n} rollouts x {tokens} tokens, beliefs of {len(pool)} prompts, median of {steps} steps"
    with tempfile.TemporaryDirectory() as where:
        with Writer(where, {}, pool, compacting=False) as writer:
            for step, believed in zip(made, beliefs, strict=True):
                began = time.perf_counter()
                writer.append(step, believed)
                handed.append(time.perf_counter() - began)
                writer.flush()
                durable.append(time.perf_counter() - began)
                plain.append(_plain_parquet(Path(where), step, pool))
        size = sum(p.stat().st_size for p in Path(where).rglob("*") if p.is_file()) / (steps * groups * n)
    ours, peer = float(np.median(durable)), float(np.median(plain))
    yield Figure(case, "hand_over", 1000 * float(np.median(handed)), "ms", note=note)
    yield Figure(case, "durable_commit", 1000 * ours, "ms", note=note)
    yield Figure(case, "cost_per_row", 1e6 * ours / (groups * n), "us", "plain Parquet, fsynced", ours / peer, note)
    yield Figure(case, "bytes_per_rollout", size, "B", note=note)
    for name, record in (("trackio", _trackio), ("mlflow", _mlflow)):
        if importlib.util.find_spec(name) is None:
            print(f"{case}: {name} is not installed and was left out")
        else:
            taken = record(made[0])
            yield Figure(case, "cost_per_row", 1e6 * ours / (groups * n), "us", name, ours / taken, note)


def _plain_parquet(where: Path, step: Step, pool: Pool) -> float:
    """Seconds to write the rollouts of a step as one durable Parquet file, as trainers log completions."""
    r = step.rollouts
    began = time.perf_counter()
    columns = {
        "step": r.step, "id": r.id, "prompt": pool.text[r.prompt], "text": r.text, "reward": r.reward,
        "advantage": step.advantage.value, "length": r.length,
    }  # fmt: skip
    columns |= {name: pa.array(v) for name, v in r.rewards.items()}
    for name in ("tokens", "logp", "entropy"):
        ragged = getattr(r, name)
        if ragged is not None:
            columns[name] = pa.ListArray.from_arrays(pa.array(ragged.offsets, pa.int32()), pa.array(ragged.values))
    path = where / f"plain-{step.step}.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd")
    with path.open("rb") as file:
        os.fsync(file.fileno())
    taken = time.perf_counter() - began
    path.unlink()
    return taken


def _trackio(step: Step) -> float:
    """Seconds to log the rollouts of a step as a table."""
    import pandas as pd
    import trackio

    with tempfile.TemporaryDirectory() as where:
        os.environ["TRACKIO_DIR"] = where
        trackio.init(project="bench", name="bench")
        began = time.perf_counter()
        trackio.log({"rollouts": trackio.Table(dataframe=pd.DataFrame(_rows(step)))}, step=step.step)
        trackio.finish()
        return time.perf_counter() - began


def _mlflow(step: Step) -> float:
    """Seconds to log the rollouts of a step as a table."""
    import mlflow

    with tempfile.TemporaryDirectory() as where:
        mlflow.set_tracking_uri(f"sqlite:///{where}/mlflow.db")
        with mlflow.start_run():
            began = time.perf_counter()
            mlflow.log_table(_rows(step), "rollouts.json")
            return time.perf_counter() - began


def _rows(step: Step) -> dict[str, list]:
    r = step.rollouts
    wide = {
        c: [v.tolist() for v in getattr(r, c).rows()]
        for c in ("tokens", "logp", "entropy")
        if getattr(r, c) is not None
    }
    return {"id": r.id.tolist(), "text": r.text.tolist(), "reward": r.reward.tolist(), **wide}


def _long() -> Iterator[Figure]:
    """Cost per step over a long run, then questions to it, in a fresh process."""
    from workbench.bench import Figure

    pool, rng = make_pool(1000), np.random.default_rng(0)
    durable = []
    note = f"{STEPS} steps of {GROUPS * GROUP} rollouts without token columns"
    with tempfile.TemporaryDirectory() as where:
        with Writer(where, {}, pool, run="long") as writer:
            for number in range(1, STEPS + 1):
                step, believed = make_step(number, pool, rng, GROUPS, GROUP, 0), _beliefs(pool, rng)
                began = time.perf_counter()
                writer.append(step, believed)
                writer.flush()
                durable.append(time.perf_counter() - began)
                if number % 50 == 0:
                    print(f"long {number}/{STEPS} steps", end="\r", file=sys.stderr, flush=True)
        first, last = float(np.median(durable[50:250])), float(np.median(durable[-200:]))
        yield Figure("long", "durable_commit_at_the_end", 1000 * last, "ms", "steps 50 to 250", last / first, note)
        yield Figure("long", "slowest_commit", 1000 * max(durable), "ms", note=f"{note}; the compactor runs beside it")
        command = [sys.executable, "-m", "workbench.bench_store", "ask", where]
        answered = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    note = f"{answered.pop('rollouts'):,.0f} rollouts, beliefs recorded; fresh reader, median of 5"
    yield Figure("long", "reader_peak_memory", answered.pop("peak"), "MiB", note=note)
    for name, seconds in answered.items():
        yield Figure("long", name, 1000 * seconds, "ms", note=note)


def _ask(folder: str) -> None:
    """Open a store, ask, and print seconds by question and the peak memory as JSON."""
    taken: dict[str, float] = {}
    began = time.perf_counter()
    with Store.open(folder) as store:
        taken["open"] = time.perf_counter() - began
        taken["rollouts"] = store.sql("SELECT count(*) AS n FROM rollouts")["n"][0].as_py()
        for name, (question, params) in QUESTIONS.items():
            times = []
            for _ in range(5):
                began = time.perf_counter()
                store.ask(question, **params)
                times.append(time.perf_counter() - began)
            taken[name] = float(np.median(times))
    taken["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(taken))


def _kill() -> Iterator[Figure]:
    """Steps that were reported as durable and are not there after kill -9; there must be none."""
    from workbench.bench import Figure

    with tempfile.TemporaryDirectory() as where:
        command = [sys.executable, "-m", "workbench.bench_store", "kill", where, str(KILLS)]
        told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        lost = torn = 0
        for point, acknowledged in enumerate(told):
            with Store.open(Path(where) / str(point)) as store:
                rows = store.sql(
                    "SELECT s.step, s.n_rollouts = count(r.row) AS whole FROM steps s LEFT JOIN rollouts r USING (step)"
                    " GROUP BY s.step, s.n_rollouts ORDER BY s.step"
                ).to_pylist()
                lost += max(acknowledged - len(rows), 0)
                torn += sum(not r["whole"] for r in rows) + ([r["step"] for r in rows] != list(range(1, len(rows) + 1)))
                torn += store.sql("SELECT count(*) AS n FROM ledger WHERE NOT balanced")["n"][0].as_py()
    note = f"{KILLS} points, {sum(told)} steps acknowledged before them"
    yield Figure("kill", "acknowledged_steps_lost", lost, "steps", note=note)
    yield Figure("kill", "steps_torn", torn, "steps", note=note)


def _killed(folder: Path, points: int) -> None:
    """Fork writers and kill them; prints the steps each had acknowledged as JSON."""
    from workbench.store import compaction

    pool, told = make_pool(50), []
    for point in range(points):
        rng = random.Random(point)
        where = folder / str(point)
        where.mkdir()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            compaction.FEWEST = compaction.MOST = 3 if point % 2 else 1000
            draws = np.random.default_rng(point)
            with Writer(where, {}, pool, run="a") as writer:
                for number in range(1, 10_000):
                    writer.append(make_step(number, pool, draws, 4, 4, 8), _beliefs(pool, draws))
                    os.write(writing, f"{writer.committed}\n".encode())
        os.close(writing)
        text, after = b"", rng.randrange(12)
        while text.count(b"\n") < after and select.select([reading], [], [], 60)[0]:
            text += os.read(reading, 4096)
        time.sleep(rng.uniform(0, 0.08))
        os.kill(child, signal.SIGKILL)
        while got := os.read(reading, 4096):
            text += got
        os.close(reading)
        os.waitpid(child, 0)
        told.append(max((int(line) for line in text.split(b"\n")[:-1]), default=0))
        print(f"kill {point + 1}/{points}", end="\r", file=sys.stderr, flush=True)
    print(json.dumps(told))


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        _ask(sys.argv[2])
    else:
        _killed(Path(sys.argv[2]), int(sys.argv[3]))
