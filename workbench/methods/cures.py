"""CurES, a curriculum: a paid first look at a slice of the pool, then prompts by sqrt(p(1-p)), rollouts by gradient spread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from workbench.numerics import beta as beta_law
from workbench.numerics.apportion import apportion
from workbench.numerics.beliefs import Belief, set_rows
from workbench.numerics.picks import largest, smallest
from workbench.numerics.profiling import Profile, affordable, profile_plan
from workbench.stages import Card, Method
from workbench.types import Draft, Picked, Plan, Pool, Step

CARD = Card(
    slug="cures",
    title="CurES: from gradient analysis to efficient curriculum learning for reasoning LLMs",
    arxiv="2510.01037",
    code="https://github.com/ZexuSun/CurES",
    source="C*",
    deviations=(
        "gradient norms are taken as 1 in the loop, where sigma = sqrt(a(1-a)): no world offers norms per rollout",
        "quotas are real numbers of rollouts, apportioned exactly over the prompts of the step; the code normalises over "
        "the whole subset, rounds half to even and multiplies by its group size again",
        "a slice is looked at in steps of their own, with purpose probe: they cost rollouts and update nothing",
        "prompts are drawn without replacement, and a slice has slice_min prompts at least",
        "after the last slice the first comes again; beliefs are reset whenever a slice begins",
        "mode='code' draws prompts at the released temperature (accepted + 1) * 100, which is all but uniform",
    ),
    watch="rollouts against success rate (a bell), the share of rollouts spent on probing, groups of one",
    unspent="a first look asks for n_probe rollouts of each prompt of the slice, and no more",
)


class Slices(NamedTuple):
    """part (N,) int64 slice of each prompt; profile = first looks since its slice began; accepted, tried (N,) scored
    training rollouts since then; iteration = slices finished; updates = training steps on the present one."""

    part: np.ndarray
    profile: Profile
    accepted: np.ndarray
    tried: np.ndarray
    iteration: int
    updates: int

    @property
    def distance(self) -> np.ndarray:
        """(N,) slices until a prompt's turn; 0 = its turn is now."""
        n_parts = int(self.part.max(initial=0)) + 1
        return (self.part - self.iteration) % n_parts

    def sigma(self, rows: np.ndarray) -> np.ndarray:
        """(K,) spread that the first look found, norms 1; 1/2, the largest, where there was none."""
        n = self.profile.tried[rows]
        a = self.profile.solved[rows] / np.maximum(n, 1)
        return np.where(n > 0, np.sqrt(a * (1 - a)), 0.5)

    @property
    def belief(self) -> Belief:
        """Beta(accepted + 1, wrong + 1) over first looks and training together."""
        accepted, tried = self.accepted + self.profile.solved, self.tried + self.profile.tried
        return Belief(accepted + 1, tried - accepted + 1)


