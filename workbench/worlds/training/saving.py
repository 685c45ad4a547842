"""How the files of a world get into their folder: whole, or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from workbench.parallel import processes


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """An empty folder to write to, which takes the place of folder where the block ends well, and goes where it does not.

    Of several `processes` all have to enter and to leave it; all write to the same one."""
    draft = processes.on_first(partial(_draft_of, folder))
    try:
        yield draft
        processes.on_first(partial(_publish, draft, folder))
    finally:
        if processes.first():
            shutil.rmtree(draft, ignore_errors=True)


def _draft_of(folder: Path) -> Path:
    """An empty folder beside the one that is to appear."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))


def _publish(draft: Path, folder: Path) -> None:
    if folder.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
        folder.rename(old / folder.name)
        draft.rename(folder)
        shutil.rmtree(old)
    else:
        draft.rename(folder)
