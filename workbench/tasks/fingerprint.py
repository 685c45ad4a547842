"""Fingerprint of a task: short hashes of its answers, its verifier and its limits, which a resumed run compares."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Protocol

import numpy as np

from workbench.types import Pool


class Judged(Protocol):
    """A task, as far as its verifier is concerned."""

    @property
    def pool(self) -> Pool:
        """The prompts."""
        ...


def digest(parts: Iterable[object]) -> str:
    """16 hexadecimal digits of the texts of parts, in order; the same on every machine."""
    hashed = blake2b(digest_size=8)
    for part in parts:
        text = str(part).encode("utf-8", "surrogatepass")
        hashed.update(len(text).to_bytes(8, "big") + text)
    return hashed.hexdigest()


def of_pool(pool: Pool) -> str:
    """The digest of a pool's reference answers, and of what else of its rows a verifier may read, in order."""
    extra = [n for n in sorted(pool.extra) if n != "kind" and np.asarray(pool.extra[n]).dtype == object]
    columns = (pool.answer, pool.prefix, pool.stratum, *(pool.extra[name] for name in extra))
    return digest(value for row in zip(*columns, strict=True) for value in row)


def of_verifier(task: Judged) -> str:
    """The digest of a task's verifier: its class, its settings, the kinds of answers and the source text of what a researcher
    wrote; of the class of a task that judges by itself."""
    return digest([_identity(getattr(task, "verifier", type(task))), *task.pool.extra.get("kind", ())])


def source_of(verify: Callable | str) -> str:
    """The source text of a verifier given as a function, 'package.module:function' or 'file.py:function', without importing it."""
    if isinstance(verify, str):
        module, _, name = verify.partition(":")
        found, where = None, None
        path = Path(module) if module.endswith(".py") else None
        for k in range(1, module.count(".") + 2) if path is None else ():
            found = PathFinder.find_spec(".".join(module.split(".")[:k]), where)
            if found is None:
                return verify
            where = found.submodule_search_locations
        if found is not None and found.origin:
            path = Path(found.origin)
        return f"{name}\n{path.read_text(encoding='utf-8', errors='replace')}" if path and path.is_file() else verify
    for what in (inspect.unwrap(verify), type(verify)):
        try:
            return inspect.getsource(what)  # type: ignore[arg-type]
        except (OSError, TypeError):
            continue
    code = getattr(verify, "__code__", None)
    return getattr(verify, "__qualname__", type(verify).__qualname__) + (
        f"{code.co_code!r}{code.co_consts!r}" if code else ""
    )


def _identity(value: object) -> str:
    if isinstance(source := getattr(value, "source", None), str):
        return f"{type(value).__qualname__} {source}"
    if is_dataclass(value) and not isinstance(value, type):
        settings = {f.name: _identity(getattr(value, f.name)) for f in fields(value)}
        return f"{type(value).__qualname__} {json.dumps(settings)}"
    if isinstance(value, Mapping):
        return json.dumps({str(k): _identity(v) for k, v in value.items()}, sort_keys=True)
    if isinstance(value, (list, tuple)):
        return json.dumps([_identity(v) for v in value])
    if callable(value):
        return source_of(value)
    return str(value)
