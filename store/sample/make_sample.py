"""The sample store: a small real run of each kind, shipped with the tree, so that nothing has to be run to look at one.

`python store/sample/make_sample.py FOLDER` records it anew: the bundled `tiny` model, 128 prompts of the default tasks, four pipelines.
It is recorded, exported without what was said of the machine, and read in again, which leaves one compacted store.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.runs.experiment import Experiment

TELLING = ("host", "process", "platform")
"""What the record says of the machine and the sample does not."""


def experiments() -> list[tuple[Experiment, int, str]]:
    """What is recorded, oldest first: an experiment, the step after which its pipeline is swapped (0: never), for what.

    The first two differ in the pipeline alone and may be compared."""
    from workbench.runs.experiment import Experiment
    from workbench.types import Budget

    base = Experiment(
        model="tiny",
        budget=Budget(prompts=8, rollouts=64),
        steps=48,
        eval_every=8,
        checkpoint_every=0,
        tokens="sample",
        task_options={"size": 128},
        world={"threads": 2},
    )
    short = base.with_(steps=10, eval_every=10)
    return [
        (base.with_(name="uniform", pipeline="grpo"), 0, ""),
        (base.with_(name="mopps-then-vade", pipeline="grpo + mopps"), 28, "grpo + vade"),
        (short.with_(name="tree", pipeline="grpo + branchgrpo(forks=2, width=2, every=2)"), 0, ""),
        (short.with_(name="pruned", pipeline="grpo + arrol(l_detect=2, warmup=3)"), 0, ""),
    ]


def make(folder: str | Path, tell: Callable[[str], None] = lambda text: None) -> Path:
    """Record the sample store into a new folder; returns it. About a minute on two cores."""
    from workbench.runs.run import Run
    from workbench.store import Store, compact
    from workbench.store.care.export import export, import_

    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; make the sample in a new folder")
    with tempfile.TemporaryDirectory() as scratch:
        recorded, taken = Path(scratch) / "recorded", Path(scratch) / "export"
        for experiment, swap_after, then in experiments():
            with Run(experiment.with_(store=str(recorded)), on_status=tell) as run:
                while not run.done:
                    if swap_after and run.n_steps == swap_after:
                        run.swap(then)
                    tell(repr(run.step()))
        with Store.open(recorded, live=False) as store:
            export(store, taken)
        _rewrite(taken / "attempts.parquet", "machine", lambda m: {k: v for k, v in m.items() if k not in TELLING})
        _rewrite(taken / "runs.parquet", "experiment", lambda e: {**e, "store": "store/sample"})
        _rename(taken)
        import_(taken, folder)
    compact(folder, threads=2)
    compact(folder, threads=2)  # what two generations hold, the second one removes
    _small_blocks(folder)
    for left in ("compact.lock", "commits"):
        path = folder / left
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return folder


def _rewrite(path: Path, column: str, change: Callable[[dict], Mapping]) -> None:
    """Change the JSON objects of one column of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    at = table.schema.get_field_index(column)
    texts = [json.dumps(change(json.loads(text))) for text in table.column(column).to_pylist()]
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(texts, pa.string())), path)


def _rename(export: Path) -> None:
    """Runs are called sample-<name>, today and whenever the sample is made again."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from workbench.store.care.export import MANIFEST

    runs = pq.read_table(export / "runs.parquet")
    name = {run: f"sample-{name}" for run, name in zip(*(runs[c].to_pylist() for c in ("run", "name")), strict=True)}
    for path in export.glob("*.parquet"):
        table = pq.read_table(path)
        column = table["run"]
        for old, new in name.items():
            column = pc.if_else(pc.equal(column, old), new, column)
        pq.write_table(table.set_column(table.schema.get_field_index("run"), table.schema.field("run"), column), path)
    manifest = export / MANIFEST
    told = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**told, "runs": [name[run] for run in told["runs"]]}))


def _small_blocks(folder: Path) -> None:
    """Copy the base into blocks of 16 kB instead of 256 kB: half the file, for tables of a few rows."""
    import duckdb

    from workbench.store.folder.compaction import STORAGE_VERSION
    from workbench.store.folder.files import read_current

    base = folder / read_current(folder).base
    whole = base.with_suffix(".tmp")
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{base}' AS whole (READ_ONLY)")
        con.execute(f"ATTACH '{whole}' AS small (BLOCK_SIZE 16384, STORAGE_VERSION '{STORAGE_VERSION}')")
        con.execute("COPY FROM DATABASE whole TO small; CHECKPOINT small")
    whole.replace(base)


if __name__ == "__main__":
    print(f"made {make(sys.argv[1], tell=print)}; `workbench dashboard {sys.argv[1]}` shows it")
