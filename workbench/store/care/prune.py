"""Prune: delete runs, or their token columns (of completions and advantages), for good. A run that is being written is refused.

All is compacted first, then a generation without what goes is published, then the old files are deleted: a crash at any
point leaves the run whole or gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import duckdb

from workbench.store.errors import Damaged, RunBusyError, repaired_by
from workbench.store.folder import files
from workbench.store.folder.compaction import base_scratch, fold, publish, start_base
from workbench.store.folder.damage import of_file, told
from workbench.store.reader import Store
from workbench.store.records import Progress, silent
from workbench.store.rows.attempts import check_id
from workbench.store.rows.retention import TOKEN_COLUMNS
from workbench.store.rows.tables import now
from workbench.store.statements import plain_path, quoted
from workbench.store.urls import only_folder


def old_runs(store: Store, days: float) -> list[str]:
    """Runs that are not being written and recorded nothing for some days, oldest first."""
    before = now() - timedelta(days=days)
    rows = store.sql("SELECT run, status, last_record FROM run_status ORDER BY last_record").to_pylist()
    return [r["run"] for r in rows if r["status"] != "running" and r["last_record"] < before]


def prune(folder: str | Path, runs: Collection[str], *, tokens_only: bool = False, progress: Progress = silent) -> int:
    """Delete runs, or only their token columns; returns the bytes that were freed."""
    folder = only_folder(folder, "prune")
    for run in runs:
        check_id(run, 0)
    with Store.open(folder) as store:
        store.known([run for run in runs if not store.damage_of(run)])
    before = files.bytes_in(folder)
    with ExitStack() as locks:

        def hold(path: Path, busy: str) -> None:
            if (lock := files.lock(path)) is None:
                raise RunBusyError(busy)
            locks.enter_context(lock)

        hold(folder / "compact.lock", f"{folder} is being compacted; try again in a moment")
        for name, home in files.writers(folder):
            if name.rsplit("/r", 1)[0] in runs:
                hold(home / "LOCK", f"{name} is being written; stop the run first")
        _, damaged = fold(folder, threads=2)
        if kept := [name for name in damaged if name.rpartition("/r")[0] in runs and tokens_only]:
            raise Damaged(told(kept[0], damaged[kept[0]], folder))
        _rewrite(folder, set(runs), tokens_only, progress)
    return before - files.bytes_in(folder)


def _rewrite(folder: Path, runs: set[str], tokens_only: bool, progress: Progress) -> None:
    """Publish a generation without what goes, and delete what only the one before needed."""
    before = files.read_current(folder)
    generation = before.generation + 1
    base, parts = before.base, []
    mine = ", ".join(quoted(r) for r in sorted(runs))
    moved = [] if tokens_only else [folder / "commits" / r for r in runs]
    gone = [m.rename(folder / f"pruned-{m.name}") for m in moved if m.is_dir()]
    for part in before.parts:
        if part in before.sums and (why := of_file(folder / part, before.sums[part])):
            raise Damaged(f"{part} of the store {folder} is damaged ({why}); {repaired_by(folder)}", folder / part)
    for path in files.generations(folder).values():  # they would bring back what goes
        path.unlink()
    with plain_path(folder) as plain, duckdb.connect(config={"threads": 2}) as con:
        con.execute("SET enable_progress_bar = false")
        if base and not (tokens_only and _no_token_advantages(con, plain / base, mine)):
            base = f"base/gen-{generation:06d}.duckdb"
            _base_without(con, plain / before.base, plain / base, mine, tokens_only)
        for i, part in enumerate(before.parts):
            progress(i, len(before.parts), "parts")
            source = f"read_parquet({quoted(plain / part)}, hive_partitioning = false)"
            if con.execute(f"SELECT count(*) FROM {source} WHERE run IN ({mine})").fetchone() == (0,):
                parts.append(part)
                continue
            made = f"payload/part-{generation:06d}-{i}.parquet"
            if _part_without(con, source, plain / made, mine, tokens_only):
                parts.append(made)
        progress(len(before.parts), len(before.parts), "parts")
    mark = {n: seq for n, seq in before.mark.items() if tokens_only or n.rsplit("/r", 1)[0] not in runs}
    files.write_current(folder, files.Current(generation, base, tuple(parts), mark), before.sums)
    for name, home in files.writers(folder):  # folded commits hold the tokens too
        for path in home.glob("[0-9]*"):
            if name.rsplit("/r", 1)[0] in runs and path.name.isdigit() and int(path.name) <= mark.get(name, -1):
                shutil.rmtree(path)
    for path in gone if tokens_only else [*gone, *(folder / "checkpoints" / r for r in runs)]:
        shutil.rmtree(path, ignore_errors=True)
    for path in [*(folder / "base").glob("gen-*.duckdb"), *(folder / "payload").glob("part-*.parquet")]:
        if str(path.relative_to(folder)) not in (base, *parts):
            path.unlink()


ZERO = """CASE WHEN node_id IS NULL THEN coalesce(zero, value = 0 AND (tokens IS NULL
    OR coalesce(list_max(tokens) = 0 AND list_min(tokens) = 0, true))) END"""
"""Rows of schema version 1 say only by their tokens whether an advantage acts: it is noted before those go."""


def _no_token_advantages(con: duckdb.DuckDBPyConnection, base: Path, runs: str) -> bool:
    con.execute(f"ATTACH {quoted(base)} AS old (READ_ONLY)")
    there = con.execute(f"SELECT 1 FROM old.advantages WHERE run IN ({runs}) AND tokens IS NOT NULL LIMIT 1").fetchone()
    con.execute("DETACH old")
    return there is None


def _base_without(con: duckdb.DuckDBPyConnection, old: Path, path: Path, runs: str, tokens_only: bool) -> None:
    with base_scratch(path) as scratch:
        scratch.unlink(missing_ok=True)
        start_base(con, scratch, old, "true" if tokens_only else f"run NOT IN ({runs})")
        if tokens_only:
            con.execute(
                f"UPDATE made.advantages SET zero = {ZERO}, tokens = NULL WHERE run IN ({runs}) AND tokens IS NOT NULL"
            )
        con.execute("COMMIT; CHECKPOINT made; DETACH made; DETACH old")
        publish(scratch, path)


def _part_without(con: duckdb.DuckDBPyConnection, source: str, path: Path, runs: str, tokens_only: bool) -> bool:
    """Write a part anew; False where nothing is left of it."""
    if tokens_only:
        blank = ", ".join(f"CASE WHEN run IN ({runs}) THEN NULL ELSE {c} END AS {c}" for c in TOKEN_COLUMNS)
        query = f"SELECT * REPLACE ({blank}) FROM {source}"
    else:
        query = f"SELECT * FROM {source} WHERE run NOT IN ({runs})"
        if con.execute(f"SELECT count(*) FROM ({query})").fetchone() == (0,):
            return False
    scratch = path.with_suffix(".tmp")
    con.execute(f"COPY ({query}) TO {quoted(scratch)} (FORMAT parquet, COMPRESSION zstd)")
    publish(scratch, path)
    return True
