"""MC-GRPO: one rollout more, the median as baseline, the median rollout taken out of the batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from workbench.numerics.groups import describe, first_rows, lower_median
from workbench.stages import Card, Effect, Method, State
from workbench.types import Advantage, Draft, Plan

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
