"""GRPO-RoC: train on half of the rollouts: the cleanest successes, and failures as they come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.estimators import group_advantages
from workbench.numerics.groups import describe
from workbench.stages import Card, Effect, Method, State
from workbench.types import Advantage, Draft, Rollouts

CARD = Card(
    slug="grpo_roc",
    title="rStar2-Agent: agentic reasoning technical report (GRPO-RoC, resample on correct)",
    arxiv="2508.20722",
    code="https://github.com/microsoft/rStar",
    source="C*",
    deviations=(
        "mode='code' (default): the successes of lowest penalty and the first failures; mode='paper' draws successes with "
        "chances inverse to their penalty and failures at random",
        "share of a group (keep_share=0.5) in the place of 16 of 32, so that unequal groups can be cut too",
        "an odd number to keep is split into rounded failures and the rest; the authors' code stops with an assertion",
        "the branch 'both below their floors' cannot be reached where the floors fit and is left out",
        "tool calls and errors are read from extra columns tool_calls and tool_errors; where none are recorded every "
        "rollout counts as without a call, penalty 0.5",
    ),
    watch="success rate before and after selection, penalty of kept and dropped successes, dropped groups",
)


def tool_error_penalty(tool_errors: ArrayLike, tool_calls: ArrayLike) -> np.ndarray:
    """Failed share of the tool responses (n,); 0.5 without a call: not calling is not free."""
    errors, calls = np.asarray(tool_errors, float), np.asarray(tool_calls, float)
    return np.where(calls > 0, errors / np.maximum(calls, 1), 0.5)


def format_penalty(open_tags: ArrayLike, close_tags: ArrayLike, pairs: ArrayLike, turns: ArrayLike) -> np.ndarray:
    """1 where an answer tag is missing or unbalanced or there is no turn, else min((answers - 1) / turns, 1); each (n,)."""
    opened, closed, pairs, turns = (np.asarray(v, float) for v in (open_tags, close_tags, pairs, turns))
    bad = (opened < 1) | (closed < 1) | (pairs < 1) | (opened != closed) | (opened != pairs) | (turns < 1)
    return np.where(bad, 1.0, np.minimum((pairs - 1) / np.maximum(turns, 1), 1.0))


class Counts(NamedTuple):
    """Failures (zero) and successes (nonzero) to keep; dropped = the group is too small and goes whole."""

    zero: np.ndarray
    nonzero: np.ndarray
    dropped: np.ndarray


def keep_counts(
    n_zero: ArrayLike, n_nonzero: ArrayLike, n_keep: ArrayLike, min_zero: int = 2, min_nonzero: int = 2
) -> Counts:
    """How many failures and successes of a group stay, in proportion, with floors; numbers or (G,) arrays.

    Fewer rollouts than n_keep: dropped. Exactly n_keep: all. Else round(z n / N) failures, half to even, the rest
    successes; then the floors min(min_zero, z) and min(min_nonzero, N - z), the successes' floor last."""
    z, s, n = np.broadcast_arrays(*(np.asarray(v, np.int64) for v in (n_zero, n_nonzero, n_keep)))
    total = z + s
    zero = np.rint(z * n / np.maximum(total, 1)).astype(np.int64)
    low_zero = np.minimum(min_zero, z)
    zero = np.where(zero <= low_zero, np.minimum(low_zero, n), zero)
    low_nonzero = np.minimum(min_nonzero, s)
    nonzero = np.where(n - zero <= low_nonzero, np.minimum(low_nonzero, n), n - zero)
    zero = n - nonzero
    dropped, whole = total < n, total == n
    zero, nonzero = np.where(whole, z, zero), np.where(whole, s, nonzero)
    return Counts(np.where(dropped, 0, zero), np.where(dropped, 0, nonzero), dropped)


