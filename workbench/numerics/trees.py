"""Rollout trees as lists of segments: depth, values and token accounts.

A segment is a run of tokens with one author and no fork inside. A flat rollout is the trivial case: one prompt and one
model segment under it. Functions take segments or mappings with the same keys, parents before children, and return new
records; nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias


class Segment(NamedTuple):
    """One row of the node table, as far as counting needs it.

    kind: prompt, model, tool, feedback, probe. status: live, pruned, discarded; any but live holds for what is below, as
    far as that is live. reward: of a leaf, or a probe's verdict; None where the verifier failed. logprob: nats, summed
    over the segment. duplicate_of: a padding copy that was not generated."""

    id: str
    parent: str | None = None
    kind: str = "model"
    n_tokens: int = 0
    logprob: float | None = None
    reward: float | None = None
    status: str = "live"
    duplicate_of: str | None = None


Nodes: TypeAlias = Iterable[Segment | Mapping]


class DerivedRow(NamedTuple):
    """Place of a segment: edges and forks above it, tokens before it, children of any status."""

    id: str
    segment_depth: int
    fork_depth: int
    token_start: int
    n_children: int


class Derived(NamedTuple):
    """What follows from parents and lengths alone: one row per segment, and the ids of the leaves in order."""

    rows: tuple[DerivedRow, ...]
    leaves: tuple[str, ...]


class TokenAccount(NamedTuple):
    """Where the tokens went, each counted once; sharing = flat_equivalent / kept, 1 where nothing is kept."""

    generated: int
    kept: int
    pruned: int
    discarded: int
    context: int
    probe: int
    flat_equivalent: int
    sharing: float
    n_leaves: int


class ValueRow(NamedTuple):
    """Rewarded live leaves below a segment (itself included) and their mean reward; None without any."""

    id: str
    n_leaves: int
    value: float | None


class _Tree:
    """Segments by id with children and inherited status; raises ValueError where parents do not stand first."""

    def __init__(self, nodes: Nodes) -> None:
        self.segments = [n if isinstance(n, Segment) else _segment(n) for n in nodes]
        self.by_id: dict[str, Segment] = {}
        self.children: dict[str, list[Segment]] = {}
        self.status: dict[str, str] = {}
        for s in self.segments:
            if s.id in self.by_id:
                raise ValueError(f"segment {s.id!r} appears twice")
            if s.parent is not None and s.parent not in self.by_id:
                raise ValueError(f"parent {s.parent!r} of segment {s.id!r} must stand before it")
            self.by_id[s.id] = s
            self.children[s.id] = []
            above = self.status[s.parent] if s.parent is not None else "live"
            self.status[s.id] = above if s.status == "live" else s.status
            if s.parent is not None:
                self.children[s.parent].append(s)

    def path(self, id_: str) -> list[Segment]:
        if id_ not in self.by_id:
            raise ValueError(f"no segment {id_!r}")
        path = [self.by_id[id_]]
        while path[-1].parent is not None:
            path.append(self.by_id[path[-1].parent])
        return path[::-1]

    def leaves(self) -> list[Segment]:
        """Live, neither prompt nor probe, without a live child other than probes."""
        return [
            s
            for s in self.segments
            if self.status[s.id] == "live"
            and s.kind not in ("prompt", "probe")
            and not any(self.status[c.id] == "live" and c.kind != "probe" for c in self.children[s.id])
        ]


def _segment(node: Mapping) -> Segment:
    return Segment(**{name: node[name] for name in Segment._fields if name in node})


def derived(nodes: Nodes) -> Derived:
    """Depth, fork depth, first token and number of children of every segment, and the leaves."""
    tree = _Tree(nodes)
    rows: dict[str, DerivedRow] = {}
    for s in tree.segments:
        n_children = len(tree.children[s.id])
        if s.parent is None:
            rows[s.id] = DerivedRow(s.id, 0, 0, 0, n_children)
            continue
        above = rows[s.parent]
        rows[s.id] = DerivedRow(
            s.id,
            above.segment_depth + 1,
            above.fork_depth + (above.n_children > 1),
            above.token_start + tree.by_id[s.parent].n_tokens,
            n_children,
        )
    return Derived(tuple(rows.values()), tuple(s.id for s in tree.leaves()))


def token_account(nodes: Nodes) -> TokenAccount:
    """Tokens generated, kept, pruned, discarded, shown by tools, spent on probes, and what flat rollouts would cost.

    Padding copies cost nothing and are no leaves here; prompt tokens are not generated."""
    tree = _Tree(nodes)
    real = [s for s in tree.segments if s.duplicate_of is None]
    paths = [tree.path(s.id) for s in tree.leaves() if s.duplicate_of is None]
    on_path = {s.id for path in paths for s in path}

    def tokens(kinds: Sequence[str], status: str | None = None) -> int:
        return sum(s.n_tokens for s in real if s.kind in kinds and status in (None, tree.status[s.id]))

    kept = sum(s.n_tokens for s in real if s.kind == "model" and s.id in on_path)
    flat = sum(s.n_tokens for path in paths for s in path if s.kind == "model")
    return TokenAccount(
        generated=tokens(("model",)),
        kept=kept,
        pruned=tokens(("model",), "pruned"),
        discarded=tokens(("model",), "discarded"),
        context=tokens(("tool", "feedback"), "live"),
        probe=tokens(("probe",)),
        flat_equivalent=flat,
        sharing=flat / kept if kept else 1.0,
        n_leaves=len(paths),
    )


def subtree_values(nodes: Nodes) -> tuple[ValueRow, ...]:
    """Mean reward of the live rewarded leaves below every segment; a padding copy counts again, as in its group."""
    tree = _Tree(nodes)
    total = {s.id: 0.0 for s in tree.segments}
    count = {s.id: 0 for s in tree.segments}
    for leaf in tree.leaves():
        if leaf.reward is None or leaf.reward != leaf.reward:
            continue
        for s in tree.path(leaf.id):
            total[s.id] += leaf.reward
            count[s.id] += 1
    return tuple(ValueRow(i, n, total[i] / n if n else None) for i, n in count.items())
