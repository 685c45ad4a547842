"""URLs of stores: a folder, or a shared catalog; and what of a URL may be shown."""

from __future__ import annotations

import re
from pathlib import Path

from workbench.store.errors import StoreError


def is_shared(url: object) -> bool:
    """Whether a URL names a shared catalog; the server is not asked."""
    return str(url).startswith("ducklake:")


def redacted(text: str) -> str:
    """The text without the passwords that an address may hold."""
    text = re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&\"]+)", r"\1***", text)
    return re.sub(r"(://[^:/@\s]*:)[^@/\s]*@", r"\1***@", text)


def is_there(url: str | Path) -> bool:
    """Whether there may be a store: a folder that is there, or any shared catalog, which opening will tell."""
    return is_shared(url) or Path(url).is_dir()


def only_folder(url: str | Path, what: str) -> Path:
    """The folder of a store, for what cannot be done to a shared catalog."""
    if is_shared(url):
        raise StoreError(f"{what} works on the folder of a store, not on a shared catalog")
    return Path(url).resolve()
