"""The same rollouts written by what people log them with today: the figures of `python -m tests.benchmarks peers`.

Cases: text (512 rollouts a step, completions of 300 characters), tokens (512 rollouts x 512 tokens with ids,
log-probabilities and entropies). The clock runs from the first step handed over until the recorder says that all of
them are written, and each peer is used by its fastest documented way for tables, and for rows where it has one:

- ours: `Writer.append` of every step, then `close`; durable (fsynced), with the ledger, plans and fates beside the rows
- trackio: `trackio.log({"rollouts": trackio.Table(...)})` a step, then `finish`; local, without monitors. A table is one
  JSON cell of SQLite; rows that can be told apart there are a `trackio.log` each, the other way measured
- MLflow: `mlflow.log_table`, one file a step, as .json and as .parquet; a local SQLite store. (Appending to one file,
  its other documented way, reads it back each time.) Rows that a query can reach are metrics, by `log_batch`: reward
  and advantage only, since metrics hold numbers
- TRL: `GRPOTrainer.log` with `log_completions`, which writes a Parquet file a logged step; its own code runs, on a
  trainer without a model. It has no token columns and is left out of that case.
- pandas: `DataFrame.to_parquet`, a file a step, with the token columns

Peers that are not installed are named and left out: `pip install "rollout-workbench[peers]"`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import logging
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from tests.benchmarks.figure import Figure
from tests.benchmarks.store import make_pool, make_step
from tests.benchmarks.store_search import with_text
from workbench.store import Writer
from workbench.store.folder.files import bytes_in
from workbench.types import Pool, Step

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import ActiveRun


Recorder = Callable[[Path, Pool, Sequence[Step]], float]
"""Seconds to write the steps of a pool into an empty folder."""

CASES = {"text": (0, 20), "tokens": (512, 4)}
"""Case -> (tokens of a rollout, steps)."""

GROUPS, GROUP, REPEATS = 64, 8, 3


def bench(case: str | None) -> Iterator[Figure]:
    """Microseconds a rollout, ours against each peer in turn; see the module."""

    if case is not None and case not in CASES:
        raise ValueError(f"no case {case!r}; there are {', '.join(CASES)}")
    for name in CASES if case is None else [case]:
        tokens, steps = CASES[name]
        pool, made = written(tokens, steps)
        recorders = {"ours": _ours} | there(name)
        seconds, size = _measure(recorders, pool, made)
        rows = steps * GROUPS * GROUP
        ours = float(np.median(seconds.pop("ours")))
        note = f"{steps} steps of {GROUPS * GROUP} rollouts, median of {REPEATS}; load {os.getloadavg()[0]:.1f}"
        for peer, taken in seconds.items():
            theirs = float(np.median(taken))
            told = f"{note}; {peer} takes {1e6 * theirs / rows:.1f} us and {size[peer] / rows:.0f} bytes a rollout"
            yield Figure(name, "cost_per_row", 1e6 * ours / rows, "us", peer, ours / theirs, told)
        yield Figure(name, "bytes_per_rollout", size["ours"] / rows, "B", note=note)


def there(case: str) -> dict[str, Recorder]:
    """The recorders whose package is installed, by name with version; says which are not."""
    ways: list[tuple[str, str, Recorder]] = [
        ("trackio", "Table", _trackio),
        ("mlflow", "log_table .json", _mlflow("json")),
        ("mlflow", "log_table .parquet", _mlflow("parquet")),
        ("pandas", "to_parquet", _pandas),
    ]
    if case == "text":
        ways += [
            ("trackio", "log of each rollout", _trackio_rows),
            ("mlflow", "log_batch of reward and advantage", _mlflow_numbers),
            ("trl", "GRPOTrainer.log", _trl),
        ]
    missing = dict.fromkeys(p for p, _, _ in ways if importlib.util.find_spec(p) is None)
    for package in missing:
        print(f'{case}: {package} is not installed and was left out; pip install "rollout-workbench[peers]"')
    return {f"{p} {importlib.metadata.version(p)}, {way}": r for p, way, r in ways if p not in missing}


def written(tokens: int, steps: int) -> tuple[Pool, list[Step]]:
    """A pool and the steps that all recorders write, with completions of 300 characters."""
    pool, rng = make_pool(1000), np.random.default_rng(0)
    made = [with_text(make_step(s, pool, rng, GROUPS, GROUP, tokens), rng) for s in range(1, steps + 1)]
    return pool, made


def frame(step: Step, pool: Pool) -> pd.DataFrame:
    """The rows of a step as peers take them: prompt, completion, reward parts, reward, advantage, token columns."""
    import pandas as pd

    r = step.rollouts
    columns = {"step": r.step, "prompt": pool.text[r.prompt], "completion": r.text, **r.rewards, "reward": r.reward,
               "advantage": step.advantage.value}  # fmt: skip
    for name in ("tokens", "logp", "entropy"):
        if (ragged := getattr(r, name)) is not None:
            columns[name] = [v.tolist() for v in ragged.rows()]
    return pd.DataFrame(columns)


def _measure(
    recorders: dict[str, Recorder], pool: Pool, made: list[Step]
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds of each repeat and bytes on disk, by recorder; one after the other, so that all meet the same load."""
    seconds: dict[str, list[float]] = defaultdict(list)
    size = {}
    with tempfile.TemporaryDirectory() as where:
        os.environ["TRACKIO_DIR"] = f"{where}/trackio"  # read when trackio is imported
        for repeat in range(REPEATS):
            for place, (name, record) in enumerate(recorders.items()):
                folder = Path(where) / f"{repeat}-{place}"
                folder.mkdir()
                before = bytes_in(Path(where))
                with contextlib.redirect_stdout(io.StringIO()):
                    seconds[name].append(record(folder, pool, made))
                size[name] = bytes_in(Path(where)) - before
    return dict(seconds), size