@dataclass(frozen=True)
class Cures(Method):
    """The pool in slices, one after the other: n_probe rollouts of every prompt of a slice, then `steps` updates on it,
    with prompts drawn by sqrt(p (1 - p)) / tau and rollouts in proportion to sigma of the first look.

    slices: into how many parts a pool is cut, each of slice_min prompts at least; seed shuffles. n_min: rollouts of a
    chosen prompt at least; 0, the paper's, gives none to prompts whose first look was settled.
    """

    slices: int = 15
    slice_min: int = 64
    steps: int = 10
    n_probe: int = 4
    tau: float = 1.0
    n_min: int = 0
    mode: Literal["paper", "code"] = "paper"
    seed: int = 0

    card = CARD

    def __post_init__(self) -> None:
        for name in ("slices", "slice_min", "steps", "n_probe"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if not self.tau > 0:
            raise ValueError(f"the temperature of the softmax must be positive, got tau={self.tau}")

    def init(self, pool: Pool) -> Slices:
        """The pool cut into slices, the first one on turn, nothing looked at."""
        n = len(pool)
        n_parts = min(self.slices, max(n // self.slice_min, 1))
        part = np.random.default_rng([self.seed, n]).permutation(n) * n_parts // max(n, 1)
        return Slices(part, Profile.none(n), np.zeros(n), np.zeros(n), 0, 0)

    def observe(self, state: Slices, step: Step) -> Slices:
        """Count outcomes; after its updates the slice ends, and the next one begins with nothing known of it."""
        rows, solved, tried = step.evidence(len(state.part))
        state = state._replace(
            profile=state.profile.add(step.rollouts, "probe"),
            accepted=set_rows(state.accepted, rows, state.accepted[rows] + solved),
            tried=set_rows(state.tried, rows, state.tried[rows] + tried),
            updates=state.updates + bool((step.rollouts.purpose == "train").any()),
        )
        if state.updates < self.steps:
            return state
        state = state._replace(iteration=state.iteration + 1, updates=0)
        goes_on = (state.distance > 0).astype(float)
        return state._replace(
            profile=Profile(*(goes_on * column for column in state.profile)),
            accepted=goes_on * state.accepted,
            tried=goes_on * state.tried,
        )

    def _owed(self, state: Slices) -> np.ndarray:
        """(N,) int64 rollouts that the first look still owes to prompts of the slice; none once updates have begun."""
        return state.profile.owed(self.n_probe) * ((state.distance == 0) & (state.updates == 0))

    def reveal(self, state: Slices) -> Mapping[str, np.ndarray]:
        """mean with its central 90 % interval, tried = scored rollouts behind it, sigma of the first look, and slices to
        wait until the prompt's turn."""
        belief = state.belief
        low, high = beta_law.interval(*belief)
        return {
            "mean": belief.mean,
            "low": low,
            "high": high,
            "tried": belief.alpha + belief.beta - 2,
            "sigma": state.sigma(np.arange(len(state.part))),
            "wait": state.distance.astype(float),
        }

    def select(self, state: Slices, draft: Draft, rng: np.random.Generator) -> Picked:
        """Prompts that the first look owes something, if there are any; else those of the slice by their chances, without
        replacement, and of the next slices where it is smaller than the step."""
        rows = draft.candidates()
        noise = rng.gumbel(size=len(state.part))[rows]
        owed = self._owed(state)[rows]
        if owed.any():
            lacking = np.flatnonzero(owed)
            return Picked.among(rows, lacking[smallest(noise[lacking], draft.wanted)], owed=owed)
        p = state.belief.mean[rows]
        temperature = state.belief.alpha[rows] * 100 if self.mode == "code" else self.tau  # alpha = accepted + 1
        keys = np.sqrt(p * (1 - p)) / temperature + noise  # Gumbel's trick: the largest keys are a draw by softmax
        distance = state.distance[rows]
        picked: list[np.ndarray] = []
        for turn in range(int(distance.max(initial=-1)) + 1):
            left = draft.wanted - sum(map(len, picked))
            if left <= 0:
                break
            there = np.flatnonzero(distance == turn)
            picked.append(there[largest(keys[there], left)])
        return Picked.among(rows, np.concatenate([np.empty(0, np.int64), *picked]), p=p, wait=distance)

    def allocate(self, state: Slices, draft: Draft, rng: np.random.Generator) -> Plan:
        """What the first look owes, where all fresh prompts are owed something; else quotas by sigma, to the budget."""
        fresh = draft.fresh
        if not len(fresh):
            return Plan(fresh, fresh)
        share = round(draft.budget.rollouts * len(fresh) / draft.budget.prompts)
        owed = self._owed(state)[fresh]
        if owed.all():
            return profile_plan(fresh, owed, share, "probe")
        sigma = state.sigma(fresh)
        n = apportion(sigma, share, floor=min(self.n_min, share // len(fresh)))
        return Plan(fresh, n, why={"sigma": sigma})

    def more(self, state: Slices, draft: Draft) -> int:
        """In a first look, as many further prompts as the step's budget still pays for."""
        owed = self._owed(state)
        if draft.plan is None or not owed[draft.prompts].all():
            return 0
        return affordable(draft, int((owed[draft.candidates()] > 0).sum()), self.n_probe)
