"""Rollout tree of one group: its segments with place, value and fate, their texts, and what the tree cost. No widgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.numerics.trees import Segment, TokenAccount, token_account
from workbench.store.token_bytes import joined, unknown
from workbench.views.data.groups import GroupFacts, shared

if TYPE_CHECKING:
    from workbench.views.data.run import RunData

GENERATED = ("model", "probe")
TEXT = 60_000
"""Characters of segments sent with a tree, about; a large tree gets less of each."""


class Branch(NamedTuple):
    """A segment as it is drawn.

    parent: place of its parent in the list, -1 for the root. start, n: generated tokens before it, and its own; n of a
    prompt or of a tool is counted too. y: row, leaves counted from 0 and parents in the middle of their children.
    leaves: rollouts that pass it. value: mean reward of the live leaves below. advantage: mean of the advantages on its
    tokens where the estimator has them, else of the rollouts through it; None where no rollout through it was trained.
    entropy: nats, of the distribution its first token was drawn from. rollout: the one that ends here, "" for none;
    opens: the one that a click leads to. text: its start; whole: whether that is all of it. tests: forks and cuts that were
    tested on it, in words; training: in how many rows it was trained, or why not, "" where not known."""

    id: str
    parent: int
    kind: str
    start: int
    n: int
    y: float
    leaves: int
    status: str
    reason: str
    value: float | None
    advantage: float | None
    entropy: float | None
    choice: str
    rollout: str
    opens: str
    fate: str
    correct: float | None
    text: str = ""
    whole: bool = True
    tests: str = ""
    training: str = ""


class Cost(NamedTuple):
    """Where the tokens of a tree went, each counted once: shared and own are those kept, on the path of several leaves
    and of one; flat: what its rollouts would have cost one by one."""

    shared: int
    own: int
    pruned: int
    discarded: int
    probe: int
    context: int
    flat: int

    @property
    def generated(self) -> int:
        """Tokens that were made, as the store counts them."""
        return self.shared + self.own + self.pruned + self.discarded + self.probe


class Tree(NamedTuple):
    """A group as a tree. tokens: length of its longest path, forks: places where rollouts part, the prompt left out."""

    facts: GroupFacts
    branches: tuple[Branch, ...]
    cost: Cost
    tokens: int
    forks: int
    n_leaves: int
    spelled: bool
    """Whether the tokens were kept and the vocabulary is known, so that segments can be read."""
    segments: Mapping[str, list] = {}
    """Parameters of `page_segments` beside the run and the place."""


def tree(data: RunData, facts: GroupFacts) -> Tree:
    """The tree of a group, asked once for all viewers."""

    def make() -> Tree:
        where = {"step": facts.step, "rank": facts.rank}
        rows = data.ask("page_tree", group=facts.group, **where).to_pylist()
        if not rows:
            return Tree(facts, (), Cost(0, 0, 0, 0, 0, 0, 0), 0, 0, 0, False)
        layout = TreeLayout(rows)
        segments = layout.segments()
        texts = data.ask("page_segments", **where, **segments).to_pylist() if segments["node"] else []
        tests = data.ask("page_tests", group=facts.group, **where).to_pylist()
        return layout.tree(facts, texts, tests)._replace(segments=segments)

    return shared(data, ("tree", facts.step, facts.rank, facts.group), make)


class TreeLayout:
    """The rows of a tree put in order: parents first, children in the order they are drawn."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        rows = rooted(rows)
        at = {r["node_id"]: i for i, r in enumerate(rows)}
        self.parent = [-1 if r["parent_id"] is None else at[r["parent_id"]] for r in rows]
        self.children: list[list[int]] = [[] for _ in rows]
        for i, p in enumerate(self.parent):
            if p >= 0:
                self.children[p].append(i)
        self.rows = rows
        self.start = [0] * len(rows)
        for i, p in enumerate(self.parent):  # parents stand first
            if p >= 0:
                own = rows[p]["n_tokens"] if rows[p]["kind"] != "prompt" else 0
                self.start[i] = self.start[p] + own
        self.generated = [0] * len(rows)
        for i, p in enumerate(self.parent):
            if p >= 0:
                own = rows[p]["n_tokens"] if rows[p]["kind"] in GENERATED else 0
                self.generated[i] = self.generated[p] + own
        self.order = self._order()
        self.through: list[list[int]] = [[] for _ in rows]  # places of the nodes below in which rollouts end
        for i in reversed(self.order):
            mine = [i] if rows[i]["row"] is not None and rows[i]["row"] >= 0 else []
            self.through[i] = mine + [e for c in self.children[i] for e in self.through[c]]

    def _order(self) -> list[int]:
        """Places in the order of drawing: each node, then its children."""
        found, waiting = [], [i for i, p in reversed(list(enumerate(self.parent))) if p < 0]
        while waiting:
            i = waiting.pop()
            found.append(i)
            waiting += reversed(self.children[i])
        return found

    def segments(self) -> dict[str, list]:
        """The parameters of `page_segments`: every segment once for each rollout through it, its text once."""
        made: dict[str, list] = {k: [] for k in ("node", "row", "first", "last", "cut")}
        generated = [i for i, r in enumerate(self.rows) if r["kind"] in GENERATED and r["n_tokens"] and self.through[i]]
        cut = max(TEXT // max(len(generated), 1) // 4, 12)
        for i in generated:
            first = self.generated[i]
            for k, end in enumerate(self.through[i]):
                made["node"].append(self.rows[i]["node_id"])
                made["row"].append(self.rows[end]["row"])
                made["first"].append(first)
                made["last"].append(first + self.rows[i]["n_tokens"])
                made["cut"].append(0 if k else cut)
        return made

    def tree(self, facts: GroupFacts, texts: Sequence[dict[str, Any]], tests: Sequence[dict[str, Any]] = ()) -> Tree:
        """The tree with what its segments say, and what was tested on them."""
        tested = self._tested(tests)
        y, leaf = self._heights()
        words, credit, spelled = self._words(texts)
        branches = []
        for i in self.order:
            r, ends = self.rows[i], self.through[i]
            trained = [self.rows[e]["advantage"] for e in ends if self.rows[e]["fate"] == "trained"]
            advantage = credit.get(r["node_id"], sum(trained) / len(trained) if trained else None)
            text, whole = words.get(r["node_id"], ("", True))
            opens = next((self.rows[e]["rollout_id"] for e in ends if self.rows[e]["rollout_id"]), None)
            branches.append(Branch(
                r["node_id"], -1, r["kind"], self.start[i], r["n_tokens"], y[i], max(len(ends), 1), r["status"] or "live",
                r["reason"] or "", r["value"], advantage, r["entropy_at_fork"], r["choice"] or "", r["rollout_id"] or "",
                opens or "", _fate(r), r["correct"], text, whole, tested.get(i, ""), _training(r),
            ))  # fmt: skip
        place = {i: k for k, i in enumerate(self.order)}
        branches = [b._replace(parent=place.get(self.parent[i], -1)) for b, i in zip(branches, self.order, strict=True)]
        forks = sum(len(c) > 1 and self.rows[i]["kind"] != "prompt" for i, c in enumerate(self.children))
        tokens = max((b.start + b.n for b in branches if b.kind != "prompt"), default=0)
        return Tree(facts, tuple(branches), self._cost(), tokens, forks, leaf, spelled)

    def _tested(self, tests: Sequence[dict[str, Any]]) -> dict[int, str]:
        """In words, by place: how often a fork or a cut was tested on a segment, and what came of it."""
        ends = {r["rollout_id"]: i for i, r in enumerate(self.rows) if r["rollout_id"]}
        nodes = {r["node_id"]: i for i, r in enumerate(self.rows)}
        made: dict[tuple[int, str], list] = {}
        for t in tests:
            i, at = ends.get(t["node_id"], nodes.get(t["node_id"], -1)), t["at_token"] or 0
            while t["node_id"] in ends and self.parent[i] > 0 and at <= self.generated[i]:
                i = self.parent[i]  # the segment of the rollout's path that made this token
            if i >= 0:
                count = made.setdefault((i, t["kind"]), [0.0, []])
                count[0] += t["weight"] or 1.0
                if t["outcome"] != "no":
                    given = ", ".join(f"{k} {v:.3g}" for k, v in dict(t["inputs"] or ()).items() if v is not None)
                    count[1].append(f"{t['outcome']} at token {at}" + (f" ({given})" if given else ""))
        lines: dict[int, list[str]] = {}
        for (i, kind), (n, found) in made.items():
            lines.setdefault(i, []).append(
                f"{kind} tested {'about ' if n % 1 else ''}{n:,.0f}\u00d7: {', '.join(found[:3]) or 'nothing done'}"
            )
        return {i: "; ".join(words) for i, words in lines.items()}

    def _heights(self) -> tuple[list[float], int]:
        """Row of every node, and the number of ends."""
        y, leaf = [0.0] * len(self.rows), 0
        for i in self.order:
            if not self.children[i]:
                y[i], leaf = float(leaf), leaf + 1
        for i in reversed(self.order):
            if kids := self.children[i]:
                y[i] = (y[kids[0]] + y[kids[-1]]) / 2
        return y, leaf

    def _words(self, texts: Sequence[dict[str, Any]]) -> tuple[dict[str, tuple[str, bool]], dict[str, float], bool]:
        """Text and mean token advantage by node. A shared token is trained by one rollout or by several: what acts on it
        is the mean over those that act at all."""
        length = {r["node_id"]: r["n_tokens"] for r in self.rows}
        whole_answer = {
            r["node_id"]: i for i, r in enumerate(self.rows) if self.generated[i] == 0 and not self.children[i]
        }
        words: dict[str, tuple[str, bool]] = {}
        acting: dict[str, list[float]] = {}
        for s in texts:
            id_ = s["node_id"]
            if s["credit"] is not None:
                acting.setdefault(id_, [])
                acting[id_] += [s["credit"]] if s["credit"] else []
            if s["pieces"]:
                ids, pieces = s["tokens"], s["pieces"]
                known = [unknown(t) if p is None else p for t, p in zip(ids, pieces, strict=True)]
                words[id_] = joined(known), len(pieces) >= length[id_]
            elif s["text"] and id_ in whole_answer:
                words[id_] = s["text"], False
            elif s["tokens"]:
                words[id_] = "tokens " + " ".join(map(str, s["tokens"])), len(s["tokens"]) >= length[id_]
        spelled = any(s["pieces"] for s in texts)
        return words, {k: sum(v) / len(v) if v else 0.0 for k, v in acting.items()}, spelled

    def _cost(self) -> Cost:
        account: TokenAccount = token_account(
            Segment(r["node_id"], r["parent_id"], r["kind"], r["n_tokens"], None, r["reward"], r["status"] or "live",
                    r["duplicate_of"])
            for r in self.rows
        )  # fmt: skip
        kept = shared_kept = 0
        for i, r in enumerate(self.rows):
            live = [e for e in self.through[i] if (self.rows[e]["status"] or "live") == "live"]
            if r["kind"] == "model" and live and r["duplicate_of"] is None:
                kept += r["n_tokens"]
                shared_kept += r["n_tokens"] if len(live) > 1 else 0
        return Cost(shared_kept, account.kept - shared_kept, account.pruned, account.discarded, account.probe,
                    account.context, account.flat_equivalent)  # fmt: skip


def _training(r: Mapping[str, Any]) -> str:
    n, why = r["trained_rows"], r["untrained_reason"]
    if n is None:
        return ""
    if n:
        return f"trained in {n:,} row{'s' * (n != 1)}"
    return "trained with zero advantage" if why == "zero_advantage" else f"not trained: {why}"


def rooted(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows under one root, parents first. A prompt that several groups share has its root in one of them; the
    others, and what lost its parent, hang from a root made here."""
    known = {r["node_id"] for r in rows}
    lost = [r for r in rows if r["parent_id"] is None or r["parent_id"] not in known]
    if len(lost) == 1 and lost[0]["kind"] == "prompt":
        return list(rows)
    blank = dict.fromkeys(rows[0])
    root = blank | {"node_id": "", "kind": "prompt", "n_tokens": 0, "status": "live", "n_leaves": 0}
    hung = {r["node_id"] for r in lost}
    return [root, *({**r, "parent_id": ""} if r["node_id"] in hung else r for r in rows)]


def _fate(row: dict[str, Any]) -> str:
    reason = (row["fate_reason"] or "").replace("_", " ")
    return " \u00b7 ".join(x for x in (row["fate"] or "", reason) if x)
