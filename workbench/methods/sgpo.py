"""sGPO, a curriculum from one profile of the pool: what is trained, in which order, in how large groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics import beta as beta_law
from workbench.numerics.apportion import apportion
from workbench.numerics.beliefs import check_counts
from workbench.numerics.picks import smallest
from workbench.numerics.profiling import Profile, affordable, profile_plan
from workbench.stages import Card, Method
from workbench.types import Draft, Picked, Plan, Pool, Step

CARD = Card(
    slug="sgpo",
    title="sGPO: trading inference FLOPs for training efficiency in RLVR",
    arxiv="2606.08854",
    source="notes",
    deviations=(
        "thresholds, buckets and order are from a third-party reimplementation that cites the paper's equations; the "
        "paper's text could not be read",
        "the profile is made in the loop, with purpose profile, before the first update: it costs rollouts there. A pool "
        "with the columns profile_successes and profile_n brings its own",
        "a phase ends after `passes` visits to as many prompts as it has; after the last phase the first comes again, and "
        "places that a phase cannot fill go to the next ones",
        "a prompt whose profile was never scored belongs to every phase, at that phase's group size",
    ),
    watch="the three regions of the profile, mixed groups per phase, rollouts of the profile against those of training",
    unspent="groups have the size of the plan, and a phase may have too few prompts to spend the budget on",
)


def group_size(p_hat: ArrayLike, g_min: int = 2, g_max: int = 8) -> np.ndarray:
    """(M,) int64 inverse success rate on a grid of powers of two, 2^floor(log2(1 / p)) within g_min..g_max.

    With G = 1 / p rollouts there is a success with a chance of about 1 - 1/e. p = 0 gives g_max."""
    p = np.asarray(p_hat, float)
    with np.errstate(divide="ignore"):
        exponent = np.floor(-np.log2(p) + 1e-9)  # so that 1/8 does not fall one bucket low
    return np.clip(np.exp2(np.minimum(exponent, 62)), g_min, g_max).astype(np.int64)


def _bucket(p_hat: np.ndarray, buckets: Sequence[int]) -> np.ndarray:
    """(M,) int64 position of each prompt's group size among the rising buckets: the largest that does not exceed it."""
    size = group_size(p_hat, min(buckets), max(buckets))
    return np.searchsorted(np.asarray(buckets), size, side="right") - 1


def _n_mixed(n_unsolved: int, fraction: float) -> int:
    return int(fraction * n_unsolved + 0.5)


class Course(NamedTuple):
    """profile = the profile; phase = position among the buckets; visits (N,) int64 training visits in this phase."""

    profile: Profile
    phase: int
    visits: np.ndarray


