"""Cache of converted models: where they are kept, and how they get there whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def root() -> Path:
    """$WORKBENCH_CACHE, else `workbench` in $XDG_CACHE_HOME, else ~/.cache/workbench."""
    own = os.environ.get("WORKBENCH_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "workbench"


def publish(folder: Path, fill: Callable[[Path], None]) -> Path:
    """The folder, made by fill(empty folder) unless it exists already.

    It is filled under a temporary name beside its place and renamed, so a crash leaves nothing behind that looks
    finished, and of two processes at once the first wins and the other takes what is there.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        fill(draft)
        draft.chmod(0o755)
        try:
            draft.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
