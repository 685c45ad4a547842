"""Where a store is: a folder, or a shared catalog by its URL."""

from __future__ import annotations

import re
from pathlib import Path

from workbench.store.errors import StoreError


def is_shared(where: object) -> bool:
    """Whether a store's URL names a shared catalog; raises nothing, asks nobody."""
    return str(where).startswith("ducklake:")


def redacted(text: str) -> str:
    """The text without the passwords that an address may hold."""
    text = re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&\"]+)", r"\1***", text)
    return re.sub(r"(://[^:/@\s]*:)[^@/\s]*@", r"\1***@", text)


def is_there(where: str | Path) -> bool:
    """Whether there may be a store: a folder that is there, or any shared catalog, which opening will tell."""
    return is_shared(where) or Path(where).is_dir()


def folder_of(where: str | Path) -> Path:
    """The folder of what goes with a store and not into it, such as checkpoints: its own, or that of its data."""
    if not is_shared(where):
        return Path(where)
    from workbench.store.lake.catalog import Lake, attach, connect

    lake = Lake.parse(where)
    if lake.data:
        return Path(lake.data)
    con = connect(lake)
    try:
        return Path(attach(con, lake))
    finally:
        con.close()


def only_folder(where: str | Path, what: str) -> Path:
    """The folder of a store, for what cannot be done to a shared catalog."""
    if is_shared(where):
        raise StoreError(f"{what} works on the folder of a store, not on a shared catalog")
    return Path(where).resolve()
