"""SAGE: a prompt that nobody solves is tried again under the weakest hint that brings a success."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from workbench.numerics.hints import Ask, references, with_asks
from workbench.stages import Card, Effect, Method
from workbench.types import Advantage, Draft, Plan, Pool, Step, Text

CARD = Card(
    slug="sage_hint",
    title="SAGE: self-hinting language models",
    arxiv="2602.03143",
    code="https://github.com/BaohaoLiao/SAGE",
    source="paper",
    deviations=(
        "a hint is a growing part of the pool's reference solution, level l of L showing l / (L + 1) of its words; the "
        "paper lets the policy write L hints from it",
        "mode=code is SAGE-light with the repository's two thresholds, which also lower a level",
        "a success is an answer that is correct: graded rewards give points for less",
        "for SAGE-light the accuracy is that of the prompt's last visit, not of the last epoch",
    ),
    watch="levels over steps, share of prompts without signal, rollouts generated per trained rollout",
)


def sage_light_paper(level: int, prev_accuracy: float | None, L: int = 3, alpha: float = 0.35) -> int:
    """One level up while the last accuracy is below alpha; a first visit (None) keeps the level."""
    return min(level + 1, L) if prev_accuracy is not None and prev_accuracy < alpha else level


def sage_light_code(
    level: int, prev_accuracy: float | None, L: int = 3, up_at: float = 0.1, down_above: float = 0.35
) -> int:
    """Up at an accuracy of up_at or less, down above down_above; a first visit (None) starts at 0."""
    if prev_accuracy is None:
        return 0
    if prev_accuracy <= up_at:
        return min(level + 1, L)
    return max(level - 1, 0) if prev_accuracy > down_above else level


class Levels(NamedTuple):
    """Of every prompt, (N,): its reference; level int64; accuracy of its last visit, NaN before."""

    reference: np.ndarray
    level: np.ndarray
    accuracy: np.ndarray
    plain: np.ndarray


@dataclass(frozen=True)
class SageHint(Method):
    """Hinted passes for prompts without success.

    mode: sage = level 0 first and one level more in every pass of the step until an answer is correct, only the last
    group trained; paper = SAGE-light, one pass at a level moved by the last accuracy; code = the repository's light
    rule. Needs the pool's extra column "reference"; prompts without one stay at level 0.
    """

    mode: Literal["sage", "paper", "code"] = "sage"
    levels: int = 3
    alpha: float = 0.35
    up_at: float = 0.1
    down_above: float = 0.35

    card = CARD
    needs: ClassVar[frozenset[str]] = frozenset({"reference"})

    @property
    def effects(self) -> frozenset[Effect]:  # type: ignore[override]
        """In the light modes an ask begins behind the hint; in the other a pass comes on top."""
        light = () if self.mode == "sage" else (Effect.DEFERS_ROLLOUTS,)
        return frozenset({Effect.ADDS_HINTS, *light})

    def __post_init__(self) -> None:
        if self.levels < 1:
            raise ValueError(f"levels={self.levels}: there is one hint level at least")

    def init(self, pool: Pool) -> Levels:
        """Every prompt at level 0."""
        n = len(pool)
        return Levels(references(pool), np.zeros(n, np.int64), np.full(n, np.nan), np.full(n, np.nan))

    def observe(self, state: Levels, step: Step) -> Levels:
        """Levels at which the step's prompts ended, and how often they were solved there."""
        r = step.rollouts
        own = (r.purpose == "train") & (r.ask >= 0) & np.isfinite(r.correct)
        level, accuracy, plain = state.level.copy(), state.accuracy.copy(), state.plain.copy()
        at = np.array([_level(c) for c in r.context], np.int64)
        for p in np.unique(r.prompt[own & (at >= 0)]):
            mine = own & (at >= 0) & (r.prompt == p)
            top = int(at[mine].max())
            accuracy[p] = r.correct[mine & (at == top)].mean()
            level[p] = top
            if (at[mine] == 0).any():
                plain[p] = r.correct[mine & (at == 0)].mean()
        return Levels(state.reference, level, accuracy, plain)

    def reveal(self, state: Levels) -> Mapping[str, np.ndarray]:
        """mean = the last plain success rate (a half before), the level, and the accuracy there."""
        seen = np.isfinite(state.plain)
        mean = np.where(seen, state.plain, 0.5)
        return {
            "mean": mean,
            "low": np.where(seen, mean, 0.0),
            "high": np.where(seen, mean, 1.0),
            "level": state.level.astype(float),
            "accuracy": np.nan_to_num(state.accuracy),
        }

    def amend(self, state: Levels, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """SAGE: another pass, one level up, for prompts without a success. Light: fresh asks start at their level."""
        if self.mode != "sage":
            return self._light(state, plan)
        done, r = draft.plan, draft.rollouts
        if done is None or r is None:
            return plan
        asks = []
        going_on = plan.prompt[(plan.purpose == "train") & (plan.context == "")]  # of these not all was tried yet
        for p in np.setdiff1d(done.prompt[done.purpose == "train"], going_on):
            at = np.array([_level(c) for c in done.context[done.prompt == p]], np.int64)
            top = int(at.max(initial=-1))
            mine = (r.prompt == p) & (r.purpose == "train") & np.isfinite(r.correct)
            if not 0 <= top < self.levels or not mine.any() or (r.correct[mine] > 0).any():
                continue
            text = _part(str(state.reference[p]), top + 1, self.levels)
            if text:
                n = int(done.n_leaves[(done.prompt == p) & (done.context == _context(top))].sum())
                asks.append(Ask(int(p), n, Text(text, "user"), _context(top + 1)))
        return with_asks(plan, asks)

    def _light(self, state: Levels, plan: Plan) -> Plan:
        start, context = plan.start.copy(), plan.context.copy()
        for row in np.flatnonzero(plan.is_plain):
            p = int(plan.prompt[row])
            before = None if np.isnan(state.accuracy[p]) else float(state.accuracy[p])
            if self.mode == "paper":
                level = sage_light_paper(int(state.level[p]), before, self.levels, self.alpha)
            else:
                level = sage_light_code(int(state.level[p]), before, self.levels, self.up_at, self.down_above)
            text = _part(str(state.reference[p]), level, self.levels)
            if level and text:
                start[row], context[row] = Text(text, "user"), _context(level)
        hinted = context != plan.context  # what waits of them would go on from a hinted rollout as from a plain one
        at_once = plan.settled(hinted, np.maximum(plan.n_leaves, plan.n + plan.n_deferred))
        return replace(at_once, start=start, context=context)

    def estimate(self, state: Levels, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Only the group of a prompt's highest level is trained on."""
        r = draft.rollouts
        at = np.array([_level(c) for c in r.context], np.int64)
        top = np.full(int(r.prompt.max(initial=-1)) + 1, -1, np.int64)
        np.maximum.at(top, r.prompt, at)
        return advantage.drop((at >= 0) & (at < top[r.prompt]) & (r.purpose == "train"), "lower_hint_level")


def _context(level: int) -> str:
    return f"sage:{level}" if level else ""


def _level(context: str) -> int:
    """The hint level of a context; -1 for contexts of other methods."""
    if context == "":
        return 0
    return int(context[5:]) if context.startswith("sage:") else -1


def _part(reference: str, level: int, levels: int) -> str:
    words = reference.split()
    shown = len(words) * level // (levels + 1)
    return " ".join(words[:shown])
