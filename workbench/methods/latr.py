"""LATR: fork where the second token is nearly as likely, look ahead, drop branches that say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.stages import Card, Checkpoint, Effect, Method
from workbench.types import Cut, Draft, Fork, Frontier, Plan, Pool, Step

CARD = Card(
    slug="latr",
    title="LATR: lookahead tree-based rollouts",
    arxiv="2510.24302",
    code="https://github.com/starreeze/latr",
    source="C*",
    deviations=(
        "the major path is sampled as everywhere in the loop; the released setup takes the likeliest token",
        "a group is not filled up with copies of its root: what is not forked is not asked",
        "tree mode ends for a prompt when its tree is full; the saturation rule over all prompts is left out",
        "at most one fork per branch and token (m = 2)",
    ),
    unspent="a tree that finds few undecided places stays smaller than its group",
    watch="where rollouts fork, share of forks pruned by each test, distinct answers per group",
)


def branch_mask(topk_probs: ArrayLike, tau_abs: float | None, tau_rel: float | None) -> np.ndarray:
    """(R, m) bool: tokens that may be taken, from probabilities (R, m) in falling order; the first one always.

    Others need p_i > tau_abs and p_0 - p_i < tau_rel, both strict; None is no condition."""
    p = np.asarray(topk_probs, float)
    keep = np.ones(p.shape, bool)
    if tau_abs is not None:
        keep &= p > tau_abs
    if tau_rel is not None:
        keep &= p[:, :1] - p < tau_rel
    keep[:, 0] = True
    return keep


class Decision(NamedTuple):
    """prune, skipped (a window holds the end of text), and the three likenesses, None where skipped."""

    prune: bool
    skipped: bool
    edit_ratio: float | None
    suffix: float | None
    rouge_l: float | None


def prune_decision(
    child_window: Sequence[int],
    parent_window: Sequence[int],
    eos_id: int | Sequence[int],
    tau_edit: float | None,
    tau_suffix: float | None,
    tau_rouge: float | None,
) -> Decision:
    """Whether the last r tokens of a branch say what its parent's do; any active test (not None) prunes.

    levenshtein / r < tau_edit; longest suffix of one found anywhere in the other / r > tau_suffix; ROUGE-L F1 > tau_rouge."""
    child, parent = list(child_window), list(parent_window)
    ends = {eos_id} if isinstance(eos_id, int | np.integer) else set(eos_id)
    if ends & {*child, *parent}:
        return Decision(False, True, None, None, None)
    r = max(len(child), 1)
    edit = levenshtein(child, parent) / r
    suffix = max(suffix_match(child, parent), suffix_match(parent, child)) / r
    rouge = rouge_l(child, parent)
    prune = (
        (tau_edit is not None and edit < tau_edit)
        or (tau_suffix is not None and suffix > tau_suffix)
        or (tau_rouge is not None and rouge > tau_rouge)
    )
    return Decision(prune, False, edit, suffix, rouge)


def levenshtein(a: Sequence[int], b: Sequence[int]) -> int:
    """Fewest insertions, deletions and substitutions that turn a into b."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def suffix_match(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest suffix of a that stands anywhere in b."""
    best = 0
    for end in range(len(b), 0, -1):
        n = 0
        while n < min(len(a), end) and a[len(a) - 1 - n] == b[end - 1 - n]:
            n += 1
        best = max(best, n)
    return best


def rouge_l(a: Sequence[int], b: Sequence[int]) -> float:
    """F1 of the longest common subsequence; 0 for empty sequences."""
    if not a or not b:
        return 0.0
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], diagonal + 1 if x == y else max(row[j], row[j - 1])
    return 2 * row[-1] / (len(a) + len(b))


class Share(NamedTuple):
    """eta, and the rollouts of a group grown as a tree and flat."""

    eta: float
    n_tree: int
    n_flat: int


def tree_share(group_size: int, schedule: Mapping[object, float], train_step: int) -> Share:
    """The share that the schedule {first step: eta} gives at a training step; halves round to the even."""
    reached = [(int(str(s)), eta) for s, eta in schedule.items() if int(str(s)) <= train_step]
    eta = max(reached)[1] if reached else 0.0
    n_tree = round(group_size * eta)
    return Share(eta, n_tree, group_size - n_tree)


