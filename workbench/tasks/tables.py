"""Data sets with a prompt and an answer column, as checked cells and as pools.

Every cell is checked when the table is read, with the row in the error, so that nothing fails in the middle of a
run. The evaluation set is held out by content hash: it depends on neither the order of the rows nor the seed, and
copies of one prompt stay on one side, also copies that differ in white space, line ends or Unicode form alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from hashlib import sha256
from math import isfinite
from numbers import Integral, Real
from typing import NamedTuple
from unicodedata import normalize

import numpy as np

from workbench.tasks.mixes import content_id
from workbench.tasks.reading import at, dotted
from workbench.types import Pool

QUESTIONS = ("question", "problem", "messages", "query")
"""Columns that are read as the prompt where there is none of that name and none was asked for."""

CHANGES_THE_PROMPT = ("system", "system_prompt", "tools", "functions")
"""Columns whose author showed them to the model: a table is refused rather than asked without them."""


class Cell(NamedTuple):
    """One checked row of a table; other: the columns with no role, as JSON."""

    text: str
    answer: str
    prefix: str
    stratum: str
    messages: str
    id: str
    row: int
    other: str

    @property
    def key(self) -> str:
        """What the model is asked: rows that agree in it are one prompt."""
        return chr(0).join((self.messages or self.text, self.prefix))

    @property
    def near(self) -> str:
        """As `near`: rows that agree in it stay on one side of a split."""
        return near(self.text, self.prefix)


@dataclass(frozen=True)
class Columns:
    """Names of the columns; prompt and answer must be there, the others may be."""

    prompt: str = "prompt"
    answer: str = "answer"
    prefix: str = "prefix"
    stratum: str = "stratum"
    id: str = "id"


def near(text: str, prefix: str) -> str:
    """A prompt whatever its white space, line ends, Unicode form (NFC) and invisible marks."""
    plain = (normalize("NFC", t).replace("\u200b", "").replace("\ufeff", "") for t in (text, prefix))
    return chr(0).join(" ".join(t.split()) for t in plain)


def near_of(pool: Pool) -> list[str]:
    """`near` of each prompt of a pool."""
    return [near(str(t), str(p)) for t, p in zip(pool.text, pool.prefix, strict=True)]


def _said(content: object, where: str) -> str | None:
    """The text of a message; its parts one after the other."""
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [p if isinstance(p, str) else p.get("text") if isinstance(p, Mapping) else None for p in content]
        kinds = [p.get("type", "text") for p in content if isinstance(p, Mapping)]
        if other := sorted({str(k) for k in kinds} - {"text", "input_text"}):
            raise ValueError(f"{where}: a message holds {', '.join(other)}, and the model is shown text alone")
        return "".join(parts) if all(isinstance(p, str) for p in parts) else None  # type: ignore[arg-type]
    return content if isinstance(content, str) else None


def _prompt(value: object, where: str) -> tuple[str, str]:
    """(text, messages as JSON or "") of a prompt: a text, or a list of {"role", "content"}."""
    if isinstance(value, str) and value.strip():
        return value, ""
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and value
        and all(isinstance(m, Mapping) for m in value)
    ):
        turns = [{"role": m.get("role"), "content": _said(m.get("content"), where)} for m in value]
        if all(isinstance(t["role"], str) and isinstance(t["content"], str) for t in turns):
            return "\n".join(t["content"] for t in turns), json.dumps(turns, ensure_ascii=False)  # type: ignore[misc]
    shown = "empty" if value in (None, "") or value == [] else f"{str(value)[:60]!r}"
    raise ValueError(f"{where}: the prompt is {shown}; a text or a list of messages with role and content is wanted")


def _plain(value: object) -> str:
    """A cell as text, a number without a needless point or exponent: 72.0 is 72, 1e-07 is 0.0000001."""
    if isinstance(value, Real | Decimal) and not isinstance(value, Integral) and isfinite(value):
        text = format(Decimal(str(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value)


def _text(value: object, where: str, what: str) -> str:
    if value is None or (isinstance(value, float) and value != value):
        raise ValueError(f"{where}: the {what} is null; fill it or leave the row out")
    if isinstance(value, bool) or not isinstance(value, str | Real | Decimal):
        raise ValueError(f"{where}: the {what} is {type(value).__name__}; a text or a number is wanted")
    if not isinstance(value, str) and not isfinite(value):
        raise ValueError(f"{where}: the {what} is {value}; a finite number is wanted")
    return _plain(value)


def _is_media(value: object) -> bool:
    if isinstance(value, Mapping):
        return "bytes" in value or ("path" in value and "array" in value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return any(map(_is_media, value))
    return isinstance(value, bytes) or (hasattr(value, "tobytes") and not isinstance(value, np.ndarray | np.generic))


def unused(
    rows: Sequence[Mapping], names: Sequence[str], label: str, columns: Columns, ignore: Sequence[str]
) -> list[str]:
    """The columns that have no role and were not told to be ignored, empty ones aside.

    Raises ValueError for those that a model cannot be asked without: images, sound, tools, system messages."""
    if unknown := [n for n in ignore if n not in names]:
        raise ValueError(f"{label} has no column {unknown[0]!r} to ignore; its columns are {', '.join(names)}")
    chosen = [getattr(columns, f.name) for f in fields(columns)]
    with_role = {*ignore, *chosen, *(name.split(".")[0] for name in chosen)}
    left = []
    for name in names:
        if name in with_role:
            continue
        filled = [v for row in rows if (v := row.get(name)) is not None and v != "" and v != []]
        if not filled:
            continue
        media = name.lower().rstrip("s") in ("image", "video", "audio") or any(map(_is_media, filled[:100]))
        if media or name.lower() in CHANGES_THE_PROMPT:
            what = (
                "images, sound or bytes, and the model is shown text alone"
                if media
                else "what the model would be shown"
            )
            raise ValueError(
                f"{label}: the column {name!r} holds {what}; take it into the messages of the prompt, or leave it out "
                f"with ignore=[{name!r}]"
            )
        left.append(name)
    return left


def columns_of(
    rows: Sequence[Mapping], names: Sequence[str], label: str, columns: Columns
) -> tuple[Columns, list[str]]:
    """(columns, notes): the prompt under another well-known name where there is none; raises for one that is missing."""
    if not rows:
        raise ValueError(f"{label} has no rows")
    default, notes = Columns(), []
    if columns.prompt == default.prompt and default.prompt not in names:
        found = next((n for n in QUESTIONS if n in names), None)
        if found is not None:
            columns = Columns(found, *(getattr(columns, f.name) for f in fields(columns)[1:]))
            notes.append(f"The prompt is the column {found!r}, for {label} has none named prompt.")
    for role in ("prompt", "answer", "prefix", "stratum", "id"):
        name = getattr(columns, role)
        there = name in names or ("." in name and any(at(row, name) is not None for row in rows))
        if not there and (role in ("prompt", "answer") or name != getattr(default, role)):
            raise ValueError(
                f"{label} has no column {name!r} for the {role}; its columns are {', '.join(dotted(rows, names))}; "
                f'name it: {role} = "..." among the task_options, or --columns {role}=...'
            )
    return columns, notes


def cells(rows: Sequence[Mapping], label: str, columns: Columns, others: Sequence[str] = ()) -> list[Cell]:
    """The checked rows; raises for a null or a wrong type, naming row and column. others: columns kept for verifiers."""
    found = []
    for i, row in enumerate(rows):
        where = f"{label}, row {i + 1}"
        text, messages = _prompt(at(row, columns.prompt), where)
        answer = _text(at(row, columns.answer), where, "answer")
        prefix, stratum, id_ = (
            "" if (value := at(row, name)) is None else _plain(value)
            for name in (columns.prefix, columns.stratum, columns.id)
        )
        other = json.dumps({n: row.get(n) for n in others}, ensure_ascii=False, default=str) if others else ""
        cell = Cell(text, answer, prefix, stratum or "all", messages, id_, i, other)
        try:
            "".join((text, answer, prefix, stratum, messages, id_, other)).encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where}: a text holds half a surrogate pair, which is no character") from None
        found.append(cell)
    return found


def without_copies(found: list[Cell]) -> list[Cell]:
    """The first of all rows that agree in prompt, prefix and answer."""
    return list({(c.key, c.answer): c for c in reversed(found)}.values())[::-1]


def _rank(cell: Cell) -> str:
    return sha256(cell.near.encode()).hexdigest()


def hold_out(found: list[Cell], n: int) -> tuple[list[Cell], list[Cell]]:
    """(pool, evaluation): the n prompts of smallest content hash are held out, with all their copies."""
    keys = sorted({_rank(c) for c in found})
    if len(keys) < 2:
        raise ValueError(f"{len(keys)} prompt cannot give both a pool and an evaluation set")
    held = set(keys[: min(max(n, 1), len(keys) - 1)])
    return [c for c in found if _rank(c) not in held], [c for c in found if _rank(c) in held]


def apart_from(found: list[Cell], held_out: list[Cell]) -> list[Cell]:
    """The rows whose prompt is not in the evaluation set."""
    keys = {c.near for c in held_out}
    train = [c for c in found if c.near not in keys]
    if not train:
        raise ValueError(f"all {len(found)} prompts are in the evaluation set as well; none is left to train on")
    return train


def pool_of(found: list[Cell], kind: str) -> Pool:
    """The rows as a pool; ids are those of the table, or the content hash and a count among equal contents."""
    seen: Counter[tuple[str, str, str]] = Counter()

    def id_of(c: Cell) -> str:
        content = (c.messages or c.text, c.prefix, c.answer)
        seen[content] += 1
        return c.id or content_id(*content, seen[content] - 1)

    def column(of: Callable[[Cell], str]) -> np.ndarray:
        values = np.empty(len(found), dtype=object)
        values[:] = [of(c) for c in found]
        return values

    extra = {"level": column(lambda c: ""), "kind": column(lambda c: kind), "messages": column(lambda c: c.messages)}
    if any(c.other for c in found):
        extra["row"] = column(lambda c: c.other)
    return Pool(
        ids=column(id_of),
        text=column(lambda c: c.text),
        answer=column(lambda c: c.answer),
        prefix=column(lambda c: c.prefix),
        stratum=column(lambda c: c.stratum),
        extra=extra,
    )
