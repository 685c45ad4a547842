"""Diagnosis of a run: rules over its record, each with its evidence and a way out.

A rule is one question to the store and a threshold. It says nothing where the run is too short to tell. What a rule found
can be asked for again: a finding carries its SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from workbench.store.questions import load

if TYPE_CHECKING:
    from workbench.store import Store

WARMUP = 5
"""Steps before which no trend is read."""


@dataclass(frozen=True)
class Finding:
    """rule: its name; what: the finding in one sentence; evidence: figures; way_out: what to try; sql: where it is from."""

    rule: str
    what: str
    evidence: Mapping[str, object]
    way_out: str
    sql: str = field(repr=False)

    def __str__(self) -> str:
        figures = ", ".join(f"{k} {_short(v)}" for k, v in self.evidence.items())
        return f"{self.rule}: {self.what}\n    {figures}\n    try: {self.way_out}"

    def _repr_html_(self) -> str:
        figures = "".join(
            f"<tr><td>{escape(k)}</td><td>{escape(_short(v))}</td></tr>" for k, v in self.evidence.items()
        )
        return (
            f"<b>{escape(self.rule)}</b> {escape(self.what)}<table>{figures}</table>"
            f"<i>{escape(self.way_out)}</i><details><summary>SQL</summary><pre>{escape(self.sql)}</pre></details>"
        )


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value[:3])) + (f" and {len(value) - 3} more" if len(value) > 3 else "")
    return str(value)


Rule = Callable[[pa.Table], tuple[str, Mapping[str, object]] | None]
RULES: dict[str, tuple[str, str, Rule]] = {}
"""Name -> (SQL with $run, way out, what is read from its rows)."""


STATEMENTS = {
    name: sql.strip()
    for names, sql in re.findall(
        r"^-- rule: (.+)\n((?:(?!-- rule:).*\n)+)",
        (Path(__file__).parent / "diagnose.sql").read_text(encoding="utf-8"),
        re.M,
    )
    for name in names.split(", ")
}
"""Rule -> the SQL it reads, with $run."""


def rule(way_out: str, sql: str = "") -> Callable[[Rule], Rule]:
    """Register a rule under its function's name; its SQL is that of STATEMENTS where none is given."""

    def register(read: Rule) -> Rule:
        RULES[read.__name__] = ((sql or STATEMENTS[read.__name__]).strip(), way_out, read)
        return read

    return register


def diagnose(store: Store, run: str | None = None) -> list[Finding]:
    """Every rule's finding on a run (default: the latest), in the order of the rules; [] for a healthy one.

    >>> from workbench import Store
    >>> with Store.sample() as store:
    ...     [finding.rule for finding in diagnose(store)]
    ['constant_reward_part', 'idle_groups']
    """
    chosen = run or store.latest()
    if chosen is None:
        raise ValueError(f"the store {store.url!r} has no run yet; `workbench demo` records one")
    known = store.sql("SELECT count(*) AS n FROM runs WHERE run = $run", {"run": chosen})["n"][0].as_py()
    if not known:
        raise ValueError(f"no run {chosen!r} in {store!r}")
    found = []
    for name, (sql, way_out, read) in RULES.items():
        result = read(store.sql(sql, {"run": chosen}))
        if result is not None:
            what, evidence = result
            found.append(Finding(name, what, evidence, way_out, sql.replace("$run", f"'{chosen}'")))
    return found


def _columns(table: pa.Table, *names: str) -> list[np.ndarray]:
    return [np.array(table[n].to_pylist(), dtype=float) for n in names]


