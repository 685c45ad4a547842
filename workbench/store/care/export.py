"""Export runs as one Parquet file a table, and import them into a store, commit by commit: exact both ways.

What views hide (steps made again) goes with them, so that an imported run is the run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.store.errors import StoreError
from workbench.store.folder import files
from workbench.store.folder.contents import fit
from workbench.store.reader import Store
from workbench.store.records import Progress, silent
from workbench.store.schema import SCHEMA_VERSION, refuse_newer, tables
from workbench.store.urls import only_folder

MANIFEST = "export.json"
CHUNK = 256
"""Commits held in memory at a time."""


def export(
    store: Store, out: str | Path, runs: Collection[str] | None = None, progress: Progress = silent
) -> dict[str, int]:
    """Write runs (default: all) into a new folder as <table>.parquet; returns rows by table."""
    out = Path(out)
    chosen = store.known(runs)
    if out.exists() and any(out.iterdir()):
        raise StoreError(f"{out} is not empty; export into a new folder")
    out.mkdir(parents=True, exist_ok=True)
    spans = list(_spans(store, chosen))
    rows = dict.fromkeys(tables(), 0)
    with ExitStack() as stack:
        made = {
            t: stack.enter_context(pq.ParquetWriter(out / f"{t}.parquet", s, compression="zstd"))
            for t, s in tables().items()
        }
        for i, (run, rank, first) in enumerate(spans):
            progress(i, len(spans), f"blocks of {CHUNK} commits")
            key = {"run": run, "rank": rank, "first": first, "last": first + CHUNK - 1}
            where = "WHERE run = $run AND rank = $rank AND seq BETWEEN $first AND $last"
            for table, schema in tables().items():
                found = fit(store.sql(f"SELECT * FROM {store.source(table)} {where}", key), schema)
                if len(found):
                    made[table].write_table(found)
                    rows[table] += len(found)
    progress(len(spans), len(spans), f"blocks of {CHUNK} commits")
    (out / MANIFEST).write_text(
        json.dumps({"schema_version": SCHEMA_VERSION, "runs": chosen, "rows": rows}), encoding="utf-8"
    )
    return rows


def import_(source: str | Path, folder: str | Path, progress: Progress = silent) -> list[str]:
    """Put the runs of an export into a store, which is made where it is missing; returns their ids.

    A run appears whole or not at all; one that is there already is an error."""
    source, folder = Path(source), only_folder(folder, "import")
    manifest = _manifest(source)
    files.create(folder)
    for run in manifest["runs"]:
        if (folder / "commits" / run).exists():
            raise StoreError(f"run {run} is in {folder} already; prune it there first, or import into another store")
    for run in manifest["runs"]:
        scratch = folder / f"importing-{run}"
        shutil.rmtree(scratch, ignore_errors=True)
        _write_commits(source, scratch, run, progress)
        scratch.rename(folder / "commits" / run)
        files.fsync(folder / "commits")
    return manifest["runs"]


def _manifest(source: Path) -> dict:
    try:
        manifest = json.loads((source / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError) as error:
        raise StoreError(f"{source} is not a whole export: {MANIFEST} is missing or damaged") from error
    refuse_newer(source, manifest["schema_version"])
    for table, n in manifest["rows"].items():
        there = pq.read_metadata(source / f"{table}.parquet").num_rows
        if there != n:
            raise StoreError(f"{source / table}.parquet has {there} rows, the export had {n}")
    return manifest


def _write_commits(source: Path, scratch: Path, run: str, progress: Progress) -> None:
    heads = pq.read_table(source / "commits.parquet", columns=["rank", "seq"], filters=[("run", "=", run)]).to_pydict()
    done, total = 0, len(heads["seq"])
    for rank, last in sorted(dict(sorted(zip(heads["rank"], heads["seq"], strict=True))).items()):
        home = scratch / f"r{rank}"
        home.mkdir(parents=True)
        for first in range(0, last + 1, CHUNK):
            keep = [("run", "=", run), ("rank", "=", rank), ("seq", ">=", first), ("seq", "<", first + CHUNK)]
            parts = {t: fit(pq.read_table(source / f"{t}.parquet", filters=keep), s) for t, s in tables().items()}
            for seq in range(first, min(first + CHUNK, last + 1)):
                mine = {t: rows.filter(pa.array(rows["seq"].to_numpy() == seq)) for t, rows in parts.items()}
                if not len(mine["commits"]):
                    raise StoreError(f"commit {seq} of {run} is missing in {source}")
                files.commit(home, seq, mine)
                done += 1
                progress(done, total, f"commits of {run}")


def _spans(store: Store, runs: Collection[str]) -> Iterator[tuple[str, int, int]]:
    """(run, rank, first commit) of blocks of commits."""
    last = store.sql(f"SELECT run, rank, max(seq) AS last FROM {store.source('commits')} GROUP BY ALL ORDER BY ALL")
    for row in last.to_pylist():
        if row["run"] in runs:
            for first in range(0, row["last"] + 1, CHUNK):
                yield row["run"], row["rank"], first