def with_descendants(branch: np.ndarray, parent: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """(B,) bool: the branches that are gone (B,) bool, and all that grew from them; parents need not stand first."""
    while True:
        more = gone | np.isin(parent, branch[gone])
        if (more == gone).all():
            return gone
        gone = more


TREE = "latr_tree"
"""Scratch of a branch: 1 for those of the tree, 0 for flat rollouts."""


@dataclass(frozen=True)
class Latr(Method):
    """A group grown from one root, forked where the second token is likely and near the first; look-alikes are cut.

    eta: share of a group grown as a tree, by the step from which it holds ((step, share), ...). group_size: the most that a
    group is grown to, None = what was asked. Defaults are the math preset; windows suit answers of hundreds of tokens and
    are skipped by shorter ones.
    """

    tau_abs: float | None = 0.15
    tau_rel: float | None = 0.25
    windows: tuple[int, ...] = (20, 30, 50)
    tau_edit: float | None = None
    tau_suffix: float | None = 0.2
    tau_rouge: float | None = 0.5
    eta: tuple[tuple[int, float], ...] = ((0, 1.0), (100, 0.75), (200, 0.5), (300, 0.25))
    group_size: int | None = None

    card = CARD
    effects = frozenset({Effect.LEAVES_ROOTS})
    needs: ClassVar[frozenset[str]] = frozenset({"top_tokens"})

    @property
    def checkpoint(self) -> Checkpoint:
        """Every token, with the two likeliest next ones."""
        return Checkpoint(every=1, top=2)

    def init(self, pool: Pool) -> int:
        """Training steps seen."""
        return 0

    def observe(self, state: int, step: Step) -> int:
        """Count."""
        return step.step

    def _share(self, state: int, group_size: int) -> Share:
        return tree_share(group_size, dict(self.eta), state)

    def amend(self, state: int, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """One root for the tree's part of a group, and its flat part."""
        n, leaves = plan.n.copy(), plan.n_leaves.copy()
        for a in np.flatnonzero(plan.from_prompt):
            leaves[a] = min(leaves[a], self.group_size or leaves[a])
            share = self._share(state, int(leaves[a]))
            n[a] = min(n[a], share.n_flat + (share.n_tree > 0))
        return plan.with_n(n, leaves)

    def branch(self, state: int, frontier: Frontier, rng: np.random.Generator) -> Fork:
        """Fork to the second token where it may be taken and the group has room, the first of its rows only and what forked
        from it; flat rollouts and branches that ended keep their places, those that were cut give theirs back."""
        b = len(frontier)
        tree = np.asarray(frontier.memory.get(TREE, np.zeros(b)), float).copy()
        new = np.flatnonzero((frontier.n_tokens <= 1) & (frontier.parent < 0))
        tree[new[np.unique(frontier.group[new], return_index=True)[1]]] = 1.0
        width, token = np.ones(b, np.int64), np.full(b, -1, np.int64)
        if b and frontier.extra.get("top_logp", np.empty((0, 0))).shape[1] > 1:
            keep = branch_mask(np.exp(frontier.extra["top_logp"]), self.tau_abs, self.tau_rel)
            for g in np.unique(frontier.group[tree > 0]):
                mine = np.flatnonzero((frontier.group == g) & (tree > 0))
                forks = mine[keep[mine, 1]][: int(frontier.room[mine[0]])]
                width[forks] = 2
                token[forks] = frontier.extra["top_tokens"][forks, 1]
        return Fork(width, np.full(b, -1, np.int64), token, {"forks": (width - 1).astype(float)}, {TREE: tree})

    def prune(self, state: int, frontier: Frontier, rng: np.random.Generator) -> Cut:
        """Compare a branch with its parent when it is as old as a window; descendants go with it."""
        b = len(frontier)
        width, reason = np.ones(b, np.int64), np.full(b, "", dtype=object)
        place = {int(i): k for k, i in enumerate(frontier.branch)}
        for k in range(b):
            age = int(frontier.n_tokens[k] - frontier.born[k])
            above = place.get(int(frontier.parent[k]))
            if age not in self.windows or above is None:
                continue
            end = int(frontier.n_tokens[k])
            child, parent = frontier.tokens.row(k)[end - age : end], frontier.tokens.row(above)[end - age : end]
            if (
                len(parent) == age
                and prune_decision(
                    child.tolist(), parent.tolist(), (), self.tau_edit, self.tau_suffix, self.tau_rouge
                ).prune
            ):
                width[k], reason[k] = 0, "similar"
        gone = with_descendants(frontier.branch, frontier.parent, width == 0)
        width[gone], reason[gone] = 0, "similar"
        return Cut(width, reason, np.ones(b))
