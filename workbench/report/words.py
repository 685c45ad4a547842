"""Summary of a run in sentences made from its numbers; each names the questions it was read from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.analysis.diagnose import Finding
from workbench.analysis.evaluation import Scores
from workbench.report.document import Prose, query
from workbench.views.data.records import smooth
from workbench.views.data.run import RunData
from workbench.views.data.text import duration


def share(x: float) -> str:
    """A share in words: 38 %, 0.4 %."""
    return (
        "an unknown share" if x != x else f"{100 * x:.1f} %" if 0 < x < 0.0095 or 0.9905 < x < 1 else f"{100 * x:.0f} %"
    )


def points(x: float) -> str:
    """A difference of shares: +12.3 points."""
    return f"{100 * x:+.1f}".replace("-", "−") + " points"


def between(low: float, high: float) -> str:
    """An interval of differences: +1.0 to +2.5."""
    return f"{points(low).removesuffix(' points')} to {points(high).removesuffix(' points')}"


def plural(n: float, what: str) -> str:
    """1 prompt, 1,200 prompts."""
    return f"{n:,.0f} {what}{'' if n == 1 else 's'}"


def made(data: RunData) -> Prose:
    """What was run and how far it got."""
    f, c = data.facts, data.curves
    target = f" of {f.target:,}" if f.target and f.target != f.step else ""
    tokens, seconds = float(np.nansum(c.tokens)), float(np.nansum(c.seconds))
    text = (
        f"{f.pipeline} on {f.model}: {f.step:,}{target} steps, {f.status or 'state unknown'}; {plural(float(np.nansum(c.rollouts)), 'training rollout')} and "
        f"{plural(tokens, 'generated token')} over {plural(f.n_prompts, 'prompt')} in {duration(seconds)}."
    )
    return Prose(text, [query("page_run", run=data.run), query("reward_by_step", run=data.run)])


def learned(data: RunData, scores: Scores | None) -> list[Prose]:
    """Gain on the evaluation set, paired by prompt, and what more samples would have given."""
    run, tries = data.run, [query("eval_tries", run=data.run)]
    if scores is None or not len(scores.steps):
        return [Prose("Learning was not measured: the run has no evaluation.", [query("eval_sets", run=run)])]
    first, last = scores.steps[0], scores.steps[-1]
    now = scores.at(last, 1)
    if first == last:
        return [Prose(f"The evaluation set was scored once, at step {first:,}: {share(now.mean)} solved.", tries)]
    gain, began = scores.gain(1), scores.at(first, 1)
    if gain.n < 2:
        text = f"{share(began.mean)} of the evaluation set were solved at step {first:,} and {share(now.mean)} at step {last:,}; too few prompts were scored at both for an interval."
        return [Prose(text, tries)]
    sure = {1: "more than chance", -1: "a loss beyond chance", 0: "within chance"}[gain.sign]
    text = (
        f"On {plural(gain.n, 'evaluation prompt')} that were never trained on, {share(began.mean)} were solved at step {first:,} and "
        f"{share(now.mean)} at step {last:,}: {points(gain.mean)} ({between(gain.low, gain.high)} at 95 %, paired by prompt), {sure}."
    )
    out = [Prose(text, tries)]
    if (k := scores.ks[-1]) > 1:
        many = scores.gain(k)
        verdict = {1: f"so more prompts are solved within {k} samples; {k} samples cannot tell whether the others were out of reach before", 0: "so it is not clear that more prompts came within reach, rather than that those within reach are hit more often",
                   -1: "so fewer prompts are within reach than before"}[many.sign]  # fmt: skip
        change = f"{points(many.mean)} ({between(many.low, many.high)})"
        out.append(Prose(f"With {k} samples a prompt (pass@{k}) the change is {change}, {verdict}.", tries))
    names = scores.names("stratum")
    if len(names) > 1:
        gains = {n: scores.gain(1, "stratum", n) for n in names}
        order = sorted(names, key=lambda n: -np.nan_to_num(gains[n].mean, nan=-9))
        best, worst = (f"({points(gains[n].mean)}, {plural(gains[n].n, 'prompt')})" for n in (order[0], order[-1]))
        text = f"Of {len(names)} families {order[0]} gained most {best} and {order[-1]} least {worst}."
        out.append(Prose(text, tries))
    return out


def spent(data: RunData, wasted: Sequence[dict]) -> Prose:
    """Where the training tokens went."""
    by = {r["what"]: r["share"] or 0.0 for r in wasted}
    useful = by.pop("useful", 0.0)
    settled = sorted((k for k in by if k.startswith("zero_advantage")), key=lambda k: -by[k])
    parts = [
        f"{share(by[k])} went to groups that were {k.split(': ')[1].replace('alike', 'rewarded alike')}"
        for k in settled
        if by[k] >= 0.005
    ]
    other = sum(v for k, v in by.items() if k not in settled)
    if other >= 0.005:
        parts.append(f"{share(other)} was dropped, cut or failed")
    rest = "; " + ", ".join(parts) if parts else ""
    return Prose(f"{share(useful)} of the training tokens had an advantage{rest}.", [query("wasted", run=data.run)])


def difficulty(data: RunData, rows: Sequence[dict]) -> Prose:
    """How hard the pool was, and how much of it was seen."""
    tried = [r for r in rows if r["tried"]]
    never = sum(r["solved"] == 0 for r in tried)
    always = sum(r["solved"] == r["tried"] for r in tried)
    if not tried:
        return Prose("No prompt was tried outside hints and probes.", [query("prompts_by_difficulty", run=data.run)])
    text = f"{len(tried):,} of {plural(len(rows), 'prompt')} were tried; {never:,} of these were never solved, {always:,} always."
    return Prose(text, [query("prompts_by_difficulty", run=data.run)])


def signs(run: str, rows: Sequence[dict]) -> Prose | None:
    """How often advantages point the wrong way."""
    n = sum(r["rollouts"] for r in rows)
    if not n:
        return None
    hard, explained, vanish = (sum(r[c] for r in rows) / n for c in ("hard", "explained", "vanish"))
    return Prose(
        f"Of {plural(n, 'advantage')} whose true sign can be told from neighbouring groups of the prompt, {share(hard)} point the wrong way "
        f"(the size of the groups explains {share(explained)}) and {share(vanish)} are zero though the reward was not average.",
        [query("sign_excess", run=run)],
    )


def batch(data: RunData) -> Prose | None:
    """How the training batches moved; not learning."""
    c = data.curves
    if len(c.step) < 2:
        return None
    reward, zero = smooth(c.reward, 9), smooth(c.zero_advantage, 9)
    at = min(8, len(reward) - 1)
    return Prose(
        f"In the batches, mean reward moved from {reward[at]:.3f} to {reward[-1]:.3f} and the share without advantage from {share(zero[at])} to "
        f"{share(zero[-1])} (means of nine steps). Both move with what is selected: they are not learning.",
        [query("reward_by_step", run=data.run)],
    )


def findings(rows: Sequence[Finding], n_rules: int) -> Prose:
    """What the rules of the diagnosis found."""
    if not rows:
        return Prose(f"None of {n_rules} rules of the diagnosis found anything wrong.")
    return Prose(
        f"{plural(len(rows), 'rule')} of {n_rules} of the diagnosis spoke: " + "; ".join(f.what for f in rows) + "."
    )
