"""Check the files of a folder: what is missing, damaged or not compacted yet, each against its checksum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.store.errors import Damaged
from workbench.store.folder import bundle, files
from workbench.store.folder.damage import of_commit, of_file, of_pointer
from workbench.store.records import Finding, Progress, Sizes
from workbench.store.schema import tables

COPY = "restore it from a copy, or see what --repair can put back"


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
    if files.check_version(folder) is None and (folder / "commits").is_dir():
        what = "damaged" if (folder / "STORE").exists() else "missing"
        yield Finding("error", "STORE", f"{what}; the next writer, or --repair, writes it anew")
    current, known = None, {}
    try:
        current = files.read_current(folder)
        known = dict(current.sums)
    except Damaged as error:  # how far commits were folded is not known: none of them can be called missing
        yield Finding("error", "CURRENT", str(error))
    for path in files.generations(folder).values():
        if why := of_pointer(path):
            yield Finding("error", path.name, f"damaged: {why}; --repair, or the next compaction, does away with it")
        else:
            known = {**files.parse_current(path.read_bytes()).sums, **known}
    named = current.files if current else ()
    there = [str(p.relative_to(folder)) for p in files.compacted(folder) if p.suffix in (".duckdb", ".parquet")]
    for i, name in enumerate(sorted({*named, *there})):
        progress(i, len(there), "compacted files")
        if name in named or name in known or current is None:
            yield from whole(folder / name, name, "CURRENT", known.get(name))
    bare = [name for name in named if name not in known]
    yield from _commits(folder, current.mark if current else None, bare, progress)
    yield from _checkpoints(folder)
    if bare:
        more = f" and {len(bare) - 1} more" if len(bare) > 1 else ""
        text = "written before there were checksums: read whole, but a flipped bit in a text would not be seen"
        yield Finding("note", f"{bare[0]}{more}", text)


def whole(path: Path, where: str, names: str, total: tuple[int, int] | None = None) -> Iterator[Finding]:
    """What is wrong with a base or Parquet file; names: what says that it is there. total: its (bytes, CRC-32)."""
    if not path.exists():
        yield Finding("error", where, f"{names} names this file, and it is missing; {COPY}")
    elif why := of_file(path, total):
        yield _damaged(where, why)


def _damaged(where: str, why: str) -> Finding:
    return Finding("error", where, f"damaged: {why}; {COPY}")


def _checkpoints(folder: Path) -> Iterator[Finding]:
    for sums in sorted((folder / "checkpoints").glob("*/step-*/" + files.SUMS)):
        for name, why in files.differing(sums.parent):
            yield Finding(
                "error", str((sums.parent / name).relative_to(folder)), f"damaged: {why}; restore it from a copy"
            )


def _commits(folder: Path, mark: Mapping[str, int] | None, bare: list[str], progress: Progress) -> Iterator[Finding]:
    todo = [
        (name, home, path) for name, home in files.writers(folder) for path in sorted(home.iterdir()) if path.is_dir()
    ]
    last = dict(mark or {})
    for path in sorted((folder / "commits").glob("*")):
        if not any(path in home.parents for _, home in files.writers(folder)) and not files.RUN.fullmatch(path.name):
            yield Finding("note", str(path.relative_to(folder)), "not a run")
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
        before = last.setdefault(name, -1 if mark is not None else seq - 1)
        if seq > before + 1:
            gone = f"commit {before + 1}" if seq == before + 2 else f"commits {before + 1} to {seq - 1}"
            text = f"{gone} before it are missing, so nothing from here on is shown; restore them, or see what --repair can put back"
            yield Finding("error", where, text)
        last[name] = max(before, seq)
        yield from _commit(path, where, name, seq, bare)
    progress(len(todo), len(todo), "commits")


def _commit(path: Path, where: str, name: str, seq: int, bare: list[str]) -> Iterator[Finding]:
    if why := of_commit(path):
        file, _, what = why.partition(": ")
        yield _damaged(f"{where}/{file}", what) if what else Finding("error", where, f"{why}; restore the commit")
        return
    run, rank = name.rsplit("/r", 1)
    there: dict[str, tuple[str, pa.Table]] = {}
    for file in sorted(path.iterdir()):
        if file.name == bundle.NAME:
            there |= {table: (f"{where}/{file.name}", rows) for table, rows in bundle.read(file).items()}
        elif file.suffix == ".parquet":
            there[file.stem] = f"{where}/{file.name}", pq.ParquetFile(file).read(columns=["run", "rank", "seq"])
    summed = there.pop(files.CHECKSUMS, None)
    if summed is None and any(Path(at).suffix == ".parquet" for at, _ in there.values()):
        bare.append(where)
    for table, (at, rows) in sorted(there.items()):
        if table not in tables():
            yield Finding("note", at, f"{table} is not a table of this version")
            continue
        key = set(zip(*(rows[c].to_pylist() for c in ("run", "rank", "seq")), strict=True))
        if key != {(run, int(rank), seq)}:
            yield Finding("error", at, f"its rows say they belong to {sorted(key)[:2]}, not to {(run, int(rank), seq)}")