def _ours(folder: Path, pool: Pool, made: Sequence[Step]) -> float:
    writer = Writer(folder, {}, pool)
    began = time.perf_counter()
    for step in made:
        writer.append(step)
    writer.close()
    return time.perf_counter() - began


def _pandas(folder: Path, pool: Pool, made: Sequence[Step]) -> float:
    began = time.perf_counter()
    for step in made:
        frame(step, pool).to_parquet(folder / f"completions_{step.step:05d}.parquet")
    return time.perf_counter() - began


def _trackio(folder: Path, pool: Pool, made: Sequence[Step]) -> float:
    import trackio

    _trackio_begins(folder)
    began = time.perf_counter()
    for step in made:
        trackio.log({"rollouts": trackio.Table(dataframe=frame(step, pool))}, step=step.step)
    trackio.finish()
    return time.perf_counter() - began


def _trackio_rows(folder: Path, pool: Pool, made: Sequence[Step]) -> float:
    import trackio

    _trackio_begins(folder)
    began = time.perf_counter()
    for step in made:
        for row in frame(step, pool).drop(columns="step").to_dict("records"):  # trackio's own column
            trackio.log(row, step=step.step)
    trackio.finish()
    return time.perf_counter() - began


def _trackio_begins(folder: Path) -> None:
    import trackio

    trackio.init(project="bench", name=folder.name, embed=False, auto_log_gpu=False, auto_log_cpu=False)


def _mlflow(kind: str) -> Recorder:
    def record(folder: Path, pool: Pool, made: Sequence[Step]) -> float:
        import mlflow

        with _mlflow_run(folder):
            began = time.perf_counter()
            for step in made:
                mlflow.log_table(frame(step, pool), f"rollouts_{step.step:05d}.{kind}")
            return time.perf_counter() - began

    return record


def _mlflow_numbers(folder: Path, pool: Pool, made: Sequence[Step]) -> float:
    import mlflow
    from mlflow.entities import Metric

    with _mlflow_run(folder) as run:
        client, began = mlflow.MlflowClient(), time.perf_counter()
        for step in made:
            columns = {"reward": step.rollouts.reward.tolist(), "advantage": step.advantage.value.tolist()}
            for name, values in columns.items():  # a batch holds at most 1000; a rollout's place stands for its time
                client.log_batch(run.info.run_id, [Metric(name, v, i, step.step) for i, v in enumerate(values)])
        return time.perf_counter() - began


@contextlib.contextmanager
def _mlflow_run(folder: Path) -> Iterator[ActiveRun]:
    import mlflow

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    place = (folder / "artifacts").as_uri()
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("bench", artifact_location=place))
    with mlflow.start_run() as run:
        yield run


def _trl(folder: Path, pool: Pool, made: Sequence[Step]) -> float:
    """TRL's own logging of completions, without the trainer's model and without the table it prints."""
    from trl import GRPOTrainer

    class Silent(GRPOTrainer.__mro__[1]):  # stands for the rest of Trainer.log, which is not about completions
        def log(self, logs, start_time=None):
            pass

    class Logging(GRPOTrainer, Silent):
        pass

    (folder / "completions").mkdir()
    trainer = object.__new__(Logging)
    trainer.model, trainer._metrics = SimpleNamespace(training=True), {"train": {}}
    trainer.accelerator, trainer.log_completions = SimpleNamespace(is_main_process=True), True
    trainer.args, trainer.num_completions_to_print = SimpleNamespace(report_to=[], output_dir=str(folder)), 0
    trainer.state = SimpleNamespace(global_step=0)
    began = time.perf_counter()
    for step in made:
        rows = step.rollouts
        trainer.state.global_step = step.step
        trainer._logs = {
            "prompt": pool.text[rows.prompt].tolist(), "completion": rows.text.tolist(), "images": [],
            "rewards": {name: value.tolist() for name, value in rows.rewards.items()},
            "extra": {"reward": rows.reward.tolist()}, "advantages": step.advantage.value.tolist(),
        }  # fmt: skip
        trainer.log({})
    return time.perf_counter() - began
