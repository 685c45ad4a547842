"""Tree-structured rollouts as rows: nodes, the decisions made at them, and their advantages.

A tree goes beside its step, as columns; the store fills in what follows from parents and lengths, and refuses what does
not hold: parents first, every child starts where its parent ends, a rollout is as long as its path, and every generated
token lies on the path of a rollout. So a shared prefix counts once in the ledger, with the first row that passes it.
Flat rollouts need nothing: the view `trees` derives their root and leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from workbench.numerics.trees import Segment, derived, subtree_values
from workbench.store.errors import LedgerError, StoreError
from workbench.store.rows.ledger import Origins
from workbench.store.schema import tables as declared
from workbench.types import Pool, Rollouts, Step

Given = Mapping[str, Sequence | np.ndarray | pa.Array | pa.ChunkedArray] | pa.Table
"""Columns by name, of equal length; those of the declared table, without run, rank, seq and step."""
Columns = dict[str, list[Any]]
KEY = ("run", "rank", "seq", "step")
KINDS = ("prompt", "model", "tool", "feedback", "probe")
STATUSES = ("live", "pruned", "discarded")
GENERATED = ("model", "probe")
MOST_DECISIONS = 1024
"""Decisions kept of a step; above it those that changed nothing are sampled."""


class Forest:
    """The trees of a step, checked; raises LedgerError where a law is broken, naming the node."""

    def __init__(self, step: int, nodes: Given, rollouts: Rollouts) -> None:
        self.name, self.rollouts = f"step {step}", rollouts
        c = _columns("nodes", nodes, ("node_id", "tree_id", "parent_id", "n_tokens"))
        n = len(c["node_id"])
        self.columns: Columns = {"kind": ["model"] * n, "status": ["live"] * n, "row": [-1] * n} | c
        c = self.columns
        self.row = np.array([-1 if r is None else r for r in c["row"]], np.int64)
        self.at = {id_: i for i, id_ in enumerate(c["node_id"])}
        if len(self.at) != n:
            raise LedgerError(f"{self.name}: node ids must be unique in the step; {n - len(self.at)} stand there twice")
        for what, allowed in (("kind", KINDS), ("status", STATUSES)):
            if wrong := sorted(set(c[what]) - set(allowed)):
                raise LedgerError(f"{self.name}: {what} {wrong[0]!r} of a node is not one of {', '.join(allowed)}")
        if (self.row >= len(rollouts)).any():
            raise LedgerError(f"{self.name}: a node names rollout row {self.row.max()} of {len(rollouts)}")
        rows, times = np.unique(self.row[self.row >= 0], return_counts=True)
        if (times > 1).any():
            raise LedgerError(f"{self.name}: rollout {rollouts.id[rows[times > 1][0]]} ends in {times.max()} nodes")
        if "reward" not in c:
            reward = rollouts.reward
            c["reward"] = [None if r < 0 or np.isnan(reward[r]) else float(reward[r]) for r in self.row]
        self.trees: dict[str, list[int]] = {}
        for i, tree in enumerate(c["tree_id"]):
            self.trees.setdefault(tree, []).append(i)
        self._derive()
        self.end = {row: i for i, row in enumerate(self.row.tolist()) if row >= 0}
        self.paths = {row: self._path(self.end[row]) for row in sorted(self.end)}
        self._check_rows()

    def segments(self, tree: str) -> list[Segment]:
        """A tree in the form of the pure functions."""
        c = self.columns
        none = [None] * len(c["node_id"])
        logprob, copy = c.get("behaviour_logprob", none), c.get("duplicate_of", none)
        return [
            Segment(c["node_id"][i], c["parent_id"][i], c["kind"][i], int(c["n_tokens"][i]), logprob[i],
                    c["reward"][i], c["status"][i], copy[i])
            for i in self.trees[tree]
        ]  # fmt: skip

    def _path(self, i: int) -> list[int]:
        """Places of the generated nodes from a node up to the root."""
        path = [i]
        while (parent := self.columns["parent_id"][path[-1]]) is not None:
            path.append(self.at[parent])
        return [j for j in path if self.columns["kind"][j] in GENERATED]

    def counted_once(self, seen: Origins) -> Origins:
        """The origins with every shared token booked to the first row that passes it; padding copies cost nothing."""
        inherited, visited = seen.inherited.copy(), set()
        c = self.columns
        copy = c.get("duplicate_of") or [None] * len(c["node_id"])
        for row, path in self.paths.items():
            if seen.origin[row] == "generated":
                shared = [j for j in path if j in visited or copy[j] is not None]
                inherited[row] += sum(int(c["n_tokens"][j]) for j in shared)
            visited.update(path)
        tokens = np.where(seen.origin == "generated", self.rollouts.length - inherited, self.rollouts.length)
        return Origins(seen.origin, inherited, tokens)

    def table(self, step: int, pool: Pool) -> Mapping[str, object]:
        """The rows of `nodes`."""
        first = {t: next(self.row[i] for i in members if self.row[i] >= 0) for t, members in self.trees.items()}
        row = np.array([first[tree] for tree in self.columns["tree_id"]], np.int64)
        return {
            **self.columns,
            "step": step,
            "row": [int(r) if r >= 0 else None for r in self.row],
            "prompt_id": pool.ids[self.rollouts.prompt[row]],
            "group_id": self.rollouts.group[row],
        }

    def _derive(self) -> None:
        """Fill or check what follows: places, depths, values; status is that of the nearest cut, its own or above."""
        c, n = self.columns, len(self.columns["node_id"])
        filled: Columns = {k: [None] * n for k in ("segment_depth", "fork_depth", "token_start", "n_leaves", "value")}
        for tree, members in self.trees.items():
            segments = self.segments(tree)
            try:
                places = derived(segments).rows
            except ValueError as error:
                raise LedgerError(f"{self.name}, tree {tree}: {error}") from error
            roots = [s.id for s in segments if s.parent is None]
            if len(roots) != 1 or segments[0].kind != "prompt":
                raise LedgerError(f"{self.name}, tree {tree}: a tree has one root, its prompt, not {roots}")
            for i, place, value in zip(members, places, subtree_values(segments), strict=True):
                for k in ("segment_depth", "fork_depth", "token_start"):
                    filled[k][i] = getattr(place, k)
                filled["n_leaves"][i], filled["value"][i] = value.n_leaves, value.value
                above = c["parent_id"][i]
                if above is not None and c["status"][i] == "live":
                    c["status"][i] = c["status"][self.at[above]]
        for i, (given, right) in enumerate(zip(c.get("token_start", ()), filled["token_start"], strict=False)):
            if given is not None and given != right:
                raise LedgerError(
                    f"{self.name}: node {c['node_id'][i]} says it starts at token {given}, but its parent ends at {right}"
                )
        self.columns = filled | {k: v for k, v in c.items() if k not in ("token_start", "segment_depth", "fork_depth")}

    def _check_rows(self) -> None:
        """A row is as long as its path, a tree has one prompt, and no generated token is outside all rows."""
        c, r = self.columns, self.rollouts
        for row, path in self.paths.items():
            tokens = sum(int(c["n_tokens"][j]) for j in path)
            if tokens != r.length[row]:
                raise LedgerError(
                    f"{self.name}: rollout {r.id[row]} has {r.length[row]} tokens, the path to its node "
                    f"{c['node_id'][self.end[row]]} has {tokens}"
                )
        covered = set().union(*self.paths.values())
        for tree, members in self.trees.items():
            prompts = {int(r.prompt[self.row[i]]) for i in members if self.row[i] >= 0}
            if len(prompts) != 1:
                raise LedgerError(f"{self.name}, tree {tree}: its rollouts are of {len(prompts)} prompts, not of one")
        for i, kind in enumerate(c["kind"]):
            if kind in GENERATED and c["n_tokens"][i] and i not in covered:
                raise LedgerError(
                    f"{self.name}: the {c['n_tokens'][i]} tokens of node {c['node_id'][i]} are on the path of no rollout; "
                    "a branch that was cut comes back as a row with finish 'pruned'"
                )


def tables(
    step: Step, forest: Forest | None, decisions: Given | None, scores: Given | None, pool: Pool
) -> dict[str, Mapping[str, object]]:
    """Rows of nodes, decisions and advantages of what was given beside a step."""
    made = {}
    if forest is not None:
        made["nodes"] = forest.table(step.step, pool)
    if decisions is not None:
        made["decisions"] = decision_table(step.step, decisions, forest, step.rollouts)
    if scores is not None:
        made["advantages"] = score_table(step.step, scores, forest, step.rollouts)
    return made


def decision_table(step: int, decisions: Given, forest: Forest | None, rollouts: Rollouts) -> Mapping[str, object]:
    """The rows of `decisions`; of more than MOST_DECISIONS those without effect are thinned, with their weight."""
    c = _columns("decisions", decisions, ("node_id", "kind", "outcome"))
    _known(f"step {step}: a decision", c["node_id"], forest, rollouts)
    n = len(c["node_id"])
    position, weight = np.arange(n), np.asarray(c.get("weight", np.ones(n)), float)
    idle = np.array([o == "no" for o in c["outcome"]], bool)
    room = max(MOST_DECISIONS - int((~idle).sum()), 1)
    if n > MOST_DECISIONS and idle.sum() > room:
        every = -(-int(idle.sum()) // room)
        chosen = np.flatnonzero(idle)[::every]
        weight[chosen] *= idle.sum() / len(chosen)
        position = np.sort(np.concatenate([np.flatnonzero(~idle), chosen]))
    made = {k: [v[i] for i in position] for k, v in c.items()}
    return made | {"step": step, "position": position, "weight": weight[position]}


def score_table(step: int, scores: Given, forest: Forest | None, rollouts: Rollouts) -> Mapping[str, object]:
    """The rows of `advantages` that are said of nodes."""
    c = _columns("advantages", scores, ("node_id", "estimator", "term", "value"))
    _known(f"step {step}: a score", c["node_id"], forest, rollouts)
    if "final" in c["term"]:
        raise StoreError("the term 'final' belongs to rollouts: it is what entered the loss; name the node's otherwise")
    row = [None if r is None or r < 0 else int(r) for r in c.get("row", [None] * len(c["term"]))]
    leaf = [None if r is None else rollouts.id[r] for r in row]
    return {**c, "step": step, "row": row, "rollout_id": leaf}


def _columns(table: str, given: Given, required: Sequence[str]) -> Columns:
    """Columns as lists of plain values; raises StoreError for columns that the table lacks, or that are missing."""
    if not isinstance(given, Mapping):
        given = dict(zip(given.column_names, given.columns, strict=True))
    names = list(given)
    unknown = sorted(set(names) - set(declared()[table].names) | set(names) & set(KEY))
    missing = [n for n in required if n not in names]
    if unknown or missing:
        wrong = f"has no column {', '.join(unknown)} to give" if unknown else f"needs the columns {', '.join(missing)}"
        raise StoreError(
            f"table {table} {wrong}; it takes {', '.join(n for n in declared()[table].names if n not in KEY)}"
        )
    made: Columns = {
        n: list(np.asarray(column, object)) if isinstance(column, (Sequence, np.ndarray)) else column.to_pylist()
        for n, column in given.items()
    }
    if len({len(v) for v in made.values()}) > 1:
        raise StoreError(f"columns of {table} differ in length: { {n: len(v) for n, v in made.items()} }")
    maps = {f.name for f in declared()[table] if pa.types.is_map(f.type)}
    return {n: [list(dict(x or {}).items()) for x in v] if n in maps else v for n, v in made.items()}


def _known(what: str, ids: Sequence[str], forest: Forest | None, rollouts: Rollouts) -> None:
    known = set(forest.at if forest else ()) | set(rollouts.id.tolist())
    if wrong := sorted(set(map(str, ids)) - known):
        raise StoreError(f"{what} names {wrong[0]!r}, which is neither a node nor a rollout of the step")