def resampled(
    reward: np.ndarray,
    key: np.ndarray,
    group: np.ndarray,
    n_keep: np.ndarray,
    min_zero: int = 2,
    min_nonzero: int = 2,
    order: np.ndarray | None = None,
) -> np.ndarray:
    """(R,) bool: the rollouts of lowest key of each class and group, as many as keep_counts says.

    reward (R,) NaN = null, not kept; reward <= 0 is a failure. key (R,); ties by order (R,), the row where not given.
    group (R,) int64; n_keep (G,)."""
    scored = np.isfinite(reward)
    success = np.where(scored, reward > 0, False)
    n_groups = len(n_keep)
    counts = keep_counts(
        np.bincount(group[scored & ~success], minlength=n_groups),
        np.bincount(group[success], minlength=n_groups),
        n_keep,
        min_zero,
        min_nonzero,
    )
    stratum = 2 * group + success
    quota = np.stack([counts.zero, counts.nonzero], axis=1).ravel()
    rows = np.flatnonzero(scored)
    tie = np.arange(len(reward)) if order is None else order
    rows = rows[np.lexsort((tie[rows], key[rows], stratum[rows]))]
    size = np.bincount(stratum[rows], minlength=2 * n_groups)
    rank = np.arange(len(rows)) - (np.cumsum(size) - size)[stratum[rows]]
    keep = np.zeros(len(reward), bool)
    keep[rows] = rank < quota[stratum[rows]]
    return keep


@dataclass(frozen=True)
class GrpoRoc(Method):
    """Keep keep_share of every group: clean successes, failures as they come; advantages among the kept.

    The budget is what is generated. tools, form: whether failed tool calls and answer tags add to the penalty; tag: the
    tag that an answer stands in. Stands behind the estimator it replaces: Pipeline(Grpo(), GrpoRoc()).
    """

    keep_share: float = 0.5
    min_zero: int = 2
    min_nonzero: int = 2
    tools: bool = True
    form: bool = True
    tag: str = "answer"
    mode: Literal["code", "paper"] = "code"
    eps: float = 1e-6

    card = CARD
    effects = frozenset({Effect.REPLACES_ADVANTAGES})

    def __post_init__(self) -> None:
        if not 0 < self.keep_share <= 1:
            raise ValueError(f"keep_share={self.keep_share}: the trained share of a group lies in (0, 1]")

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Drop settled groups, then what is not resampled; compare the rest with the mean of the kept."""
        r = draft.rollouts
        n_groups = int(r.group.max(initial=-1)) + 1
        settled = describe(np.where(advantage.keep, r.reward, np.nan), r.group, n_groups).settled
        advantage = advantage.drop(settled[r.group], "zero_variance")
        reward = np.where(advantage.keep, r.reward, np.nan)
        n = np.bincount(r.group[advantage.keep], minlength=n_groups)
        n_keep = np.ceil(self.keep_share * n).astype(np.int64)
        order = _by_id(r)
        key = np.where(r.reward > 0, self._penalty(r), 0.0)
        if self.mode == "paper":
            waiting = np.empty(len(r))
            waiting[np.argsort(order)] = rng.exponential(size=len(r))
            # the smallest of exponentials divided by weights are a weighted draw; a clean success all but always stays
            key = waiting * np.where(r.reward > 0, np.maximum(key, 1e-3), 1.0)
        kept = resampled(reward, key, r.group, n_keep, self.min_zero, self.min_nonzero, order)
        advantage = advantage.drop(~kept, "not_resampled")
        made = group_advantages(np.where(advantage.keep, r.reward, np.nan), r.group, "grpo", self.eps)
        return replace(advantage, value=made.advantages, baseline=made.baseline, tokens=None)

    def _penalty(self, rollouts: Rollouts) -> np.ndarray:
        """(R,) penalty of every rollout, from its recorded tool calls and the answer tags of its text."""
        total = np.zeros(len(rollouts))
        if self.tools:
            none = np.zeros(len(rollouts))
            total += tool_error_penalty(rollouts.extra.get("tool_errors", none), rollouts.extra.get("tool_calls", none))
        if self.form:
            opened, closed = f"<{self.tag}>", f"</{self.tag}>"
            counts = np.array([[t.count(opened), t.count(closed)] for t in rollouts.text]).reshape(-1, 2)
            turns = rollouts.extra.get("turns", np.ones(len(rollouts)))
            total += format_penalty(counts[:, 0], counts[:, 1], counts.min(axis=1, initial=2**31), turns)
        return total


def _by_id(rollouts: Rollouts) -> np.ndarray:
    """(R,) int64 rank of every rollout by its id: the order in which a prompt's rollouts were asked."""
    id_ = rollouts.id.astype(str)
    rank = np.empty(len(id_), np.int64)
    rank[np.lexsort((id_, np.char.str_len(id_)))] = np.arange(len(id_))
    return rank
