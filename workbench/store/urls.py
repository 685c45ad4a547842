"""URLs of stores: a folder, or a shared catalog; and what of a URL may be shown."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from workbench.store.errors import StoreError


def is_shared(url: object) -> bool:
    """Whether a URL names a shared catalog; the server is not asked."""
    return str(url).startswith("ducklake:")


_WORD = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.|'')*'|(?:\\.|(?![?&]\w+=)[^\s\"'\\])+)", re.IGNORECASE)
_ADDRESS = re.compile(r"(://[^:/@\s]*:)([^\s\"]*)@")


def redacted(text: str) -> str:
    """The text without the passwords that an address may hold."""
    return _ADDRESS.sub(r"\1***@", _WORD.sub(r"\1***", text))


def secrets_of(conninfo: str) -> list[str]:
    """The passwords in an address, in each spelling that an error may repeat, the longest first."""
    found = [m[2] for pattern in (_WORD, _ADDRESS) for m in pattern.finditer(conninfo)]
    plain = [re.sub(r"\\(.)", r"\1", s[1:-1] if s.startswith("'") else s) for s in found]
    spelled = {*found, *plain, *map(unquote, found), *(s.replace("'", "''") for s in found)}
    return sorted(spelled - {""}, key=len, reverse=True)


def is_there(url: str | Path) -> bool:
    """Whether there may be a store: a folder that is there, or any shared catalog, which opening will tell."""
    return is_shared(url) or Path(url).is_dir()


def only_folder(url: str | Path, what: str) -> Path:
    """The folder of a store, for what cannot be done to a shared catalog."""
    if is_shared(url):
        raise StoreError(f"{what} works on the folder of a store, not on a shared catalog")
    return Path(url).resolve()
