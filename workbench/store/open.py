"""Open a store by its URL: the storage backend of a folder, or of a shared catalog ("ducklake:postgres:...").

`Store` and `Writer` are the same for both, and nothing else asks which of them it is. A reading backend takes commits into
the tables `tail.*` of a DuckDB in memory; a writing one holds the lock of one rank of a run. url is what opens it again, a
password included; where is the same as it may be shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.store.folder import check, compaction
from workbench.store.folder.reader import FolderReader
from workbench.store.folder.writer import FolderWriter
from workbench.store.records import Finding, Progress, Sizes
from workbench.store.urls import is_shared

if TYPE_CHECKING:  # and on use: a folder needs nothing of the shared catalog
    from workbench.store.lake.reader import LakeReader
    from workbench.store.lake.writer import LakeWriter


def open_store(url: str | Path, threads: int = 2) -> FolderReader | LakeReader:
    """What reads the store at a URL; StoreError where there is none."""
    if is_shared(url):
        from workbench.store.lake.reader import LakeReader

        return LakeReader(url, threads)
    return FolderReader(url)


def open_writer(url: str | Path, run: str | None, name: str, rank: int) -> FolderWriter | LakeWriter:
    """What writes a rank of a run, with its lock; the store is made where it is missing. run None: a new id from name."""
    if is_shared(url):
        from workbench.store.lake.writer import LakeWriter

        return LakeWriter(url, run, name, rank)
    return FolderWriter(url, run, name, rank)


def data_folder(url: str | Path) -> Path:
    """The folder of what goes with a store and not into it, such as checkpoints: its own, or that of its data."""
    if is_shared(url):
        from workbench.store.lake.care import data_folder

        return data_folder(url)
    return Path(url)


def compact(url: str | Path, *, threads: int = 1) -> int:
    """Fold small commits (of a shared catalog: join small files); how many, 0 where another process is at it."""
    if is_shared(url):
        from workbench.store.lake.care import compact

        return compact(url)
    return compaction.compact(Path(url), threads)


def sizes(url: str | Path) -> Sizes:
    """What a store holds on disk, and what waits for compaction."""
    if is_shared(url):
        from workbench.store.lake.care import sizes

        return sizes(url)
    return check.sizes(Path(url))


def check_files(url: str | Path, progress: Progress) -> Iterator[Finding]:
    """Files of a store that are missing or damaged."""
    if is_shared(url):
        from workbench.store.lake.care import check_files

        return check_files(url, progress)
    return check.check_files(Path(url), progress)
