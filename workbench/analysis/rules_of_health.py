"""Rules about health: runs that can learn nothing, from their second step on.

These find causes (no reward, a constant reward, answers cut off, groups of one), and hide the rules that would only tell their
effects.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from workbench.analysis.rules import NO_DATA, Read, TooShort, columns, rule

IDLE = (
    "miscalibrated_beliefs",
    "dead_prompts",
    "solved_prompts",
    "idle_groups",
    "constant_reward_part",
    "nothing_trained",
    "one_answer",
)
"""Rules that tell what becomes of a run whose rewards are all alike."""

ENOUGH = 16
"""Rollouts below which nothing is said of a run."""


def _late(rows: pa.Table, *names: str) -> list[np.ndarray]:
    """Columns of the last fifth of the steps, at least two and at most ten. Raises TooShort where there are too few."""
    n = min(10, max(2, rows.num_rows // 5))
    late = rows.slice(max(rows.num_rows - n, 0))
    if rows.num_rows < 2 or np.nansum(columns(late, "n")[0]) < ENOUGH:
        raise TooShort
    return columns(late, *names)


@rule(
    "three of the texts beside their reference answers: is the answer where the verifier looks, are answers cut, is the task "
    "too hard for this model?",
    hides=IDLE,
)
def no_reward(rows: pa.Table) -> Read:
    """No rollout of the last steps was rewarded."""
    scored, high, low = _late(rows, "scored", "high", "low")
    if not scored.sum() or np.nanmax(high) > 0 or np.nanmin(low) < 0:
        return None
    return f"none of {int(scored.sum())} rollouts of the last {len(scored)} steps got any reward", {
        "reward": 0.0,
        "rollouts": int(scored.sum()),
    }


@rule(
    "easier prompts, hints or a stronger model; or, where rewards are graded on purpose, a verifier that says what is correct",
    hides=("dead_prompts", "constant_reward_part", "miscalibrated_beliefs"),
)
def nothing_solved(rows: pa.Table) -> Read:
    """Rewards differ, but no rollout of the last steps is correct."""
    scored, high, correct = _late(rows, "scored", "high", "correct")
    if not np.isfinite(correct).any() or np.nanmax(correct) > 0 or np.nanmax(high) == 0:
        return None
    what = f"none of {int(scored.sum())} rollouts of the last {len(scored)} steps is correct; rewards reach {np.nanmax(high):g}"
    return what, {"best reward": float(np.nanmax(high)), "rollouts": int(scored.sum())}


@rule("a verifier that tells answers apart (look at texts), or harder prompts where all are right", hides=IDLE)
def constant_reward(rows: pa.Table) -> Read:
    """Every rollout of the last steps got the same reward, which is not zero."""
    scored, high, low, correct = _late(rows, "scored", "high", "low", "correct")
    if not scored.sum() or np.nanmax(high) != np.nanmin(low) or np.nanmax(high) == 0:
        return None
    why = ": all are solved" if np.nanmin(correct) == 1 else ""
    what = f"all {int(scored.sum())} rollouts of the last {len(scored)} steps got the reward {np.nanmax(high):g}{why}"
    return what, {"reward": float(np.nanmax(high)), "rollouts": int(scored.sum())}


@rule("a higher max_tokens, stop strings that the model writes, or a prompt that asks for shorter answers")
def cut_off(rows: pa.Table) -> Read:
    """Nine answers of ten or more are cut at the limit, and less than half of them are right."""
    n, cut, correct = _late(rows, "n", "cut", "correct")
    share = float((cut * n).sum() / n.sum())
    if share < 0.9 or (np.isfinite(correct).any() and np.nanmean(correct) >= 0.5):
        return None
    return f"{share:.0%} of the answers are cut at the limit of tokens", {"cut": share, "rollouts": int(n.sum())}


@rule(
    "a larger budget of rollouts, or fewer prompts a step: an advantage needs two rollouts of a prompt",
    hides=("idle_groups", "nothing_trained"),
)
def groups_of_one(rows: pa.Table) -> Read:
    """Every group is a single rollout, whose advantage is zero."""
    largest, signal, n = _late(rows, "largest", "signal", "n")
    if largest.max() > 1 or signal.sum():
        return None
    return "every group is one rollout, with nothing to compare it to: all advantages are zero", {
        "rollouts": int(n.sum())
    }


@rule("the reasons in the ledger: what drops them, and with which setting")
def nothing_trained(rows: pa.Table) -> Read:
    """No rollout of the last steps was trained on, though rewards differ."""
    signal, n, failed = _late(rows, "signal", "n", "failed")
    if signal.sum() or failed.sum() == n.sum():
        return None
    reasons = [r for r in rows["reason"].to_pylist()[-len(n) :] if r]
    reason = (max(set(reasons), key=reasons.count) if reasons else "none told").replace("_", " ")
    what = f"none of {int(n.sum())} rollouts of the last {len(n)} steps had an advantage, most: {reason}"
    return what, {"rollouts": int(n.sum()), "reason": reason}


@rule("a setting of the method that lets it act on these answers, a longer run, or leaving it out")
def never_acted(rows: pa.Table) -> Read:
    """A method that has changed nothing in all steps so far: no hint, fork, cut, replayed or refused rollout."""
    row = rows.to_pylist()[0]
    if row["steps"] < 5:
        raise TooShort
    who = json.loads(row["pipeline"] or "{}")
    idle = {verb: names for verb, names in who.items() if verb in row and names and not row[verb]}
    # of a method that has several verbs one is enough
    busy = {name for verb, names in who.items() if row.get(verb) for name in names}
    found = {name: verb for verb, names in idle.items() for name in names if name not in busy}
    if not found:
        return None
    told = ", ".join(f"{name} ({verb})" for name, verb in found.items())
    return f"{told} has not acted in {row['steps']} steps", found


@rule("the method that asks for more or less (asks of the step), or another Budget(rollouts)")
def off_budget(rows: pa.Table) -> Read:
    """Steps make more rollouts than their budget, or less than four fifths of it."""
    made, budget = columns(rows, "made", "budget")
    known = np.isfinite(budget)
    if not known.any():
        return NO_DATA
    if known.sum() < 2:
        raise TooShort
    ratio = float(made[known].sum() / budget[known].sum())
    if 0.8 <= ratio <= 1.005:
        return None
    word = "over" if ratio > 1 else "under"
    what = f"steps make {made[known].mean():.0f} rollouts where the budget is {budget[known].mean():.0f}: {word} budget"
    return what, {"made": float(made[known].mean()), "budget": float(budget[known].mean())}
