"""Convert a finished step to Arrow tables, by whole columns: no Python loop over rollouts.

Every builder returns {table: {column: values}} without the commit's key; `arrow` adds run, rank and seq and casts to
the declared schema. NaN becomes null, except in metrics and arrays, where it is news.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Sized
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from workbench.store.errors import StoreError
from workbench.store.rows.ledger import Origins
from workbench.store.rows.retention import only
from workbench.store.schema import tables as declared
from workbench.types import Event, Node, Plan, Pool, Ragged, Resume, Rollouts, Step, Text

Columns = Mapping[str, object]
Tables = dict[str, Columns]

KEEP_NAN = {("metrics", "value"), ("arrays", "number")}


def now() -> datetime:
    """The time in UTC, as the tables keep it."""
    return datetime.now(UTC).replace(tzinfo=None)


def arrow(name: str, columns: Columns, key: Mapping[str, object]) -> pa.Table:
    """One declared table; missing columns are null, scalars are repeated."""
    n = next(len(c) for c in columns.values() if isinstance(c, Sized) and not isinstance(c, str))
    made = []
    for field in declared()[name]:
        value = key.get(field.name) if field.name in key else columns.get(field.name)
        made.append(_column(value, n, field.type, (name, field.name) not in KEEP_NAN, f"{name}.{field.name}"))
    unknown = set(columns) - set(declared()[name].names)
    assert not unknown, f"{name} has no columns {unknown}"
    return pa.Table.from_arrays(made, schema=declared()[name])


def _column(value, n: int, type_: pa.DataType, nan_is_null: bool, what: str) -> pa.Array:
    if isinstance(value, pa.Array):
        return value.cast(type_)
    if isinstance(value, Ragged):
        offsets = pa.array(value.offsets, pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.array(value.values, type_.value_type)).cast(type_)
    if value is None:
        return pa.nulls(n, type_)
    if isinstance(value, (str, int, float, datetime, np.generic)):
        return pa.repeat(pa.scalar(value, type_), n)
    try:
        return pa.array(value, type_, from_pandas=nan_is_null)
    except UnicodeEncodeError:  # a lone surrogate: not text in any encoding, shown as the replacement character
        clean = [v if v is None else str(v).encode("utf-8", "replace").decode("utf-8") for v in value]
        return pa.array(clean, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        if pa.types.is_string(type_):
            return pa.array([None if v is None else str(v) for v in value], type_)
        raise StoreError(f"column {what} cannot be kept as {type_}: {error}") from error


def maps(columns: Mapping[str, np.ndarray], n: int) -> pa.Array:
    """(n,) MAP(VARCHAR, DOUBLE) of named columns; NaN becomes null."""
    names = list(columns)
    items = np.stack([np.asarray(columns[k], float) for k in names], axis=1).ravel() if names else np.empty(0)
    keys = pa.DictionaryArray.from_arrays(
        np.tile(np.arange(len(names), dtype=np.int32), n), pa.array(names, pa.string())
    )
    offsets = pa.array(np.arange(n + 1, dtype=np.int32) * len(names))
    return pa.MapArray.from_arrays(offsets, keys.cast(pa.string()), pa.array(items, pa.float64(), from_pandas=True))


def to_json(value: object) -> str:
    """JSON that every reader accepts: numbers that are not finite and foreign objects become strings."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value):
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)


OFFSETS = "[offsets]"
"""Ending of the second array of a ragged column."""


def array_rows(scope: str, named: Mapping[str, object]) -> list[dict]:
    """Rows of `arrays`, exact in value, dtype and shape; a ragged column is two, its values and `name[offsets]`."""
    flat: dict[str, object] = {}
    for name, value in named.items():
        if isinstance(value, Ragged):
            flat |= {str(name): value.values, f"{name}{OFFSETS}": value.offsets}
        else:
            flat[str(name)] = value
    return [_array_row(scope, name, np.asarray(value)) for name, value in flat.items()]


def columns_from_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray | Ragged]:
    """Arrays by name, with ragged columns put together again."""
    return {
        name: Ragged(value, arrays[name + OFFSETS]) if name + OFFSETS in arrays else value
        for name, value in arrays.items()
        if not name.endswith(OFFSETS)
    }


def _array_row(scope: str, name: str, value: np.ndarray) -> dict:
    row = {"scope": scope, "name": name, "dtype": value.dtype.str, "shape": list(value.shape)}
    flat = value.ravel()
    if value.dtype.kind in "fb" and value.dtype.itemsize <= 8:
        return row | {"number": flat.astype(np.float64)}
    if value.dtype.kind in "iu":
        return row | {"whole": flat.astype(np.int64)}  # uint64 wraps, and is unwrapped by its dtype
    if value.dtype.kind == "U" or (value.dtype.kind == "O" and all(v is None or isinstance(v, str) for v in flat)):
        return row | {"text": flat.tolist()}
    raise StoreError(f"{scope} {name!r} of dtype {value.dtype} cannot be kept exactly; keep numbers or strings")


