"""Labels of sign flips against a reference, and the sums that rates of flips are made of.

`numerics.flips` defines the labels. A posterior gives chances instead of labels; references of two kinds are never mixed.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from workbench.numerics import beta as beta_law
from workbench.numerics.flips import TAU, sign_flips
from workbench.types import Advantage, Rollouts

Kind: TypeAlias = Literal["pool", "posterior", "union", "exact"]
Rate: TypeAlias = Literal["hard", "vanish", "spurious", "reward_mass", "gradient_mass", "ambiguous", "n_effective"]
RATES: tuple[Rate, ...] = get_args(Rate)

_TOP = ("hard", "vanish", "spurious", "hard_away", "hard_pull", "ambiguous", "acting")
_BOTTOM = ("signed", "signed", "zero", "away", "pull", "all", "draws")
TALLY = ("hard", "vanish", "spurious", "signed", "zero", "hard_away", "away", "hard_pull", "pull", "ambiguous", "all",
          "acting", "draws")  # fmt: skip


class Reference(NamedTuple):
    """What C clusters are held against: value, se (C,); alpha, beta (C,) and low, high where the kind is posterior."""

    kind: Kind
    value: np.ndarray
    se: np.ndarray
    alpha: np.ndarray | None = None
    beta: np.ndarray | None = None
    low: float = 0.0
    high: float = 1.0


class Labels(NamedTuple):
    """One row per rollout (R,): signs int8, the reference with its kind and error, the label, the chance of a flip.

    Under a posterior the label is the one against its mean, and flip_probability is P(b* on the other side of r); under
    the other kinds it is 1 for hard, 0 else, NaN where ambiguous. Rollouts outside the loss have label "out"."""

    id: np.ndarray
    step: np.ndarray
    adv_sign: np.ndarray
    ref_sign: np.ndarray
    reference_kind: np.ndarray
    reference_value: np.ndarray
    reference_se: np.ndarray
    flip_label: np.ndarray
    flip_probability: np.ndarray


def _sign(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) > TAU, np.sign(np.nan_to_num(x)), 0).astype(np.int8)


def label(
    rollouts: Rollouts, advantage: Advantage, cluster: np.ndarray, reference: Reference, z: float = 2.0
) -> Labels:
    """Labels of R rollouts; cluster (R,) int64 names the row of the reference that each is held against, -1 none."""
    at = np.maximum(cluster, 0)
    known = cluster >= 0
    value, se = np.where(known, reference.value[at], np.nan), np.where(known, reference.se[at], np.nan)
    margin = 0.0 if reference.kind in ("posterior", "exact") else z
    found = sign_flips(rollouts.reward, advantage.value, value, TAU, se, margin).labels.astype(object)
    if reference.alpha is not None and reference.beta is not None:
        spread = reference.high - reference.low
        r = np.clip((np.nan_to_num(rollouts.reward) - reference.low) / spread, 0, 1)
        below = beta_law.cdf(r, reference.alpha[at], reference.beta[at])
        seen = _sign(advantage.value)
        chance = np.where(seen > 0, 1 - below, np.where(seen < 0, below, 0.0))
    else:
        chance = np.where(found == "hard", 1.0, 0.0)
    scored = known & np.isfinite(rollouts.reward) & (found != "ambiguous")
    found = np.where(advantage.keep, found, "out")
    return Labels(
        rollouts.id,
        rollouts.step,
        _sign(advantage.value),
        _sign(rollouts.reward - value),
        np.where(known, reference.kind, ""),
        value,
        se,
        found,
        np.where(scored & advantage.keep, chance, np.nan),
    )


def tally(found: Labels, advantage: Advantage, reward: np.ndarray, cluster: np.ndarray, n_clusters: int) -> np.ndarray:
    """(n_clusters, 13) sums from which every rate is a ratio; see TALLY. A posterior counts chances as parts."""
    counted = (found.flip_label != "out") & (cluster >= 0)
    clear = counted & (found.flip_label != "ambiguous")
    kind = found.flip_label
    away = np.where(clear, np.abs(np.nan_to_num(reward - found.reference_value)), 0.0)
    pull = np.where(clear, np.abs(advantage.value), 0.0)
    if (found.reference_kind == "posterior").any():  # a continuous belief: the true sign is never 0
        signed, zero = clear, np.zeros(len(clear), bool)
        hard = np.where(clear, np.nan_to_num(found.flip_probability), 0.0)
        vanish = clear & (found.adv_sign == 0)
    else:
        signed, zero = clear & np.isin(kind, ("ok", "hard", "vanish")), clear & np.isin(kind, ("spurious", "both_zero"))
        hard = (clear & (kind == "hard")).astype(float)
        vanish = clear & (kind == "vanish")
    columns = {
        "hard": hard,
        "vanish": vanish,
        "spurious": zero & (kind == "spurious"),
        "signed": signed,
        "zero": zero,
        "hard_away": hard * away,
        "away": signed * away,
        "hard_pull": hard * pull,
        "pull": pull,
        "ambiguous": counted & (kind == "ambiguous"),
        "all": counted,
        "acting": counted & (found.adv_sign != 0),
    }
    at = np.where(counted, cluster, 0)
    sums = [np.bincount(at, np.where(counted, columns[n], 0), minlength=n_clusters) for n in TALLY[:-1]]
    drawn = np.bincount(cluster[cluster >= 0], minlength=n_clusters) > 0
    return np.column_stack([*sums, drawn.astype(float)])


def rates(sums: np.ndarray) -> np.ndarray:
    """(..., 7) the rates in the order of RATES from (..., 13) sums; 0 where nothing is in the denominator."""
    top = sums[..., [TALLY.index(n) for n in _TOP]]
    bottom = sums[..., [TALLY.index(n) for n in _BOTTOM]]
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), 0.0)
