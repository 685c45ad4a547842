"""Check the files of a folder: what is missing, damaged or not compacted yet.

File by file, since a damaged commit keeps a reader from opening.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.store.errors import Damaged, StoreError
from workbench.store.folder import bundle, files
from workbench.store.records import Finding, Progress, Sizes
from workbench.store.schema import tables


def sizes(folder: Path) -> Sizes:
    """What a store holds on disk."""
    current = files.read_current(folder)
    parts = {name: files.bytes_in(folder / name) for name in ("commits", "base", "payload", "checkpoints")}
    waiting = {
        name: sum(1 for _ in files.commits_after(home, current.mark.get(name, -1)))
        for name, home in files.writers(folder)
    }
    return Sizes(parts, current.generation, waiting)


def check_files(folder: Path, progress: Progress) -> Iterator[Finding]:
    """Files that are missing or damaged."""
    files.check_version(folder)
    try:
        current = files.read_current(folder)
    except Damaged as error:  # how far commits were folded is not known: none of them can be called missing
        yield Finding("error", "CURRENT", str(error).partition("; `")[0])
        for path in (*sorted(folder.glob("base/gen-*.duckdb")), *sorted(folder.glob("payload/part-*.parquet"))):
            yield from whole(path, str(path.relative_to(folder)), "")
        return
    for part in (*([current.base] if current.base else []), *current.parts):
        yield from whole(folder / part, part, "CURRENT")
    yield from _commits(folder, current.mark, progress)


def whole(path: Path, where: str, names: str) -> Iterator[Finding]:
    """What is wrong with a base or Parquet file; names: what says that it is there."""
    if not path.exists():
        yield Finding("error", where, f"{names} names this file, and it is missing; restore it from a copy")
        return
    try:
        if path.suffix == ".duckdb":
            with duckdb.connect(str(path), read_only=True) as con:
                con.execute("SELECT count(*) FROM commits")
        else:
            file = pq.ParquetFile(path)
            for group in range(file.num_row_groups):
                file.read_row_group(group)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        yield _damaged(where, error)


def _damaged(where: str, error: Exception) -> Finding:
    return Finding("error", where, f"damaged: {str(error).splitlines()[0]}; restore it from a copy")


def _commits(folder: Path, mark: Mapping[str, int], progress: Progress) -> Iterator[Finding]:
    todo = [
        (name, home, path) for name, home in files.writers(folder) for path in sorted(home.iterdir()) if path.is_dir()
    ]
    last = {name: mark.get(name, -1) for name, _, _ in todo}
    for i, (name, home, path) in enumerate(todo):
        progress(i, len(todo), "commits")
        where = str(path.relative_to(folder))
        if path.suffix == ".tmp":
            if not files.is_alive(home):
                yield Finding("note", where, "left by a writer that died; it was never committed and may be deleted")
            continue
        if not path.name.isdigit():
            yield Finding("note", where, "not a commit")
            continue
        seq = int(path.name)
        if seq > last[name] + 1:
            gone = f"commit {last[name] + 1}" if seq == last[name] + 2 else f"commits {last[name] + 1} to {seq - 1}"
            yield Finding(
                "error", where, f"{gone} before it are missing, so nothing from here on is shown; restore them"
            )
        last[name] = max(last[name], seq)
        yield from _commit(folder, path, name, seq)
    progress(len(todo), len(todo), "commits")


def _commit(folder: Path, path: Path, name: str, seq: int) -> Iterator[Finding]:
    run, rank = name.rsplit("/r", 1)
    there: dict[str, tuple[str, pa.Table]] = {}
    for file in sorted(path.iterdir()):
        where = str(file.relative_to(folder))
        try:
            found = bundle.read(file) if file.name == bundle.NAME else {file.stem: pq.read_table(file)}
        except (StoreError, pa.ArrowException, OSError) as error:
            yield _damaged(where, error)
            return
        there |= {table: (where, rows) for table, rows in found.items()}
    if "commits" not in there:
        where = str(path.relative_to(folder))
        yield Finding("error", where, f"the file {bundle.NAME} or commits.parquet is missing; restore the commit")
    for table, (where, rows) in sorted(there.items()):
        if table not in tables():
            yield Finding("note", where, f"{table} is not a table of this version")
            continue
        key = set(zip(*(rows[c].to_pylist() for c in ("run", "rank", "seq")), strict=True))
        if key != {(run, int(rank), seq)}:
            yield Finding(
                "error", where, f"its rows say they belong to {sorted(key)[:2]}, not to {(run, int(rank), seq)}"
            )