def array_of(row: Mapping[str, Any]) -> np.ndarray:
    """The array of a row of `arrays`."""
    dtype = np.dtype(row["dtype"])
    values = row["whole"] if dtype.kind in "iu" else row["text"] if dtype.kind in "UO" else row["number"]
    made = np.array(values, np.int64).astype(dtype) if dtype.kind == "u" else np.array(values, dtype)
    return made.reshape(row["shape"])


def array_table(step: int, scopes: Mapping[str, Mapping[str, object]]) -> Tables:
    """The table `arrays`; scopes: scope -> arrays by name."""
    rows = [row for scope, named in scopes.items() for row in array_rows(scope, named)]
    if not rows:
        return {}
    names = ("scope", "name", "dtype", "shape", "number", "whole", "text")
    columns = {n: [row.get(n) for row in rows] for n in names}
    columns["number"] = [None if v is None else pa.array(v, pa.float64()) for v in columns["number"]]
    return {"arrays": {"step": step, **columns}}


def prompt_tables(pools: Mapping[str, Pool]) -> Tables:
    """The prompts and their exact features; pools: train and, where there is one, eval."""
    parts, scopes = [], {}
    for name, pool in pools.items():
        parts.append({"pool": np.full(len(pool), name, object), "position": np.arange(len(pool)), "prompt_id": pool.ids,
                      "stratum": pool.stratum, "text": pool.text, "answer": pool.answer, "prefix": pool.prefix})  # fmt: skip
        scopes |= {f"{name}.features": pool.features, f"{name}.extra": pool.extra}
    columns = {c: np.concatenate([np.asarray(p[c], object) for p in parts]) for c in parts[0]}
    return {"prompts": columns, **array_table(0, scopes)}


def ask_tables(plan: Plan, pool: Pool) -> Tables:
    """The plan, one row per ask."""
    kinds = {type(None): "prompt", Node: "node", Text: "text", Resume: "resume"}
    start = [kinds[type(s)] for s in plan.start]
    return {
        "asks": {
            "step": plan.step, "ask": np.arange(len(plan)), "round": plan.round, "prompt_id": pool.ids[plan.prompt],
            "n": plan.n, "ordinal": plan.ordinal, "max_tokens": plan.max_tokens, "purpose": plan.purpose,
            "context": plan.context, "start_kind": start, "start": [s and s[0] for s in plan.start],
            "start_role": [s.role if isinstance(s, Text) else None for s in plan.start],
            "why": maps(plan.figures, len(plan)),
        }
    }  # fmt: skip


def rollout_tables(step: int, rollouts: Rollouts, seen: Origins, pool: Pool, row: np.ndarray) -> Tables:
    """Rollouts, completions and reward parts. row (R,) is their place in the step."""
    r = rollouts
    key = {"step": step, "row": row, "rollout_id": r.id}
    parts = list(r.rewards)
    return {
        "rollouts": {
            **key, "prompt_id": pool.ids[r.prompt], "ask": r.ask, "group_id": r.group, "origin": seen.origin,
            "born": r.step, "purpose": r.purpose, "context": r.context, "reward": r.reward, "correct": r.correct,
            "length": r.length, "inherited": seen.inherited, "finish": r.finish, "version": r.version,
            "parent": r.parent, "fork_at": r.fork_at, "failure": r.failure,
            "temperature": r.temperature,
        },
        "completions": {
            **key, "text": r.text, "answer": r.answer, "tokens": r.tokens, "logp": r.logp, "entropy": r.entropy,
            "role": r.role, "proximal": only(r.proximal), "current": r.current,
        },
        "rewards": {
            "step": step, "row": np.tile(row, len(parts)), "rollout_id": np.tile(r.id, len(parts)),
            "part": np.repeat(np.array(parts, object), len(r)),
            "value": np.concatenate([np.asarray(r.rewards[p], float) for p in parts]) if parts else np.empty(0),
        },
    }  # fmt: skip


def fate_table(step: int, rollouts: Rollouts, seen: Origins, pool: Pool, row, fate, reason) -> Tables:
    """What became of the rollouts."""
    columns = {"step": step, "row": row, "rollout_id": rollouts.id, "prompt_id": pool.ids[rollouts.prompt],
               "purpose": rollouts.purpose, "origin": seen.origin, "fate": fate, "reason": reason,
               "tokens": seen.tokens}  # fmt: skip
    return {"fates": columns}


