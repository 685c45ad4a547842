"""Rebuild steps and prompt pools from the store, exactly as methods saw them: folding them gives any method's state.

Read in chunks of steps, by whole columns. Token columns come back where they were kept for the whole step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa

from workbench.store.errors import StoreError
from workbench.store.records import Reader
from workbench.store.rows.retention import TOKEN_COLUMNS, missing
from workbench.store.rows.tables import array_of, columns_from_arrays
from workbench.types import Advantage, Event, Node, Plan, Pool, Ragged, Resume, Rollouts, Step, Text

CHUNK = 16
"""Steps read at a time."""

QUERIES = {
    "steps": "SELECT * FROM steps WHERE {here} ORDER BY step, rank",
    "asks": "SELECT * FROM asks WHERE {here} ORDER BY step, rank, ask",
    "rollouts": "SELECT * FROM rollouts WHERE {here} AND row >= 0 ORDER BY step, rank, row",
    "completions": "SELECT * FROM completions WHERE {here} AND row >= 0 ORDER BY step, rank, row",
    "advantages": "SELECT * FROM advantages WHERE {here} AND term = 'final' ORDER BY step, rank, row",
    "fates": "SELECT * FROM fates WHERE {here} AND row >= 0 ORDER BY step, rank, row",
    "rewards": "SELECT * FROM rewards WHERE {here} AND row >= 0 ORDER BY step, rank, part, row",
    "metrics": "SELECT * FROM metrics WHERE {here} ORDER BY step, rank",
    "timings": "SELECT * FROM timings WHERE {here} ORDER BY step, rank",
    "events": "SELECT * FROM events WHERE {here} AND source = 'step' ORDER BY step, rank, position",
    "arrays": "SELECT * FROM arrays WHERE {here} AND scope IN ('notes', 'rollouts.extra', 'update') ORDER BY step, rank",
}
ONCE_FIGURES = ("gdro_bin", "gdro_arm", "gdro_n_bar")
"""Notes that stores of before have among the figures of asks alone."""

DTYPES = {"ask": np.int64, "group_id": np.int64, "born": np.int64, "length": np.int64, "version": np.int64,
          "fork_at": np.int64}  # fmt: skip


def pools(store: Reader, run: str) -> tuple[Pool, Pool]:
    """(training pool, evaluation pool) of a run; without an evaluation set the second is empty."""
    arrays = store.sql(
        "SELECT * FROM arrays WHERE run = $run AND step = 0 AND scope <> 'tokens'", {"run": run}
    ).to_pylist()

    def one(name: str) -> Pool:
        query = "SELECT prompt_id, text, answer, prefix, stratum FROM prompts WHERE run = $run AND pool = $pool"
        rows = store.sql(f"{query} ORDER BY position", {"run": run, "pool": name})

        def named(part: str) -> dict[str, np.ndarray]:
            return {a["name"]: array_of(a) for a in arrays if a["scope"] == f"{name}.{part}"}

        ids, text, answer, prefix, stratum = map(_strings, rows.columns)
        return Pool(ids, text, answer, prefix, stratum, features=named("features"), extra=named("extra"))

    return one("train"), one("eval")


def steps(store: Reader, run: str, pool: Pool | None, since: int, needs: frozenset[str]) -> Iterator[Step]:
    """The steps of a run after `since`, in order; StoreError where a column in needs was not kept."""
    pool = pools(store, run)[0] if pool is None else pool
    found = store.sql("SELECT DISTINCT step FROM steps WHERE run = $run AND step > $since ORDER BY step",
                      {"run": run, "since": since})  # fmt: skip
    numbers = found["step"].to_pylist()
    for i in range(0, len(numbers), CHUNK):
        chunk = numbers[i : i + CHUNK]
        params = {"run": run, "first": chunk[0], "last": chunk[-1]}
        here = "run = $run AND step BETWEEN $first AND $last"
        read = {name: store.sql(q.format(here=here), params).combine_chunks() for name, q in QUERIES.items()}
        at = {name: table["step"].to_numpy() for name, table in read.items()}
        for step in chunk:
            cut = {}
            for name, table in read.items():
                first, last = np.searchsorted(at[name], [step, step + 1])
                cut[name] = table.slice(first, last - first)
            if (n := len(cut["rollouts"]) - len(cut["completions"])) > 0:
                raise StoreError(
                    f"the texts of {n} rollouts of step {step} of {run} are lost, so its states cannot be folded; `workbench store "
                    "check` says which file was damaged"
                )
            if lost := missing({c: cut["completions"][c] for c in TOKEN_COLUMNS}, needs):
                raise StoreError(
                    f"step {step} of {run} has the column {lost[0]} for {lost[1]} of {len(cut['completions'])} rollouts, but "
                    f"the methods need it; only a run recorded with retention='all', or with needs={{'{lost[0]}'}}, can be "
                    "folded for them"
                )
            ranks = np.unique(cut["steps"]["rank"].to_numpy())
            yield merged([_step(step, _of_rank(cut, rank), _Rows(pool)) for rank in ranks])


def merged(parts: Sequence[Step]) -> Step:
    """The parts of a step that ranks recorded, as one: rows and asks in order of rank, each group of one rank.

    Scalars of the update and notes are those of the lowest rank that has them; seconds are of the slowest."""
    if len(parts) == 1:
        return parts[0]
    asks = np.cumsum([0] + [len(p.plan) for p in parts])
    groups = np.cumsum([0] + [int(p.rollouts.group.max(initial=-1)) + 1 for p in parts])
    rows = [
        p.rollouts.with_(ask=np.where(p.rollouts.ask < 0, -1, p.rollouts.ask + a), group=p.rollouts.group + g)
        for p, a, g in zip(parts, asks, groups, strict=False)
    ]
    backwards = parts[::-1]
    columns = [k for k, v in parts[0].update.items() if np.ndim(v) and all(k in p.update for p in parts)]
    update = {k: v for p in backwards for k, v in p.update.items() if not np.ndim(v)}
    tokens = [p.advantage.tokens for p in parts if p.advantage.tokens is not None]
    advantage = {f.name: np.concatenate([getattr(p.advantage, f.name) for p in parts])
                 for f in fields(Advantage) if f.name != "tokens"}  # fmt: skip
    return Step(
        step=parts[0].step,
        prompts=np.concatenate([p.prompts for p in parts]),
        plan=replace(
            Plan.concat([p.plan for p in parts]), notes={k: v for p in backwards for k, v in p.plan.notes.items()}
        ),
        rollouts=Rollouts.concat(rows),
        advantage=Advantage(**advantage, tokens=Ragged.concat(tokens) if len(tokens) == len(parts) else None),
        fate=np.concatenate([p.fate for p in parts]),
        fate_reason=np.concatenate([p.fate_reason for p in parts]),
        update=update | {k: np.concatenate([np.asarray(p.update[k]) for p in parts]) for k in columns},
        seconds={k: max(p.seconds.get(k, 0.0) for p in parts) for p in parts for k in p.seconds},
        events=tuple(e for p in parts for e in p.events),
    )


def _of_rank(cut: Mapping[str, pa.Table], rank: int) -> dict[str, pa.Table]:
    """The rows of a rank: those of a step stand in order of rank."""
    mine = {}
    for name, table in cut.items():
        first, last = np.searchsorted(table["rank"].to_numpy(), [rank, rank + 1])
        mine[name] = table.slice(first, last - first)
    return mine


class _Rows:
    """Prompt ids to rows of a pool."""

    def __init__(self, pool: Pool) -> None:
        self.order = np.argsort(pool.ids.astype(str), kind="stable")
        self.ids = pool.ids.astype(str)[self.order]

    def __call__(self, column) -> np.ndarray:
        wanted = np.asarray(column.to_pylist() if hasattr(column, "to_pylist") else column, dtype=str)
        if not len(wanted):
            return np.empty(0, np.int64)
        if not len(self.ids):
            raise StoreError(f"prompt {wanted[0]} is not in the pool, which is empty")
        place = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        wrong = self.ids[place] != wanted
        if wrong.any():
            raise StoreError(
                f"prompt {wanted[wrong][0]} is not in the pool given; store.pool(run) has the one recorded"
            )
        return self.order[place].astype(np.int64)


def _step(step: int, cut: Mapping[str, pa.Table], rows: _Rows) -> Step:
    head = cut["steps"].to_pylist()[0]
    arrays: dict[str, dict[str, np.ndarray]] = {"notes": {}, "rollouts.extra": {}, "update": {}}
    for row in cut["arrays"].to_pylist():
        arrays[row["scope"]][row["name"]] = array_of(row)
    scalars = {m["name"]: m["value"] if m["text"] is None else m["text"] for m in cut["metrics"].to_pylist()}
    events = [Event(e["kind"], e["subject"], e["message"], e["count"]) for e in cut["events"].to_pylist()]
    return Step(
        step=step,
        prompts=rows(head["prompts"]),
        plan=_plan(step, head, cut["asks"], rows, arrays["notes"]),
        rollouts=_rollouts(cut, rows, arrays["rollouts.extra"]),
        advantage=_advantage(cut["advantages"]),
        fate=_strings(cut["fates"]["fate"]),
        fate_reason=_strings(cut["fates"]["reason"]),
        update=scalars | arrays["update"],
        seconds={t["phase"]: t["seconds"] for t in cut["timings"].to_pylist()},
        events=tuple(events),
    )


def _plan(step: int, head: Mapping, asks: pa.Table, rows: _Rows, notes: Mapping[str, np.ndarray]) -> Plan:
    kinds = zip(*(asks[c].to_pylist() for c in ("start_kind", "start", "start_role")), strict=True)
    start = np.full(len(asks), None, dtype=object)
    for i, (kind, text, role) in enumerate(kinds):
        made = {"prompt": None, "node": Node, "text": Text, "resume": Resume}[kind]
        if made is not None:
            start[i] = Text(text, role) if made is Text else made(text)
    figures = _named(asks["why"])
    return Plan.of_figures(
        figures,
        prompt=rows(asks["prompt_id"]),
        **{c: asks[c].to_numpy().astype(np.int64) for c in ("n", "max_tokens", "ordinal", "round")},
        start=start,
        purpose=_strings(asks["purpose"]),
        context=_strings(asks["context"]),
        notes={**{name: figures[name] for name in ONCE_FIGURES if name in figures}, **notes},
        folded_through=head["folded_through"],
        step=step,
    )


def _rollouts(cut: Mapping[str, pa.Table], rows: _Rows, extra: Mapping[str, np.ndarray]) -> Rollouts:
    narrow, wide, parts = cut["rollouts"], cut["completions"], cut["rewards"]
    number = {c: narrow[c].to_numpy().astype(t) for c, t in DTYPES.items()}
    names = _strings(parts["part"])
    value = _floats(parts["value"])
    return Rollouts(
        id=_strings(narrow["rollout_id"]),
        prompt=rows(narrow["prompt_id"]),
        ask=number["ask"],
        group=number["group_id"],
        step=number["born"],
        text=_strings(wide["text"]),
        answer=_strings(wide["answer"]),
        reward=_floats(narrow["reward"]),
        correct=_floats(narrow["correct"]),
        length=number["length"],
        version=number["version"],
        fork_at=number["fork_at"],
        temperature=_floats(narrow["temperature"]),
        purpose=_strings(narrow["purpose"]),
        context=_strings(narrow["context"]),
        finish=_strings(narrow["finish"]),
        parent=_strings(narrow["parent"]),
        failure=_strings(narrow["failure"]),
        rewards={name: value[names == name] for name in dict.fromkeys(names)},
        **{c: _ragged(wide[c]) for c in TOKEN_COLUMNS if c != "proximal"},
        proximal=_computed(wide["proximal"], wide["tokens"]),
        extra=columns_from_arrays(extra),
    )


def _advantage(table: pa.Table) -> Advantage:
    return Advantage(
        value=_floats(table["value"]),
        keep=table["keep"].to_numpy().astype(bool),
        weight=_floats(table["weight"]),
        baseline=_floats(table["baseline"]),
        reason=_strings(table["reason"]),
        tokens=_ragged(table["tokens"]),
    )


def _strings(column: pa.ChunkedArray) -> np.ndarray:
    return column.to_numpy().astype(object)


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    return column.to_numpy().astype(np.float64)


def _ragged(column: pa.ChunkedArray) -> Ragged | None:
    if not len(column) or column.null_count:  # not given, or not kept for every rollout
        return None
    lists = pa.concat_arrays(column.chunks)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return Ragged(lists.flatten().to_numpy(), offsets - offsets[0])


def _computed(column: pa.ChunkedArray, tokens: pa.ChunkedArray) -> Ragged | None:
    """Log-probabilities of tokens, NaN in rows for which none were computed."""
    kept = _ragged(tokens)
    if kept is None or column.null_count in (0, len(column)):
        return _ragged(column)
    known = np.repeat(column.is_valid().to_numpy(), kept.lengths)
    values = np.full(len(kept.values), np.nan, np.float32)
    values[known] = column.drop_null().combine_chunks().flatten().to_numpy()
    return Ragged(values, kept.offsets)


def _named(column: pa.ChunkedArray) -> dict[str, np.ndarray]:
    if not len(column):
        return {}
    maps = pa.concat_arrays(column.chunks)
    names = [k for k, _ in maps[0].as_py()]
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    items = maps.items.slice(first, last - first).to_numpy(zero_copy_only=False).astype(np.float64)
    return {name: items.reshape(len(maps), len(names))[:, i] for i, name in enumerate(names)}
