"""Sample data: the store of small recorded runs that comes with the tree, read where it lies, written to in a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

from workbench.store.errors import StoreError

SAMPLE = Path(__file__).parents[2] / "store" / "sample"
"""Where it lies in the tree, beside the script that makes it."""


def sample_folder() -> Path:
    """The folder of the sample store. StoreError, with the way out, where the tree is not there (an installed wheel)."""
    if not (SAMPLE / "CURRENT").exists():
        raise StoreError(
            "the sample store comes with the source tree and is not here; in a clone, `workbench dashboard --sample` "
            "shows it"
        )
    return SAMPLE


def copy_sample(folder: str | Path) -> Path:
    """Copy the sample store, without the script that makes it, into a folder that may be written to; returns that."""
    ignore = shutil.ignore_patterns("*.py", "__pycache__")
    return shutil.copytree(sample_folder(), Path(folder), dirs_exist_ok=True, ignore=ignore)
