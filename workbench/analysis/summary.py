"""What a run learned and spent, in words: the ten lines that a run ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.types import Rollouts, Step

if TYPE_CHECKING:
    from workbench.experiment import Experiment


def mean(column: np.ndarray) -> float:
    """Mean of the values that are not null; NaN when there is none."""
    known = column[np.isfinite(column)]
    return float(known.mean()) if len(known) else float("nan")


def zero_share(step: Step) -> float:
    """Share of the step's training rollouts whose advantage is zero or that left the loss for want of spread."""
    trainable = (step.rollouts.purpose == "train") & (step.fate != "failed")
    return float((step.advantage.value[trainable] == 0).mean()) if trainable.any() else float("nan")


def learned(evaluations: list[tuple[int, Rollouts]]) -> str:
    """What the summary calls learning: pass rate on the fixed evaluation set, first and last, with its change."""
    if len(evaluations) < 2:
        return "learning  not measured: the evaluation set was scored once"
    (first_step, first), (last_step, last) = evaluations[0], evaluations[-1]
    a, b = by_prompt(first), by_prompt(last)
    change = b - a
    error = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else float("nan")
    return (
        f"learning  evaluation pass rate {np.nanmean(a):.3f} (step {first_step}) -> {np.nanmean(b):.3f} (step {last_step}): "
        f"{np.nanmean(change):+.3f} ± {1.96 * error:.3f} (95 %, {len(a)} prompts never trained on)"
    )


def by_prompt(rollouts: Rollouts) -> np.ndarray:
    """(P,) pass rate of each prompt, null outcomes left out."""
    known = np.isfinite(rollouts.correct)
    tries = np.bincount(rollouts.prompt[known])
    solved = np.bincount(rollouts.prompt[known], rollouts.correct[known])
    return solved[tries > 0] / tries[tries > 0]


def summary(
    run: str, experiment: Experiment, steps: list[Step], evaluations: list[tuple[int, Rollouts]], seconds: float
) -> list[str]:
    """Ten lines on what was learned and spent, and the next three commands to try."""
    if not steps:
        return [f"run {run}: stopped before its first step; nothing was spent"]
    fate = np.concatenate([s.fate for s in steps])
    reason = np.concatenate([s.fate_reason for s in steps])
    length = np.concatenate([s.rollouts.length for s in steps])
    total = max(int(length.sum()), 1)
    signal_ = (fate == "trained") & (reason == "")
    idle = (fate == "trained") & (reason == "zero_advantage")
    rest = ~(signal_ | idle)
    reasons = ", ".join(
        f"{f} ({r or 'no reason'}) {length[rest & (fate == f) & (reason == r)].sum() / total:.0%}"
        for f, r in sorted(set(zip(fate[rest], reason[rest], strict=True)))
    )
    phases: dict[str, float] = {}
    for s in steps:
        for name, value in s.seconds.items():
            phases[name] = phases.get(name, 0.0) + value
    spent = sum(phases.values())
    where = ", ".join(
        f"{k} {v / spent:.0%}" for k, v in sorted(phases.items(), key=lambda kv: -kv[1]) if v / spent >= 0.01
    )
    groups = sum(len(np.unique(s.rollouts.group)) for s in steps)
    e = experiment
    name = "demo" if e.model != "sim" else "demo --sim"
    return [
        f"run       {run}: {len(steps)} steps in {seconds:,.0f} s ({spent / len(steps):.2f} s a step)",
        learned(evaluations),
        f"batch     mean reward {mean(steps[0].rollouts.reward):.3f} -> {mean(steps[-1].rollouts.reward):.3f} (moves with what is selected; not learning)",
        f"spent     {len(length):,} rollouts, {total:,} tokens on {groups:,} groups",
        f"  signal  {length[signal_].sum() / total:.0%} of the tokens had an advantage",
        f"  idle    {length[idle].sum() / total:.0%} had advantage zero: their group's rewards were all alike",
        f"  other   {reasons or 'none dropped, none failed'}",
        f"time      {where}",
        f"warnings  {sum(ev.count for s in steps for ev in s.events)} (the dashboard lists them)",
        f"store     {e.store}",
        "",
        "next",
        f"  workbench dashboard {e.store}",
        f"  workbench {name} --pipeline 'grpo + vade' --store {e.store}",
        "  jupyter lab notebooks/10_first_run.ipynb",
    ]
