"""Summary of a run in ten lines: what it learned and spent, as it is printed at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from workbench.store.urls import redacted
from workbench.types import Rollouts, Step

if TYPE_CHECKING:
    from workbench.runs.experiment import Experiment

SIGNAL, IDLE = ("trained", ""), ("trained", "zero_advantage")
"""(fate, reason) of a rollout that had an advantage, and of one whose advantage was zero."""


def mean(column: np.ndarray) -> float:
    """Mean of the values that are not null; NaN when there is none."""
    known = column[np.isfinite(column)]
    return float(known.mean()) if len(known) else float("nan")


def zero_share(step: Step) -> float:
    """Share of the step's training rollouts whose advantage is zero or that left the loss for want of spread."""
    trainable = (step.rollouts.purpose == "train") & (step.fate != "failed")
    return float((step.advantage.value[trainable] == 0).mean()) if trainable.any() else float("nan")


def learned(evaluations: Sequence[tuple[int, Rollouts]]) -> str:
    """What the summary calls learning: pass rate on the fixed evaluation set, first and last, with its change."""
    if len(evaluations) < 2:
        return "learning  not measured: the evaluation set was scored once"
    (first_step, first), (last_step, last) = evaluations[0], evaluations[-1]
    n = int(max(first.prompt.max(), last.prompt.max())) + 1
    a, b = by_prompt(first, n), by_prompt(last, n)
    change = (b - a)[np.isfinite(b - a)]
    if len(change) < 2:
        return "learning  not measured: too few evaluation rollouts were scored"
    error = change.std(ddof=1) / np.sqrt(len(change))
    return (
        f"learning  evaluation pass rate {mean(a):.3f} (step {first_step}) -> {mean(b):.3f} (step {last_step}): "
        f"{change.mean():+.3f} ± {1.96 * error:.3f} (95 %, {len(change)} prompts never trained on)"
    )


def by_prompt(rollouts: Rollouts, n: int = 0) -> np.ndarray:
    """(P,) pass rate of each prompt of the first set, at least n of them; NaN where no outcome is known."""
    known = np.isfinite(rollouts.correct) & (rollouts.context == "")
    n = max(n, int(rollouts.prompt.max(initial=-1)) + 1)
    tries = np.bincount(rollouts.prompt[known], minlength=n)
    solved = np.bincount(rollouts.prompt[known], rollouts.correct[known], minlength=n)
    return np.where(tries > 0, solved / np.maximum(tries, 1), np.nan)


class Tally:
    """What the steps of a run add up to; its size does not grow with the run."""

    def __init__(self) -> None:
        self.n_steps = self.groups = self.warnings = 0
        self.rollouts: Counter[tuple[str, str]] = Counter()
        self.tokens: Counter[tuple[str, str]] = Counter()
        self.seconds: Counter[str] = Counter()
        self.first_reward = self.last_reward = float("nan")

    def add(self, step: Step) -> None:
        """Count a finished step."""
        reward = mean(step.rollouts.reward)
        self.first_reward = self.first_reward if self.n_steps else reward
        self.last_reward = reward
        self.n_steps += 1
        self.groups += len(np.unique(step.rollouts.group))
        self.warnings += sum(event.count for event in step.events)
        for key, length in zip(zip(step.fate, step.fate_reason, strict=True), step.rollouts.length, strict=True):
            self.rollouts[key] += 1
            self.tokens[key] += int(length)
        self.seconds.update(step.seconds)


def summary(
    run: str, experiment: Experiment, tally: Tally, evaluations: Sequence[tuple[int, Rollouts]], seconds: float
) -> list[str]:
    """Ten lines on what was learned and spent, and the next three commands to try."""
    if not tally.n_steps:
        return [f"run {run}: stopped before its first step; nothing was spent"]
    total, spent = max(tally.tokens.total(), 1), tally.seconds.total()
    share = {key: n / total for key, n in tally.tokens.items()}
    others = sorted((k, v) for k, v in share.items() if k not in (SIGNAL, IDLE))
    other = ", ".join(f"{fate} ({reason or 'no reason'}) {v:.0%}" for (fate, reason), v in others)
    where = ", ".join(f"{k} {v / spent:.0%}" for k, v in tally.seconds.most_common() if v / spent >= 0.01)
    again = {"smollm2": "", "sim": " --sim"}.get(experiment.model, f" --model {quote(experiment.model)}")
    store = quote(redacted(experiment.store))
    return [
        f"run       {run}: {tally.n_steps} steps in {seconds:,.0f} s ({spent / tally.n_steps:.2f} s a step)",
        learned(evaluations),
        f"batch     mean reward {tally.first_reward:.3f} -> {tally.last_reward:.3f} (moves with what is selected; not learning)",
        f"spent     {tally.rollouts.total():,} rollouts, {total:,} tokens on {tally.groups:,} groups",
        f"  signal  {share.get(SIGNAL, 0):.0%} of the tokens had an advantage",
        f"  idle    {share.get(IDLE, 0):.0%} had advantage zero: their group's rewards were all alike",
        f"  other   {other or 'none dropped, none failed'}",
        f"time      {where}",
        f"warnings  {tally.warnings} (the dashboard lists them)",
        f"store     {redacted(experiment.store)}",
        "",
        "next",
        f"  workbench dashboard {store}",
        f"  workbench demo{again} --pipeline 'grpo + vade' --store {store}",
        "  jupyter lab notebooks/10_first_run.ipynb",
    ]
