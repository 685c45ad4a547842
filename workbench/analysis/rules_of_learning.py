"""Rules about learning: where rollouts went, and what entropy, ratios, signs and beliefs say of a run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from workbench.analysis.rules import WARMUP, Read, TooShort, columns, rule
from workbench.store.questions import load


def _trend(values: np.ndarray) -> tuple[float, float]:
    """Mean of the first and of the last fifth of a series, five values at least. Raises TooShort where they would overlap."""
    if len(values) < 2 * WARMUP:
        raise TooShort
    size = max(WARMUP, len(values) // 5)
    return float(np.nanmean(values[:size])), float(np.nanmean(values[-size:]))


@rule("a selector that avoids hopeless prompts (mopps, vade, dps), hints, or taking them out of the pool")
def dead_prompts(rows: pa.Table) -> Read:
    """Rollouts spent on prompts that were tried 16 times or more and never solved."""
    tries, solved = columns(rows, "tries", "solved")
    if tries.max() < 16:
        raise TooShort
    dead = (tries >= 16) & (solved == 0)
    share = tries[dead].sum() / max(tries.sum(), 1)
    if share < 0.1:
        return None
    names = [rows["prompt_id"][int(i)].as_py() for i in np.flatnonzero(dead)]
    what = f"{share:.0%} of the rollouts went to {dead.sum()} prompts that nobody ever solved"
    return what, {"prompts": names, "rollouts": int(tries[dead].sum())}


@rule("a selector that leaves solved prompts (mopps, vade, dapo_dynamic_sampling), or harder prompts")
def solved_prompts(rows: pa.Table) -> Read:
    """Late rollouts spent on prompts that are always solved."""
    tries, solved = columns(rows, "tries_late", "solved_late")
    if tries.max() < 16:
        raise TooShort
    done = (tries >= 16) & (np.nan_to_num(solved) == tries)
    share = tries[done].sum() / max(tries.sum(), 1)
    if share < 0.25:
        return None
    what = f"{share:.0%} of the late rollouts went to {done.sum()} prompts that are always solved"
    return what, {"prompts": int(done.sum()), "rollouts": int(tries[done].sum())}


@rule("a lower learning rate, clip-higher (dapo), or an entropy term")
def collapsing_entropy(rows: pa.Table) -> Read:
    """Entropy of the policy at the tokens that it sampled fell to a fifth of what it was."""
    (entropy,) = columns(rows, "entropy")
    first, last = _trend(entropy)
    if first <= 0 or last > 0.2 * first:
        return None
    return f"entropy fell from {first:.3f} to {last:.3f} nats a token", {"first": first, "last": last}


@rule("leave the part out, or look at what its verifier sees: a part that never varies teaches nothing")
def constant_reward_part(rows: pa.Table) -> Read:
    """A named reward that has been the same number for five steps or more."""
    alike = [
        r
        for r in rows.to_pylist()
        if r["n"] >= 64 and r["steps"] >= WARMUP and r["low"] == r["high"] and rows.num_rows > 1
    ]
    if not alike:
        if max(rows["steps"].to_pylist()) < WARMUP:
            raise TooShort
        return None
    return f"reward part {alike[0]['part']} is always {alike[0]['low']:g}", {r["part"]: r["low"] for r in alike}


@rule("a length penalty (dapo's overlong shaping), const_len reduction, or a higher limit if answers are cut")
def length_explosion(rows: pa.Table) -> Read:
    """Answers grew to twice their length while more of them were cut at the limit."""
    length, cut = columns(rows, "length", "cut")
    (first, last), (cut_first, cut_last) = _trend(length), _trend(cut)
    if last < 2 * first or cut_last < cut_first + 0.1:
        return None
    what = f"answers grew from {first:.0f} to {last:.0f} tokens, and {cut_last:.0%} are cut at the limit"
    return what, {"first": first, "last": last, "cut_first": cut_first, "cut_last": cut_last}


@rule("the texts of failed rollouts (top of the events), the verifier's time and memory limits", empty=None)
def verifier_failures(rows: pa.Table) -> Read:
    """One rollout in fifty or more got no reward because its verifier failed."""
    counts = {r["failure"]: r["n"] for r in rows.to_pylist()}
    total = rows["total"][0].as_py() if rows.num_rows else 0
    failed = sum(counts.values())
    if not total or failed < 0.02 * total:
        return None
    told = str(rows["told"][0].as_py() or "").partition("; first: ")[2][:200]
    kind = next(iter(counts)).replace("_", " ")
    return f"{failed / total:.1%} of the rollouts got no reward, most: {kind}{told and f' ({told})'}", counts


@rule("fewer updates per batch, less staleness, or a truncated ratio (grpo's truncation, async_staleness)")
def stale_ratios(rows: pa.Table) -> Read:
    """A tenth of the sampled tokens or more are of a policy more than a quarter away."""
    outside, n = columns(rows, "outside", "n")
    share = float((outside * n).sum() / n.sum())
    if share < 0.1:
        return None
    what = f"{share:.0%} of the tokens have an importance ratio outside 0.8..1.25"
    return what, {"share": share, "worst_step": int(rows["step"][int(outside.argmax())].as_py())}


@rule(
    "whether rewards and advantages belong to the same rows, then a baseline of the prompt's own group (grpo, rloo), or "
    "of its own past (v05): a baseline from elsewhere turns signs",
    load()["sign_excess"].sql,
)
def sign_flips(rows: pa.Table) -> Read:
    """Advantages with the wrong sign, twice as many and 5 % more than groups of this size would have by themselves."""
    n, hard, explained = (column.sum() for column in columns(rows, "rollouts", "hard", "explained"))
    if n < 200:
        raise TooShort
    if hard < 2 * explained or hard < explained + 0.05 * n:
        return None
    what = f"{hard / n:.0%} of the advantages point the wrong way; the size of the groups explains {explained / n:.0%}"
    estimators = sorted({str(e) for e in rows["estimator"].to_pylist()})
    return what, {"rollouts": int(n), "wrong": int(hard), "explained": int(explained), "estimator": estimators}


@rule("a decay (mopps(decay=0.9), vade) so that old outcomes fade, or a selector that needs no belief")
def miscalibrated_beliefs(rows: pa.Table) -> Read:
    """Observed rates are further from the belief than a guess of the mean rate would be, beyond chance."""
    rate, n, mean = columns(rows, "rate", "n", "mean")
    if len(rate) < 100:
        raise TooShort
    weight = n / n.sum()
    noise = float((weight * mean * (1 - mean) / n).sum())  # of a rate of n rollouts, had the belief been right
    error = float((weight * (rate - mean) ** 2).sum())
    base = float((weight * (rate - (weight * rate).sum()) ** 2).sum())
    if error < base or error < 1.5 * noise:
        return None
    method = rows["method"][0].as_py()
    what = f"{method} predicts success worse than the mean rate does"
    return what, {"squared_error": error, "of_the_mean_rate": base, "expected_by_chance": noise}


@rule("a selector (mopps, vade, dps) or dynamic sampling, which ask for groups that are mixed")
def idle_groups(rows: pa.Table) -> Read:
    """Three quarters of the late training rollouts or more have no advantage."""
    (idle,) = columns(rows, "idle")
    first, last = _trend(idle)
    if last < 0.75:
        return None
    return f"{last:.0%} of the late training rollouts have advantage zero", {"first": first, "last": last}
