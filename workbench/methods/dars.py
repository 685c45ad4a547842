"""DARS: a first look at every prompt, then more rollouts for the hard ones, until they weigh as much as a medium one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.apportion import apportion
from workbench.numerics.beliefs import check_counts
from workbench.numerics.estimators import group_advantages
from workbench.numerics.groups import describe
from workbench.stages import Card, Effect, Method, State
from workbench.types import Advantage, Draft, Plan

CARD = Card(
    slug="dars",
    title="DARS: depth-breadth synergy in RLVR",
    arxiv="2508.13755",
    code="https://github.com/yangzhch6/DARS",
    source="C*",
    deviations=(
        "both stages share the step's budget: first_share of it looks at every prompt; stage 2 gets at most the rest, in "
        "proportion to the need. The paper has 8 rollouts for all and the extra ones on top",
        "the need is computed in whole numbers; the code's floats ask for one rollout too many now and then",
        "a prompt is kept or dropped by `correct`, its advantages come from the reward; both are the same in the paper",
        "one optimiser step over the whole batch, as in DARS-B, but one epoch; DARS-B has two",
    ),
    watch="prompts without a success in stage 1 that stage 2 rescued, extra rollouts by stage-1 success rate",
    unspent="stage 2 asks for no more than the hard prompts of the step need",
)

Schedule: TypeAlias = Literal["ET", "HW"]


def _root_up(num: np.ndarray, den: np.ndarray) -> np.ndarray:
    """Smallest whole t with t^2 den >= num, for positive whole num and den; the float root is only a first guess."""
    t = np.floor(np.sqrt(num / den)).astype(np.int64)
    t -= (t > 0) & ((t - 1) ** 2 * den >= num)
    t += t**2 * den < num
    return t + (t**2 * den < num)


def _needed(k: np.ndarray, n: np.ndarray, schedule: Schedule, use_std: bool) -> np.ndarray:
    """Rollouts in all that bring a group to its target mass, with a = h / 2n, h = 2k or 1 where k = 0.

    ET: n / 4a(1-a), with std n / 2 sqrt(a(1-a)). HW: n / 2a, with std n sqrt((1-a)/a). All rounded up."""
    if (k == np.floor(k)).all():
        h = np.where(k > 0, 2 * k, 1).astype(np.int64)
        rest = 2 * n - h
        if use_std:
            return _root_up(n**4, h * rest) if schedule == "ET" else _root_up(n**2 * rest, h)
        return -(-(n**3) // (h * rest)) if schedule == "ET" else -(-(n**2) // h)
    a = np.where(k > 0, k, 0.5) / n  # sums of graded rewards
    if use_std:
        exact = n / (2 * np.sqrt(a * (1 - a))) if schedule == "ET" else n * np.sqrt((1 - a) / a)
    else:
        exact = n / (4 * a * (1 - a)) if schedule == "ET" else n / (2 * a)
    return np.ceil(exact - 1e-9).astype(np.int64)


def allocation(
    successes: ArrayLike, n: ArrayLike, n_max: int, schedule: Schedule = "ET", use_std: bool = False
) -> np.ndarray:
    """Stage-2 rollouts of every prompt: (P,) int64, 0 from half solved on, and never more than n_max in all.

    successes (P,) of n rollouts each (whole number or (P,)); none counts as half a success. ET = every hard group is
    brought to the mass of a half-solved one; HW = to 2(1-a) times that. Successes outside 0..n: ValueError."""
    if schedule not in get_args(Schedule):
        raise ValueError(f"no schedule {schedule!r}; there are {', '.join(get_args(Schedule))}")
    check_counts(successes, n)
    k, n = np.broadcast_arrays(np.asarray(successes, float), np.asarray(n, np.int64))
    hard = (np.where(k > 0, 2 * k, 1) < n) & (n > 0)
    extra = np.zeros(k.shape, np.int64)
    extra[hard] = _needed(k[hard], n[hard], schedule, use_std) - n[hard]
    return np.maximum(np.minimum(extra, n_max - n), 0)


@dataclass(frozen=True)
class Dars(Method):
    """Two rounds: equal groups for all, then extra rollouts for prompts of which less than half were right.

    schedule: ET brings every hard group to the mass of a half-solved one, HW beyond it, the more the harder. n_max:
    rollouts of a prompt in all, 32 (ET) or 64 (HW) where not given. first_share: part of the budget for the first round.
    upper: prompts solved at this rate or better are dropped, as are those without a success.
    """

    schedule: Schedule = "ET"
    n_max: int | None = None
    use_std: bool = False
    upper: float = 1.0
    eps: float = 1e-6
    first_share: float = 0.5

    card = CARD
    effects = frozenset({Effect.REPLACES_ADVANTAGES})

    def __post_init__(self) -> None:
        if self.schedule not in get_args(Schedule):
            raise ValueError(f"no schedule {self.schedule!r}; there are {', '.join(get_args(Schedule))}")
        if not 0 < self.first_share <= 1:
            raise ValueError(f"the first round needs a share of the budget in (0, 1], got {self.first_share}")

    def allocate(self, state: State, draft: Draft, rng: np.random.Generator) -> Plan:
        """Equal groups for fresh prompts; for the others, once, what their first groups need and the budget leaves."""
        fresh, budget = draft.fresh, draft.budget
        share = round(budget.rollouts * len(fresh) / budget.prompts)
        first = apportion(np.ones(len(fresh)), max(round(self.first_share * share), min(len(fresh), share)))
        prompt, need, accuracy = self._needs(draft)
        allowed = round(budget.rollouts * len(draft.prompts) / budget.prompts)
        asked = draft.spent
        left = min(max(allowed - asked - int(first.sum()), 0), int(need.sum()))
        second = apportion(need, left, cap=need)
        some = second > 0
        unknown = np.full(len(fresh), np.nan)
        stage = np.repeat([1.0, 2.0], [len(fresh), some.sum()])
        return Plan(
            np.concatenate([fresh, prompt[some]]),
            np.concatenate([first, second[some]]),
            why={
                "dars_stage": stage,
                "accuracy": np.concatenate([unknown, accuracy[some]]),
                "need": np.concatenate([unknown, need[some]]),
            },
            memory={"dars.stage": stage},
        )

    def _needs(self, draft: Draft) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Prompts seen in stage 1 only: rows (K,), rollouts that they still need (K,), success rate in stage 1 (K,)."""
        plan, r = draft.plan, draft.rollouts
        if plan is None or r is None:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        stage = plan.memory.get("dars.stage", np.ones(len(plan)))
        rows = r.plain & (r.ask >= 0)
        rows[rows] = stage[r.ask[rows]] == 1
        prompt, at = np.unique(r.prompt[rows], return_inverse=True)
        n = np.bincount(at, minlength=len(prompt))
        k = np.bincount(at, r.correct[rows], minlength=len(prompt))
        need = allocation(k, n, self._most, self.schedule, self.use_std)
        need[np.isin(prompt, plan.prompt[stage == 2])] = 0
        return prompt, need, k / np.maximum(n, 1)

    @property
    def _most(self) -> int:
        return self.n_max or {"ET": 32, "HW": 64}[self.schedule]

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Both stages are one group: r - mean; groups with nothing or too much right are dropped whole."""
        r = draft.rollouts
        n_groups = int(r.group.max(initial=-1)) + 1
        right = describe(np.where(advantage.keep, r.correct, np.nan), r.group, n_groups)
        with np.errstate(invalid="ignore"):
            none, most = right.mean <= 0, right.mean >= self.upper
        advantage = advantage.drop(none[r.group], "none_correct").drop(most[r.group], "solved")
        reward = np.where(advantage.keep, r.reward, np.nan)
        made = group_advantages(reward, r.group, "grpo" if self.use_std else "dr_grpo", self.eps)
        return replace(advantage, value=made.advantages, baseline=made.baseline, tokens=None)
