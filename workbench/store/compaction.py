"""Folds small commits into one read-only base file and one part of completions; harmless to kill at any point.

Only the atomic rename of CURRENT publishes a generation. Until then its files are invisible, after it readers move to
it at their next refresh; the base of the generation before stays for those still reading it, and commits are deleted
one generation after they were folded. Any process may compact; a lock keeps it to one at a time.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import duckdb

from workbench.store import folder as files
from workbench.store.schema import SCHEMA_SQL, WIDE, tables

STORAGE_VERSION = "v1.2.0"
"""File format of the base: what DuckDB 1.5 reads, whichever version writes it."""

FEWEST, MOST = 64, 512
"""Commits that wait for the writer's next compaction: an eighth of those folded, within these bounds."""


def is_due(seq: int, mark: int) -> bool:
    """Whether a writer at commit seq, folded up to mark, should compact: cost per commit stays bounded."""
    return seq - 1 - mark >= min(max((mark + 1) // 8, FEWEST), MOST)


def compact(folder: str | Path, *, threads: int = 1) -> int:
    """Fold all commits that are there; returns how many, 0 for none or where another process is at it."""
    folder = Path(folder)
    files.check_version(folder)
    held = files.lock(folder / "compact.lock")
    if held is None:
        return 0
    try:
        return fold(folder, threads)
    finally:
        held.close()


def fold(folder: Path, threads: int) -> int:
    """Compact, for those who hold the lock."""
    before = files.read_current(folder)
    mark = dict(before.mark)
    todo: list[Path] = []
    for name, home in files.writers(folder):
        for seq, path in files.commits_after(home, mark.get(name, -1)):
            todo.append(path)
            mark[name] = seq
    _retire(folder, before)
    if not todo:
        return 0
    generation = before.generation + 1
    base, part = Path(f"base/gen-{generation:06d}.duckdb"), Path(f"payload/part-{generation:06d}.parquet")
    for sub in (base.parent, part.parent):
        (folder / sub).mkdir(exist_ok=True)
    parts = before.parts
    with duckdb.connect(config={"threads": threads}) as con:
        con.execute("SET enable_progress_bar = false")
        _write_base(con, folder, before, todo, folder / base)
        wide = [str(p) for path in todo for t in WIDE if (p := path / f"{t}.parquet").exists()]
        if wide:
            _write_part(con, wide, folder / part)
            parts = (*parts, str(part))
    files.write_current(folder, files.Current(generation, str(base), parts, mark))
    return len(todo)


def _write_base(
    con: duckdb.DuckDBPyConnection, folder: Path, before: files.Current, todo: list[Path], path: Path
) -> None:
    scratch = path.with_suffix(".tmp")
    for leftover in path.parent.glob("*.tmp*"):
        leftover.unlink()
    con.execute(f"ATTACH {quoted(scratch)} AS made (STORAGE_VERSION '{STORAGE_VERSION}')")
    if before.base:
        con.execute(f"ATTACH {quoted(folder / before.base)} AS old (READ_ONLY)")
    kept = tables_of(con, "old")
    con.execute(f"USE made; BEGIN TRANSACTION; {SCHEMA_SQL}")
    for name in tables():
        if name in WIDE:
            continue
        if name in kept:
            con.execute(f"INSERT INTO made.{name} BY NAME SELECT * FROM old.{name}")
        new = [str(p) for path_ in todo if (p := path_ / f"{name}.parquet").exists()]
        if new:
            con.execute(f"INSERT INTO made.{name} BY NAME SELECT * FROM read_parquet(?, union_by_name = true)", [new])
    con.execute("COMMIT; USE memory; CHECKPOINT made; DETACH made")
    if before.base:
        con.execute("DETACH old")
    publish(scratch, path)


def tables_of(con: duckdb.DuckDBPyConnection, database: str) -> set[str]:
    """The tables of an attached base: one of an earlier version lacks some."""
    found = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = ?", [database]).fetchall()
    return {name for (name,) in found}


def _write_part(con: duckdb.DuckDBPyConnection, wide: list[str], path: Path) -> None:
    scratch = path.with_suffix(".tmp")
    listed = ", ".join(quoted(p) for p in wide)
    con.execute(
        f"COPY (SELECT * FROM read_parquet([{listed}], union_by_name = true)) TO {quoted(scratch)} (FORMAT parquet, COMPRESSION zstd)"
    )
    publish(scratch, path)


def publish(scratch: Path, path: Path) -> None:
    """Give a finished file its name."""
    files.fsync(scratch)
    scratch.replace(path)
    files.fsync(path.parent)


def _retire(folder: Path, current: files.Current) -> None:
    """Delete bases older than the generation before the current one, and commits that both of these cover."""
    keep = {f"gen-{g:06d}.duckdb" for g in (current.generation, current.generation - 1)}
    for path in (folder / "base").glob("gen-*.duckdb"):
        if path.name not in keep:
            path.unlink()
    for name, last in _covered(folder).items():
        home = folder / "commits" / name
        for path in home.iterdir() if home.is_dir() else ():
            if path.name.isdigit() and int(path.name) <= last:
                shutil.rmtree(path)


def _covered(folder: Path) -> Mapping[str, int]:
    """Last commit of each writer in the current base: at the next compaction two generations hold it."""
    return files.read_current(folder).mark


def quoted(path: Path | str) -> str:
    """A path as a SQL string."""
    return "'" + str(path).replace("'", "''") + "'"


if __name__ == "__main__":
    print(f"folded {compact(sys.argv[1])} commits")