def evaluation_tables(step: int, rollouts: Rollouts, seen: Origins, pool: Pool) -> Tables:
    """An evaluation: rows counted down from -1; like all that is not made for training, it is dropped by its purpose."""
    row = -1 - np.arange(len(rollouts))
    failed = rollouts.failure != ""
    fate = np.where(failed, "failed", "dropped").astype(object)
    reason = np.where(failed, rollouts.failure, "purpose").astype(object)
    return {
        **rollout_tables(step, rollouts, seen, pool, row),
        **fate_table(step, rollouts, seen, pool, row, fate, reason),
    }


def event_table(events: Sequence[tuple[Event, str]], step: int, time: datetime) -> Tables:
    """Events with the source of each."""
    if not events:
        return {}
    rows, sources = [e for e, _ in events], [s for _, s in events]
    columns = {f: [getattr(e, f) for e in rows] for f in ("kind", "subject", "message")}
    return {
        "events": {
            "step": step, "time": time, "position": np.arange(len(rows)), "source": sources, **columns,
            "count": [int(e[3]) for e in rows],
        }
    }  # fmt: skip


def _all_zero(tokens: Ragged | None, n: int) -> np.ndarray:
    """(n,) bool: rows without a token advantage other than 0."""
    if tokens is None:
        return np.ones(n, bool)
    row = np.repeat(np.arange(n), tokens.lengths)
    return np.bincount(row, tokens.values != 0, minlength=n) == 0


def step_tables(step: Step, seen: Origins, pool: Pool, estimator: str, time: datetime) -> Tables:
    """All tables of a finished step but its beliefs and events."""
    s, r, a = step.step, step.rollouts, step.advantage
    row = np.arange(len(r))
    scalars = {k: v for k, v in step.update.items() if np.ndim(v) == 0}
    columns = {k: v for k, v in step.update.items() if np.ndim(v) > 0}
    texts = {k: str(v) for k, v in scalars.items() if isinstance(v, str)}
    new = np.isin(seen.origin, ("generated", "carried"))
    made = {
        "steps": {
            "step": [s], "time": time, "prompts": [pool.ids[step.prompts].tolist()],
            "folded_through": step.plan.folded_through, "n_rollouts": len(r),
            "n_tokens": int((r.length - seen.inherited)[new].sum()), "seconds": float(sum(step.seconds.values())),
        },
        **ask_tables(step.plan, pool),
        **rollout_tables(s, r, seen, pool, row),
        "advantages": {
            "step": s, "row": row, "rollout_id": r.id, "estimator": estimator, "term": "final", "value": a.value,
            "baseline": a.baseline, "weight": a.weight, "keep": a.keep, "reason": a.reason, "tokens": a.tokens,
            "zero": (a.value == 0) & _all_zero(a.tokens, len(r)),
        },
        **fate_table(s, r, seen, pool, row, step.fate, step.fate_reason),
        **array_table(s, {"notes": step.plan.notes, "rollouts.extra": r.extra, "update": columns}),
    }  # fmt: skip
    made["asks"]["step"] = s  # type: ignore[index]
    if scalars:
        value = [None if k in texts or v is None else float(v) for k, v in scalars.items()]
        made["metrics"] = {"step": s, "name": list(scalars), "value": value, "text": [texts.get(k) for k in scalars]}
    if step.seconds:
        made["timings"] = {"step": s, "phase": list(step.seconds), "seconds": list(step.seconds.values())}
    return made


def belief_table(
    step: int, beliefs: Mapping[str, Mapping[str, np.ndarray]], rows: Mapping[str, np.ndarray], pool: Pool
):
    """Beliefs of the chosen rows of the pool. beliefs: method -> column -> (N,)."""
    parts = []
    for method, columns in beliefs.items():
        chosen = rows[method]
        mine = {k: np.asarray(v)[chosen] for k, v in columns.items()}
        own = {k: v for k, v in mine.items() if k not in ("mean", "low", "high")}
        n, null = len(chosen), np.full(len(chosen), np.nan)
        if n:
            parts.append({"method": np.full(n, method, object), "prompt_id": pool.ids[chosen].astype(object),
                          "mean": mine.get("mean", null), "low": mine.get("low", null), "high": mine.get("high", null),
                          "more": maps(own, n)})  # fmt: skip
    if not parts:
        return {}
    plain = {c: np.concatenate([p[c] for p in parts]) for c in ("method", "prompt_id", "mean", "low", "high")}
    return {"beliefs": {"step": step, **plain, "more": pa.concat_arrays([p["more"] for p in parts])}}
