"""Is everything there, readable, and does it add up? And how large is it?

File by file first, since a damaged commit keeps a reader from opening; then by questions to the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.store.errors import Damaged, StoreError
from workbench.store.folder import bundle, files
from workbench.store.folder.reader import Store
from workbench.store.schema import tables
from workbench.store.urls import is_shared

Progress = Callable[[int, int, str], None]
"""Told how many of how many are done, and what they are."""


class Finding(NamedTuple):
    """kind: error (something is lost or wrong) or note (harmless); where: a file, run or step; text: what to know."""

    kind: str
    where: str
    text: str


class Sizes(NamedTuple):
    """Bytes by part of a store, its generation, and commits that wait for compaction by writer."""

    bytes: dict[str, int]
    generation: int
    waiting: dict[str, int]


def silent(done: int, total: int, what: str) -> None:
    """No progress."""


def sizes(folder: str | Path) -> Sizes:
    """What a store holds on disk."""
    if is_shared(folder):
        from workbench.store.lake import care

        return care.sizes(folder)
    folder = Path(folder)
    current = files.read_current(folder)
    parts = {name: files.bytes_in(folder / name) for name in ("commits", "base", "payload", "checkpoints")}
    waiting = {
        name: sum(1 for _ in files.commits_after(home, current.mark.get(name, -1)))
        for name, home in files.writers(folder)
    }
    return Sizes(parts, current.generation, waiting)


def check(folder: str | Path, progress: Progress = silent) -> list[Finding]:
    """All that is wrong with a store; an empty list for nothing. Changes nothing."""
    if is_shared(folder):
        from workbench.store.lake import care

        return care.check(folder, progress)
    folder = Path(folder)
    files.check_version(folder)
    try:
        current = files.read_current(folder)
    except Damaged as error:  # how far commits were folded is not known: none of them can be called missing
        return [Finding("error", "CURRENT", str(error).partition("; `")[0]), *_bases(folder)]
    found = [*_compacted(folder, current), *_commits(folder, current.mark, progress)]
    if not any(f.kind == "error" for f in found):
        try:
            with Store.open(folder) as store:
                found += sums(store)
        except (StoreError, duckdb.Error) as error:
            found.append(Finding("error", str(folder), str(error)))
    return found


def _compacted(folder: Path, current: files.Current) -> Iterator[Finding]:
    for part in (*([current.base] if current.base else []), *current.parts):
        if not (folder / part).exists():
            yield Finding("error", part, "CURRENT names this file, and it is missing; restore it from a copy")
        else:
            yield from _whole(folder, part)


def _bases(folder: Path) -> Iterator[Finding]:
    """The compacted files there are, where CURRENT cannot say which of them count."""
    for path in (*sorted(folder.glob("base/gen-*.duckdb")), *sorted(folder.glob("payload/part-*.parquet"))):
        yield from _whole(folder, str(path.relative_to(folder)))


def _whole(folder: Path, part: str) -> Iterator[Finding]:
    if (error := _unreadable(folder / part)) is not None:
        yield Finding("error", part, f"damaged: {error}; restore it from a copy")


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
            yield Finding("error", where, f"damaged: {str(error).splitlines()[0]}; restore it from a copy")
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


def sums(store: Store) -> Iterator[Finding]:
    """What does not add up in an open store."""
    for row in store.sql(
        "SELECT run, step, prompt_id, purpose FROM ledger WHERE NOT balanced ORDER BY ALL LIMIT 20"
    ).to_pylist():
        text = f"the {row['purpose']} rollouts or tokens of prompt {row['prompt_id']} do not add up"
        yield Finding("error", f"{row['run']} step {row['step']}", text)
    for row in store.sql(
        "SELECT s.run, s.rank, s.step, s.n_rollouts AS said, count(r.row) AS n FROM steps s LEFT JOIN rollouts r"
        " ON r.run = s.run AND r.rank = s.rank AND r.step = s.step AND r.row >= 0 GROUP BY ALL HAVING said <> n LIMIT 20"
    ).to_pylist():
        text = f"rank {row['rank']} recorded {row['said']} rollouts and {row['n']} are there"
        yield Finding("error", f"{row['run']} step {row['step']}", text)
    for row in store.sql(
        f"SELECT c.run, c.rank, count(*) AS n, min(c.step) AS first FROM {store.source('commits')} c"
        " JOIN superseded USING (run, rank, seq) WHERE c.kind = 'step' GROUP BY ALL ORDER BY ALL"
    ).to_pylist():
        text = f"{row['n']} steps of rank {row['rank']} are not shown: made again later, or not recorded by all ranks"
        yield Finding("note", f"{row['run']} from step {row['first']}", text)


def _unreadable(path: Path) -> str | None:
    try:
        if path.suffix == ".duckdb":
            with duckdb.connect(str(path), read_only=True) as con:
                con.execute("SELECT count(*) FROM commits")
        else:
            file = pq.ParquetFile(path)
            for i in range(file.num_row_groups):
                file.read_row_group(i)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        return str(error).splitlines()[0]
    return None
