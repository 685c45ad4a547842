"""Rollout trees of forked rollouts: from each rollout's parent and place of fork to nodes without forks inside.

Rollouts hold their whole path, so parents and places are all that is needed; what is shared stands in one node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from workbench.numerics.roles import own_tokens, without_hints
from workbench.types import Advantage, Ragged, Rollouts, Step

Credit = Callable[[list[int | None], np.ndarray, np.ndarray], np.ndarray]
"""(parents, rewards (n,) of leaves and NaN elsewhere, log-probabilities (n,)) of a tree's nodes -> advantages (n,)."""

LOST_FATES = ("pruned", "discarded")
"""Fates of rollouts that were given up, and the status of their nodes."""


def nodes_of(rollouts: Rollouts, fate: np.ndarray | None = None) -> dict[str, list[Any]] | None:
    """Columns of the table `nodes` for the groups of a step whose rollouts forked; None where none did.

    A rollout's parent stands before it; a place of fork in what the parent itself had from above is one of the rollout that
    made it. A branch that ends where others go on gets an empty node of its own for the end,
    so that its status is not theirs. Status is that of the fate (R,), None = what the finish says; tokens below which all was
    given up were given up too: discarded where all of that was, else pruned."""
    rollouts = without_hints(rollouts)
    if fate is None:
        fate = np.select([rollouts.finish == "pruned", rollouts.finish == "aborted"], LOST_FATES, "")
    at = {id_: i for i, id_ in enumerate(rollouts.id)}
    parent = np.array([at.get(p, -1) for p in rollouts.parent], np.int64)
    if not (parent >= 0).any():
        return None
    root = np.arange(len(rollouts))
    for i in np.flatnonzero(parent >= 0):
        if parent[i] >= i:
            raise ValueError(f"rollout {rollouts.id[i]} stands before {rollouts.id[parent[i]]}, from which it forked")
        while parent[parent[i]] >= 0 and rollouts.fork_at[i] < rollouts.fork_at[parent[i]]:
            parent[i] = parent[parent[i]]
        root[i] = root[parent[i]]
    groups = zip(rollouts.prompt[root], rollouts.context[root], rollouts.purpose[root], strict=True)
    key = [f"{prompt}|{context}|{purpose}" for prompt, context, purpose in groups]
    forked = {key[i] for i in np.flatnonzero(parent >= 0)}
    start = np.where(parent >= 0, rollouts.fork_at, 0)
    children: dict[int, list[int]] = {}
    for i in np.flatnonzero(parent >= 0):
        children.setdefault(int(parent[i]), []).append(int(i))
    out = _Nodes(rollouts, fate)
    ends: dict[tuple[int, int], str] = {}  # (rollout, tokens) -> node that ends there
    trees: dict[str, str] = {}
    for i in range(len(rollouts)):
        if key[i] not in forked:
            continue
        if key[i] not in trees:
            trees[key[i]] = f"tree:{rollouts.id[root[i]]}"
            out.add(f"{trees[key[i]]}/prompt", trees[key[i]], None, "prompt", i, 0, 0)
        tree, first, last = trees[key[i]], int(start[i]), int(rollouts.length[i])
        above = f"{tree}/prompt" if parent[i] < 0 else ends[int(parent[i]), first]
        ends[i, first] = above
        mine = children.get(i, [])
        inside = {int(start[c]) for c in mine if first < start[c] < last}
        edges = sorted({first, *inside, last})
        for low, high in pairwise(edges):
            ends[i, high] = out.add(f"{rollouts.id[i]}@{low}", tree, ends[i, low], "model", i, low, high)
        if first == last or any(start[c] == last for c in mine):
            out.add(f"{rollouts.id[i]}@{last}.end", tree, ends[i, last], "model", i, last, last)
        out.close(i)
    out.settle()
    return out.columns


def trees_of(step: Step) -> dict[str, list[Any]] | None:
    """`nodes_of` a finished step, with how its nodes were trained; None where nothing forked."""
    nodes = nodes_of(step.rollouts, step.fate)
    return nodes and nodes | trained_nodes(nodes, step)


def trained_nodes(nodes: dict[str, list[Any]], step: Step) -> dict[str, list[Any]]:
    """Columns trained, untrained_reason, trained_rows and trained_leaves of the nodes of a finished step: in how many of its
    training rows an advantage acts on a node's tokens, and of how many rollouts through it one acts on any token. The first is
    1 where a shared segment is trained once (BranchGRPO's token rows), and the second where every rollout is trained with its
    whole path. None for nodes without sampled tokens."""
    advantage = own_tokens(step.advantage, step.rollouts)
    length = without_hints(step.rollouts).length
    if advantage.tokens is None:
        offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        acts = np.repeat(advantage.value != 0, length)
    else:
        offsets, acts = advantage.tokens.offsets, advantage.tokens.values != 0
    acts = acts & np.repeat((step.fate == "trained") & (advantage.weight != 0), np.diff(offsets))
    acting = np.concatenate([[0], np.cumsum(acts)])
    place = {id_: i for i, id_ in enumerate(nodes["node_id"])}
    count, leaves = [0] * len(place), [0] * len(place)
    fates: list[set[str]] = [set() for _ in place]
    for i, k in enumerate(nodes["row"]):
        if k < 0:
            continue
        end, at = int(offsets[k] + length[k]), i
        trained = bool(acting[end] > acting[offsets[k]])
        while nodes["kind"][at] != "prompt":
            begin = end - nodes["n_tokens"][at]
            count[at] += bool(acting[end] > acting[begin])
            leaves[at] += trained
            fates[at].add("zero_advantage" if step.fate[k] == "trained" else str(step.fate[k]))
            end, at = begin, place[nodes["parent_id"][at]]
    made: dict[str, list[Any]] = {"trained": [], "untrained_reason": [], "trained_rows": [], "trained_leaves": []}
    columns = zip(count, leaves, fates, nodes["kind"], nodes["n_tokens"], strict=True)
    for n, passing, reasons, kind, size in columns:
        known = kind == "model" and size > 0
        why = "zero_advantage" if "zero_advantage" in reasons else reasons.pop() if len(reasons) == 1 else "all below"
        made["trained"].append(n > 0 if known else None)
        made["untrained_reason"].append(None if not known else "" if n else why)
        made["trained_rows"].append(n if known else None)
        made["trained_leaves"].append(passing if known else None)
    return made