def _trend(values: np.ndarray) -> tuple[float, float]:
    """Mean of the first and of the last fifth of a series, five values at least."""
    size = max(WARMUP, len(values) // 5)
    return float(np.nanmean(values[:size])), float(np.nanmean(values[-size:]))


@rule("a selector that avoids hopeless prompts (mopps, vade, dps), hints, or taking them out of the pool")
def dead_prompts(rows: pa.Table) -> tuple[str, Mapping[str, object]] | None:
    """Rollouts spent on prompts that were tried 16 times or more and never solved."""
    tries, solved = _columns(rows, "tries", "solved")
    dead = (tries >= 16) & (solved == 0)
    share = tries[dead].sum() / max(tries.sum(), 1)
    if share < 0.1:
        return None
    names = [rows["prompt_id"][int(i)].as_py() for i in np.flatnonzero(dead)]
    what = f"{share:.0%} of the rollouts went to {dead.sum()} prompts that nobody ever solved"
    return what, {"prompts": names, "rollouts": int(tries[dead].sum())}


@rule("a selector that leaves solved prompts (mopps, vade, dapo_dynamic_sampling), or harder prompts")
def solved_prompts(rows: pa.Table) -> tuple[str, Mapping[str, object]] | None:
    """Late rollouts spent on prompts that are always solved."""
    tries, solved = _columns(rows, "tries_late", "solved_late")
    done = (tries >= 16) & (np.nan_to_num(solved) == tries)
    share = tries[done].sum() / max(tries.sum(), 1)
    if share < 0.25:
        return None
    what = f"{share:.0%} of the late rollouts went to {done.sum()} prompts that are always solved"
    return what, {"prompts": int(done.sum()), "rollouts": int(tries[done].sum())}


@rule("a lower learning rate, clip-higher (dapo), or an entropy term")
def collapsing_entropy(rows: pa.Table) -> tuple[str, Mapping[str, object]] | None:
    """Entropy of the policy at the tokens that it sampled fell to a fifth of what it was."""
    (entropy,) = _columns(rows, "entropy")
    if len(entropy) < 2 * WARMUP:
        return None
    first, last = _trend(entropy)
    if first <= 0 or last > 0.2 * first:
        return None
    return f"entropy fell from {first:.3f} to {last:.3f} nats a token", {"first": first, "last": last}


@rule("leave the part out, or look at what its verifier sees: a part that never varies teaches nothing")
def constant_reward_part(rows: pa.Table) -> tuple[str, Mapping[str, object]] | None:
    """A named reward that has been the same number for five steps or more."""
    alike = [
        r
        for r in rows.to_pylist()
        if r["n"] >= 64 and r["steps"] >= WARMUP and r["low"] == r["high"] and rows.num_rows > 1
    ]
    if not alike:
        return None
    return f"reward part {alike[0]['part']} is always {alike[0]['low']:g}", {r["part"]: r["low"] for r in alike}


@rule("a length penalty (dapo's overlong shaping), const_len reduction, or a higher limit if answers are cut")
def length_explosion(rows: pa.Table) -> tuple[str, Mapping[str, object]] | None:
    """Answers grew to twice their length while more of them were cut at the limit."""
    length, cut = _columns(rows, "length", "cut")
    if len(length) < 2 * WARMUP:
        return None
    (first, last), (cut_first, cut_last) = _trend(length), _trend(cut)
    if last < 2 * first or cut_last < cut_first + 0.1:
        return None
    what = f"answers grew from {first:.0f} to {last:.0f} tokens, and {cut_last:.0%} are cut at the limit"
    return what, {"first": first, "last": last, "cut_first": cut_first, "cut_last": cut_last}


@rule("the texts of failed rollouts (top of the events), the verifier's time and memory limits")
def verifier_failures(rows: pa.Table) -> tuple[str, Mapping[str, object]] | None:
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
def stale_ratios(rows: pa.Table) -> tuple[str, Mapping[str, object]] | None:
    """A tenth of the sampled tokens or more are of a policy more than a quarter away."""
    outside, n = _columns(rows, "outside", "n")
    if not n.sum():
        return None
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
def sign_flips(rows: pa.Table) -> tuple[str, Mapping[str, object]] | None:
    """Advantages with the wrong sign, twice as many and 5 % more than groups of this size would have by themselves."""
    n, hard, explained = (column.sum() for column in _columns(rows, "rollouts", "hard", "explained"))
    if n < 200 or hard < 2 * explained or hard < explained + 0.05 * n:
        return None
    what = f"{hard / n:.0%} of the advantages point the wrong way; the size of the groups explains {explained / n:.0%}"
    estimators = sorted({str(e) for e in rows["estimator"].to_pylist()})
    return what, {"rollouts": int(n), "wrong": int(hard), "explained": int(explained), "estimator": estimators}


@rule("a decay (mopps(decay=0.9), vade) so that old outcomes fade, or a selector that needs no belief")
def miscalibrated_beliefs(rows: pa.Table) -> tuple[str, Mapping[str, object]] | None:
    """Observed rates are further from the belief than a guess of the mean rate would be, beyond chance."""
    rate, n, mean = _columns(rows, "rate", "n", "mean")
    if len(rate) < 100:
        return None
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
def idle_groups(rows: pa.Table) -> tuple[str, Mapping[str, object]] | None:
    """Three quarters of the late training rollouts or more have no advantage."""
    (idle,) = _columns(rows, "idle")
    if len(idle) < 2 * WARMUP:
        return None
    first, last = _trend(idle)
    if last < 0.75:
        return None
    return f"{last:.0%} of the late training rollouts have advantage zero", {"first": first, "last": last}
