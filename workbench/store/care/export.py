"""Export runs as one Parquet file a table, and import them into a store, commit by commit: exact both ways.

What views hide (steps made again) goes with them, so that an imported run is the run.
"""

from __future__ import annotations

import tempfile
from collections import Counter
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
from workbench.store.rows.attempts import check_id
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
    sums = {table: files.checksum(out / f"{table}.parquet") for table in rows}
    manifest = {"schema_version": SCHEMA_VERSION, "runs": chosen, "rows": rows, "sums": sums}
    (out / MANIFEST).write_text(files.sealed(manifest), encoding="utf-8")
    return rows


def import_(source: str | Path, folder: str | Path, progress: Progress = silent) -> list[str]:
    """Put the runs of an export into a store, which is made where it is missing; returns their ids.

    A run appears whole or not at all; one that is there already is an error. An export may be anybody's: the ids in it are
    checked before anything is touched, and StoreError says what is none."""
    source, folder = Path(source), only_folder(folder, "import")
    runs = _manifest(source)
    heads = _heads(source, runs)
    for run in runs:
        if (folder / "commits" / run).exists() or (folder / "commits" / run).is_symlink():
            raise StoreError(f"run {run} is in {folder} already; prune it there first, or import into another store")
    files.create(folder)
    for run in runs:
        with tempfile.TemporaryDirectory(prefix=f"importing-{run}-", dir=folder) as scratch:
            made = Path(scratch) / run
            made.mkdir()
            _write_commits(source, made, run, heads[run], progress)
            made.rename(folder / "commits" / run)
        files.fsync(folder / "commits")
    return runs


def _manifest(source: Path) -> list[str]:
    """The runs of an export whose files are there and whole."""
    try:
        held = (source / MANIFEST).read_bytes().decode()
        known = ("schema_version", "runs", "rows")
        manifest = files.unsealed(held, *known, "sums", plain=known)
        runs, rows, sums = manifest["runs"], manifest["rows"], manifest.get("sums", {})
        version = int(manifest["schema_version"])
        if not isinstance(runs, list) or not isinstance(rows, dict) or not isinstance(sums, dict):
            raise ValueError("runs are a list, and rows and sums are by table")
        refuse_newer(source, version)
        for run in runs:
            check_id(str(run), 0)
        if wrong := [table for table in (*rows, *sums) if table not in tables()]:
            raise ValueError(f"{wrong[0]!r} is no table of a store")
        if len({*runs}) < len(runs) or "commits" not in rows:
            raise ValueError("a run is named twice, or the table commits is not there")
        for table, n in rows.items():
            path = source / f"{table}.parquet"
            there = pq.read_metadata(path).num_rows
            if there != n:
                raise StoreError(f"{path} has {there} rows, the export had {n}")
            if table in sums and [*files.checksum(path)] != sums[table]:
                raise StoreError(f"{path} is damaged: it does not have the checksum that the export noted")
    except (OSError, ValueError, TypeError, RecursionError, pa.ArrowException) as error:
        raise StoreError(f"{source} is not a whole export: {MANIFEST} is missing or damaged ({error})") from error
    return runs


def _heads(source: Path, runs: list[str]) -> dict[str, dict[int, int]]:
    """Run -> {rank: its last commit}, of an export that has each commit up to there once. Every key of a row is looked at."""
    try:
        for table in tables():
            with pq.ParquetFile(source / f"{table}.parquet") as file:
                if [file.schema_arrow.field(c).type for c in ("rank", "seq")] != [pa.int16(), pa.int32()]:
                    raise StoreError(f"{table}.parquet: rank and seq are whole numbers of 16 and 32 bits")
                for batch in file.iter_batches(columns=["run"]):
                    if wrong := {*batch["run"].unique().to_pylist()} - {*runs}:
                        name = repr(wrong.pop())[:120]
                        raise StoreError(f"{table}.parquet has rows of {name}, which {MANIFEST} does not name")
        found = _read(source / "commits.parquet", ["run", "rank", "seq"], None).to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise StoreError(f"{source} is not a whole export: {error}") from error
    heads: dict[str, dict[int, int]] = {run: {} for run in runs}
    n = Counter((row["run"], row["rank"]) for row in found)
    for row in found:
        run, rank, seq = row["run"], row["rank"], row["seq"]
        if rank is None or seq is None or rank < 0 or not 0 <= seq < n[run, rank]:
            raise StoreError(
                f"commit {seq} of rank {rank} of {run} does not follow on the {n[run, rank]} that are in {source}"
            )
        heads[run][rank] = max(seq, heads[run].get(rank, -1))
    return heads


def _read(path: Path, columns: list[str] | None, keep: list[tuple] | None) -> pa.Table:
    """Rows of a file of an export; a folder of its path such as lr=0.1 is no column."""
    return pq.read_table(path, columns=columns, filters=keep, partitioning=None)  # type: ignore[arg-type]


def _write_commits(source: Path, scratch: Path, run: str, heads: dict[int, int], progress: Progress) -> None:
    done, total = 0, sum(last + 1 for last in heads.values())
    for rank, last in sorted(heads.items()):
        home = scratch / f"r{rank}"
        home.mkdir(parents=True)
        for first in range(0, last + 1, CHUNK):
            keep = [("run", "=", run), ("rank", "=", rank), ("seq", ">=", first), ("seq", "<", first + CHUNK)]
            parts = {t: fit(_read(source / f"{t}.parquet", None, keep), s) for t, s in tables().items()}
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
