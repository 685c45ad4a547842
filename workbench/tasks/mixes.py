"""Data mixture of families: a pool to train on, a fixed evaluation set, and questions reserved for teaching.

A quarter of all questions, chosen by content hash and so the same under every seed, is reserved: `teaching` alone
gives them out, which keeps a small model's supervised data apart from any pool. From the rest the evaluation set is
drawn first, independent of the seed, so that runs with several seeds are compared on the same questions; the pool
never holds one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from itertools import islice
from pkgutil import iter_modules
from zlib import crc32

import numpy as np

from workbench.tasks import generators
from workbench.tasks.family import Family, Question
from workbench.types import Pool

Parts = tuple[tuple[str, ...], ...]

MIXES: dict[str, Parts] = {
    "default": (
        ("mul 1dx1d", "add 1d+1d", "add 0 or mul 1"),
        ("max of 3 2d", "rg chain_sum 2t", "mul 2dx1d", "rg basic_arithmetic", "rg products"),
        ("add 2d+2d", "sub <=20", "number before/after", "rg gcd", "count letter"),
        ("3 terms 1d +-", "sub 2d-2d", "rg spell_backward"),
    ),
    "five": (("sub <=20", "mul 2dx1d", "max of 3 2d", "rg basic_arithmetic", "add 2d+2d"),),
}
"""Name -> groups of families; groups get equal parts, and so do the families of a group."""

SIZES = {"default": 800, "five": 1000}
_EVALUATION, _POOL, _TEACHING = 1, 2, 3
_EVALUATED = 1 / 4
"""A family whose questions can be counted gives at most this share of them to an evaluation set."""


@cache
def families() -> dict[str, Family]:
    """All families by name: those of the files in `generators`, in the order of the files."""
    files = [import_module(f"{generators.__name__}.{m.name}") for m in iter_modules(generators.__path__)]
    return {f.name: f for file in files for f in file.FAMILIES}


def family(name: str) -> Family:
    """The family of a name, with or without the word "family:" before it."""
    known, short = families(), name.removeprefix("family:").strip()
    if short not in known:
        raise ValueError(f"no family {short!r}; there are {', '.join(known)}")
    return known[short]


def content_id(text: str, prefix: str, answer: str, copy: int = 0) -> str:
    """A prompt id: hash of what is asked and expected, and a count of the copies before it; rows around it play no part."""
    return f"{sha256(chr(0).join((text, prefix, answer)).encode()).hexdigest()[:12]}-{copy}"


def reserved(key: str) -> bool:
    """Whether a question belongs to the quarter kept for teaching."""
    return sha256(key.encode()).digest()[0] % 4 == 0


def _fresh(f: Family, seed: int, purpose: int, taken: set[str]) -> Iterator[Question]:
    """Questions of a family that nobody has yet, entered in `taken` as they are drawn.

    An endless stream is given up when 2,000 draws in a row bring nothing new."""
    dry = 0
    for question in f.stream(np.random.default_rng([seed, purpose, crc32(f.name.encode())])):
        key = question.key
        if key in taken or reserved(key) != (purpose == _TEACHING):
            dry += 1
            if f.size is None and dry >= 2000:
                return
            continue
        dry = 0
        taken.add(key)
        yield question


def _in_turn(names: Sequence[str], seed: int, purpose: int, taken: set[str]) -> Iterator[tuple[Family, Question]]:
    """One question of each family in turn; a family that has no more is left out from then on."""
    streams = []
    for f in map(family, names):
        most = int(_EVALUATED * f.size) if f.size is not None and purpose == _EVALUATION else None
        streams.append((f, islice(_fresh(f, seed, purpose, taken), most)))
    while streams:
        alive = []
        for f, stream in streams:
            question = next(stream, None)
            if question is not None:
                alive.append((f, stream))
                yield f, question
        streams = alive


def _draw(parts: Parts, n: int, seed: int, purpose: int, taken: set[str]) -> list[tuple[Family, Question]]:
    share = [n // len(parts) + (i < n % len(parts)) for i in range(len(parts))]
    rows: list[tuple[Family, Question]] = []
    for names, k in zip(parts, share, strict=True):
        rows += islice(_in_turn(names, seed, purpose, taken), k)
    return rows


def _pool(rows: list[tuple[Family, Question]]) -> Pool:
    def column(values: list[str]) -> np.ndarray:
        return np.array(values, dtype=object)

    return Pool(
        ids=column([content_id(*q) for _, q in rows]),
        text=column([q.text for _, q in rows]),
        answer=column([q.answer for _, q in rows]),
        prefix=column([q.prefix for _, q in rows]),
        stratum=column([f.name for f, _ in rows]),
        extra={"level": column([f.level for f, _ in rows]), "kind": column([f.kind for f, _ in rows])},
    )


def mix(parts: Parts, *, size: int, evaluation: int, seed: int) -> tuple[Pool, Pool]:
    """(pool, evaluation set), disjoint and without duplicates.

    A group that runs out of questions gives what it has: the pool is then smaller than `size`, and never
    padded with repeats or with questions of another level.
    """
    if size < 1 or evaluation < 1:
        raise ValueError(f"a task needs prompts to train on and to evaluate; size={size}, evaluation={evaluation}")
    taken: set[str] = set()
    held_out = _draw(parts, evaluation, 0, _EVALUATION, taken)
    return _pool(_draw(parts, size, seed, _POOL, taken)), _pool(held_out)


def teaching(name: str | Sequence[str], n: int, *, seed: int = 0) -> Pool:
    """Up to n questions with answers that are in no pool and no evaluation set of any seed.

    name: a mix, a family or a list of families, which give equal numbers as long as they last.
    """
    names = [f for group in parts_of(name) for f in group]
    return _pool(_draw((tuple(names),), n, seed, _TEACHING, set()))


def parts_of(name: str | Sequence[str]) -> Parts:
    """The groups of a mix; a family, or several as a list or between commas, are one group."""
    if isinstance(name, str):
        if name in MIXES:
            return MIXES[name]
        name = name.split(",")
    names = tuple(family(n).name for n in name)
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice or not names:
        raise ValueError(f"a mix names each family once; {', '.join(twice) or 'none'} was given")
    return (names,)
