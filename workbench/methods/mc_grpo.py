"""MC-GRPO: one rollout more, the median as baseline, the median rollout taken out of the batch.

Also the names under which the sign-flip measures of `numerics.flips` go with this method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.flips import (
    binary_vanish,
    flip_prob_exact,
    flip_prob_from_pool,
    posterior_flip,
    sign_flips,
)
from workbench.numerics.groups import describe, first_rows, lower_median
from workbench.stages import Card, Effect, Method, State
from workbench.types import Advantage, Draft, Plan, Ragged

__all__ = [
    "CARD",
    "McGrpo",
    "binary_vanish",
    "flip_prob_exact",
    "flip_prob_from_pool",
    "mc_advantages",
    "median_centred",
    "posterior_flip",
    "sign_flips",
]

CARD = Card(
    slug="mc_grpo",
    title="MC-GRPO: median-centered group relative policy optimization",
    arxiv="2601.22582",
    code="https://github.com/lotusroot-kim/MC-GRPO",
    source="C*",
    deviations=(
        "mode='safe' (default) floors the MAD at 0.1 of the group's reward range: with binary rewards and odd groups "
        "the MAD is 0 and the paper's advantages are +-range / 0.001",
        "mode='code' also multiplies the advantages of a group by M / (number that are not 0), as the GSM8K trainer does",
        "of several rollouts at the median the first is the pivot; torch leaves the index open",
        "a group that was asked for one rollout gets two, of which the pivot leaves the batch",
    ),
    watch="rollouts per group with an advantage other than 0, vanishing signs, hard flips where rewards are graded",
)


class MedianCentred(NamedTuple):
    """value (R,) advantages, 0 for nulls; median, mad (G,) NaN for an unscored group; pivot (G,) int64 row, -1 none."""

    value: np.ndarray
    median: np.ndarray
    mad: np.ndarray
    pivot: np.ndarray


def median_centred(
    reward: np.ndarray,
    group: np.ndarray,
    n_groups: int,
    mad_eps: float = 1e-3,
    mad_floor: float = 0.0,
    rescale_nonzero: bool = False,
) -> MedianCentred:
    """(r - median) / (MAD + eps) in every group, on flat columns: reward (R,) NaN = null, group (R,) int64.

    Lower median where a group is even; MAD = median |r - median| without the factor 1.4826. mad_floor: the divisor is
    at least this share of the group's reward range. rescale_nonzero multiplies by M / (number of advantages not 0)."""
    median = lower_median(reward, group, n_groups)
    from_median = reward - median[group]
    mad = lower_median(np.abs(from_median), group, n_groups)
    stats = describe(reward, group, n_groups)
    divisor = np.fmax(mad + mad_eps, mad_floor * (stats.high - stats.low))
    value = np.where(np.isfinite(reward), from_median / divisor[group], 0.0)
    if rescale_nonzero:
        n_effective = np.bincount(group, value != 0, minlength=n_groups)
        value = value * (stats.n / np.maximum(n_effective, 1))[group]
    return MedianCentred(value, median, mad, first_rows(from_median == 0, group, n_groups))


class McAdvantages(NamedTuple):
    """advantages, keep (P, M); median, mad (P,); pivot (P,) int64 position in the row, -1 without a scored rollout."""

    advantages: np.ndarray | list[np.ndarray]
    median: np.ndarray
    mad: np.ndarray
    pivot: np.ndarray
    keep: np.ndarray | list[np.ndarray]


def mc_advantages(
    rewards: Sequence[ArrayLike], mad_eps: float = 1e-3, rescale_nonzero: bool = False, mad_floor: float = 0.0
) -> McAdvantages:
    """The paper's advantages of P groups of M = G + 1 rollouts, and who stays in the batch.

    rewards: P rows, None or NaN = null: out of the median, advantage 0, not kept. Rows of different lengths give
    lists of arrays. The pivot, the first rollout at the median, is not kept either, so that G reach the loss."""
    rows = Ragged.of([np.asarray(r, float) for r in rewards], float)
    group = np.repeat(np.arange(rows.n_rows), rows.lengths)
    made = median_centred(rows.values, group, rows.n_rows, mad_eps, mad_floor, rescale_nonzero)
    keep = np.isfinite(rows.values)
    keep[made.pivot[made.pivot >= 0]] = False
    shaped = [list(Ragged(column, rows.offsets).rows()) for column in (made.value, keep)]
    if len(np.unique(rows.lengths)) == 1:
        shaped = [np.stack(column) for column in shaped]
    inside = np.where(made.pivot >= 0, made.pivot - rows.offsets[:-1], -1)
    return McAdvantages(shaped[0], made.median, made.mad, inside, shaped[1])


@dataclass(frozen=True)
class McGrpo(Method):
    """One rollout more for every group, and advantages around the median, whose rollout is dropped.

    mode: safe = the MAD floored at mad_floor of the group's reward range; paper = MAD + mad_eps alone; code = paper
    with the GSM8K trainer's rescaling. Stands behind the estimator it replaces: Pipeline(Grpo(), McGrpo()).
    """

    mode: Literal["safe", "paper", "code"] = "safe"
    mad_eps: float = 1e-3
    mad_floor: float = 0.1

    card = CARD
    effects = frozenset({Effect.REPLACES_ADVANTAGES})

    def amend(self, state: State, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """One rollout more for the first ask of every group in the step."""
        key = _group_key(plan)
        asked = (plan.purpose == "train") & (plan.n > 0)
        earlier = [] if draft.plan is None else _group_key(draft.plan)[draft.plan.n > 0]
        rows = np.flatnonzero(asked & ~np.isin(key, earlier))
        _, first = np.unique(key[rows], return_index=True)
        n = plan.n.copy()
        n[rows[first]] += 1
        return plan.with_n(n)

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Replace the advantages of the kept rollouts, and drop the pivot of every group."""
        rollouts = draft.rollouts
        reward = np.where(advantage.keep, rollouts.reward, np.nan)
        n_groups = int(rollouts.group.max(initial=-1)) + 1
        floor = self.mad_floor if self.mode == "safe" else 0.0
        made = median_centred(reward, rollouts.group, n_groups, self.mad_eps, floor, self.mode == "code")
        pivot = np.zeros(len(rollouts), bool)
        pivot[made.pivot[made.pivot >= 0]] = True
        baseline = np.where(advantage.keep, made.median[rollouts.group], np.nan)
        return replace(advantage, value=made.value, baseline=baseline, tokens=None).drop(pivot, "pivot")


def _group_key(plan: Plan) -> np.ndarray:
    """(A,) str: the normalisation group an ask belongs to."""
    return np.array([f"{p}|{c}|{u}" for p, c, u in zip(plan.prompt, plan.context, plan.purpose, strict=True)], str)