@dataclass(frozen=True)
class Sgpo(Method):
    """A profile of n_profile rollouts per prompt, then phases of prompts with group sizes 2, 4, 8, easy to hard.

    threshold: above this success rate a prompt is never trained. fraction: share of the unsolved prompts that is mixed
    into each phase. buckets: group sizes, rising. passes: visits per prompt of a phase. seed draws the mixed-in ones.
    """

    n_profile: int = 8
    threshold: float = 0.75
    fraction: float = 0.1
    buckets: tuple[int, ...] = (2, 4, 8)
    passes: int = 1
    seed: int = 0

    card = CARD

    def __post_init__(self) -> None:
        if not self.buckets or list(self.buckets) != sorted(set(self.buckets)) or self.buckets[0] < 1:
            raise ValueError(f"buckets are rising group sizes from 1 on, got {self.buckets}")
        for name in ("n_profile", "passes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")

    def init(self, pool: Pool) -> Course:
        """The pool's own profile where it has one; else nothing is known."""
        profile = Profile.none(len(pool))
        if "profile_n" in pool.extra and "profile_successes" in pool.extra:
            n, s = (np.asarray(pool.extra[c], float) for c in ("profile_n", "profile_successes"))
            check_counts(s, n)
            profile = Profile(np.full(len(pool), float(self.n_profile)), n, s)
        return Course(profile, 0, np.zeros(len(pool), np.int64))

    def _members(self, state: Course, phase: int) -> np.ndarray:
        """(N,) bool: the phase's cluster, its unsolved ones, and prompts whose profile could not be scored."""
        n = state.profile.tried
        p_hat = state.profile.solved / np.maximum(n, 1)
        learnable = (p_hat > 0) & (p_hat <= self.threshold) & (_bucket(p_hat, self.buckets) == phase)
        unsolved = np.flatnonzero((n > 0) & (p_hat <= 0))
        uniform = np.random.default_rng([self.seed, self.buckets[phase]]).random(len(n))
        mixed = unsolved[smallest(uniform[unsolved], _n_mixed(len(unsolved), self.fraction))]
        learnable[mixed] = True
        return learnable | (n == 0)

    def observe(self, state: Course, step: Step) -> Course:
        """Count the profile; once it is whole, count visits, and go on when the phase has had its passes."""
        owed = state.profile.owed(self.n_profile).any()
        state = state._replace(profile=state.profile.add(step.rollouts, "profile"))
        if owed:
            return state
        seen = np.unique(step.rollouts.prompt[(step.rollouts.purpose == "train") & (step.rollouts.ask >= 0)])
        members = self._members(state, state.phase)
        visits = state.visits.copy()
        visits[seen] += 1
        if visits[members].sum() < self.passes * members.sum():
            return state._replace(visits=visits)
        return state._replace(phase=(state.phase + 1) % len(self.buckets), visits=np.zeros_like(visits))

    def reveal(self, state: Course) -> Mapping[str, np.ndarray]:
        """mean with its central 90 % interval, of the profile; profiled rollouts, the planned group size (0 = none), and
        1 for members of the present phase."""
        n, s = state.profile.tried, state.profile.solved
        low, high = beta_law.interval(1 + s, 1 + n - s)
        size = np.zeros(len(n))
        for phase, g in enumerate(self.buckets):
            size = np.where(self._members(state, phase), g, size)
        return {
            "mean": (1 + s) / (2 + n),
            "low": low,
            "high": high,
            "profiled": n,
            "group_size": size,
            "member": self._members(state, state.phase).astype(float),
        }

    def select(self, state: Course, draft: Draft, rng: np.random.Generator) -> Picked:
        """Prompts that lack a profile, if there are any; else members of the phase that were visited least, as many as
        the budget pays for, filled up from the next phases and at last with what the plan leaves out."""
        rows = draft.candidates()
        uniform = rng.random(len(state.visits))[rows]
        owed = state.profile.owed(self.n_profile)[rows]
        if owed.any():
            lacking = np.flatnonzero(owed)
            return Picked.among(rows, lacking[smallest(uniform[lacking], draft.wanted)], owed=owed)
        wanted = min(draft.wanted, max(draft.budget.rollouts // self.buckets[state.phase], 1))
        picked = np.empty(0, np.int64)
        for later in range(len(self.buckets) + 1):
            if len(picked) >= wanted:
                break
            phase = (state.phase + later) % len(self.buckets)
            inside = np.ones(len(rows), bool) if later == len(self.buckets) else self._members(state, phase)[rows]
            at = np.flatnonzero(inside & ~np.isin(rows, picked))
            order = np.lexsort((uniform[at], state.visits[rows[at]]))
            picked = np.concatenate([picked, rows[at[order[: wanted - len(picked)]]]])
        n, s = state.profile.tried[picked], state.profile.solved[picked]
        return Picked(picked, {"p_hat": np.where(n > 0, s / np.maximum(n, 1), np.nan)})

    def allocate(self, state: Course, draft: Draft, rng: np.random.Generator) -> Plan:
        """The missing profile where all fresh prompts lack it; else every prompt's planned group size, less where the
        budget is short. Prompts without one get the phase's."""
        fresh = draft.fresh
        if not len(fresh):
            return Plan(fresh, fresh)
        asked = draft.spent
        allowed = round(draft.budget.rollouts * max(1, len(draft.prompts) / draft.budget.prompts))
        left = max(allowed - asked, 0)
        owed = state.profile.owed(self.n_profile)[fresh]
        if owed.all():
            return profile_plan(fresh, owed, left, "profile")
        n = state.profile.tried[fresh]
        p_hat = state.profile.solved[fresh] / np.maximum(n, 1)
        sizes = np.asarray(self.buckets, np.int64)
        planned = (n > 0) & (p_hat > 0) & (p_hat <= self.threshold)
        size = np.where(planned, sizes[_bucket(p_hat, self.buckets)], sizes[state.phase])
        return Plan(
            fresh, apportion(size, min(left, int(size.sum())), cap=size), why={"group_size": size.astype(float)}
        )

    def more(self, state: Course, draft: Draft) -> int:
        """As many further prompts as the step's budget pays for: still without a profile, or of the phase."""
        rows = draft.candidates()
        owed = state.profile.owed(self.n_profile)
        if owed[draft.prompts].all():
            return affordable(draft, int((owed[rows] > 0).sum()), self.n_profile)
        return affordable(draft, int(self._members(state, state.phase)[rows].sum()), self.buckets[state.phase])