def credited(advantage: Advantage, rollouts: Rollouts, credit: Credit) -> Advantage:
    """Advantages of nodes as those of tokens, where rollouts forked: every shared token once, in the first row that passes
    it; value (R,) is that of a row's last node. Rows outside trees, and steps without any, keep theirs."""
    nodes = nodes_of(rollouts)
    if nodes is None:
        return advantage
    offsets = np.concatenate([[0], np.cumsum(rollouts.length)]).astype(np.int64)
    row = np.repeat(np.arange(len(rollouts)), rollouts.length)
    tokens = advantage.value[row] if advantage.tokens is None else advantage.tokens.values.copy()
    value = advantage.value.copy()
    place = {id_: i for i, id_ in enumerate(nodes["node_id"])}
    tree = np.array(nodes["tree_id"], dtype=object)
    for name in dict.fromkeys(tree):
        mine = np.flatnonzero(tree == name)
        inside = {int(i): k for k, i in enumerate(mine)}
        above = [None if (p := nodes["parent_id"][i]) is None else inside[place[p]] for i in mine]
        leaf = [nodes["row"][i] for i in mine]
        reward = np.array([float(rollouts.reward[k]) if k >= 0 and advantage.keep[k] else np.nan for k in leaf])
        a = credit(above, reward, np.array([nodes["behaviour_logprob"][i] or 0.0 for i in mine]))
        seen: set[int] = set()
        for k in sorted(k for k in leaf if k >= 0):
            path = [leaf.index(k)]
            while (up := above[path[-1]]) is not None:
                path.append(up)
            path.pop()  # the prompt
            at = int(offsets[k])
            for i in reversed(path):
                length = nodes["n_tokens"][mine[i]]
                tokens[at : at + length] = 0.0 if i in seen else a[i]
                seen.add(i)
                at += length
            value[k] = a[path[0]] if path else 0.0
    return replace(advantage, value=value, tokens=Ragged(tokens, offsets))


class _Nodes:
    """Rows of `nodes`, column by column."""

    def __init__(self, rollouts: Rollouts, fate: np.ndarray) -> None:
        self.rollouts, self.fate = rollouts, fate
        self.forced = rollouts.extra.get("forced", np.zeros(len(rollouts), bool))
        names = (
            "node_id", "tree_id", "parent_id", "kind", "n_tokens", "row", "status", "reason", "choice", "policy_version",
            "temperature", "behaviour_logprob", "entropy_at_fork", "entropy_mean",
        )  # fmt: skip
        self.columns: dict[str, list[Any]] = {n: [] for n in names}

    def add(self, id_: str, tree: str, parent: str | None, kind: str, i: int, low: int, high: int) -> str:
        """Tokens low..high of the path of rollout i; returns the id."""
        r = self.rollouts
        inside = high > low
        logp = float(r.logp.row(i)[low:high].sum()) if inside and r.logp is not None else None
        entropy = r.entropy.row(i)[low:high] if inside and r.entropy is not None else None
        first = low == max(int(r.fork_at[i]), 0) and r.parent[i] != ""
        row = {
            "node_id": id_, "tree_id": tree, "parent_id": parent, "kind": kind, "n_tokens": high - low, "row": -1,
            "status": "live", "reason": None, "policy_version": int(r.version[i]),
            "choice": ("forced" if first and self.forced[i] else "sampled") if kind == "model" else None,
            "temperature": None if kind != "model" or np.isnan(r.temperature[i]) else float(r.temperature[i]),
            "behaviour_logprob": logp,
            "entropy_at_fork": None if entropy is None else float(entropy[0]),
            "entropy_mean": None if entropy is None else float(entropy.mean()),
        }  # fmt: skip
        for name, value in row.items():
            self.columns[name].append(value)
        return id_

    def close(self, i: int) -> None:
        """The node added last is where rollout i ends."""
        self.columns["row"][-1] = i
        if self.fate[i] in LOST_FATES:
            self.columns["status"][-1] = str(self.fate[i])
            reasons = self.rollouts.extra.get("cut_reason")
            self.columns["reason"][-1] = str(self.fate[i]) if reasons is None else str(reasons[i])

    def settle(self) -> None:
        """Give up the nodes below which all was given up."""
        c = self.columns
        below: dict[str, list[int]] = {}
        for i in reversed(range(len(c["node_id"]))):  # children stand behind their parents
            children = below.get(c["node_id"][i], ())
            status, reason = ({c[name][k] for k in children} for name in ("status", "reason"))
            if c["kind"][i] == "model" and status and "live" not in status:
                c["status"][i] = "discarded" if status == {"discarded"} else "pruned"
                c["reason"][i] = reason.pop() if len(reason) == 1 else "all below"
            below.setdefault(c["parent_id"][i], []).append(i)
