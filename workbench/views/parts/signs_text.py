"""Sign flips in words, as HTML: legends, tables, and why signs flip here or cannot. Everything is escaped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.numerics.flips import TAU, binary_vanish
from workbench.views.data.signs import BINS, COUNTS, RATES, GroupReference, Rates, Span, rate
from workbench.views.data.text import count, fixed, html, percent, signed
from workbench.views.data.tokens import Sibling
from workbench.views.parts import theme
from workbench.views.parts.cards import empty, head, key, table

COLORS = {"hard": "#d4512a", "vanish": "#a9669f", "spurious": "#d98200"}

LABELS = {
    "ok": ("#13a082", "circle", "●", "ok: pushed the right way"),
    "hard": ("#d4512a", "x", "✕", "hard flip: pushed the wrong way"),
    "vanish": ("#a9669f", "circle_dot", "◉", "vanish: should be pushed, is not"),
    "spurious": ("#d98200", "diamond", "◆", "spurious: should not be pushed, is"),
    "ambiguous": ("#8b949e", "triangle", "▲", "ambiguous: too close to the reference to tell"),
    "both_zero": ("#8b949e", "dot", "·", "rightly not pushed"),
    "out of the loss": ("#8b949e", "cross", "+", "out of the loss"),
}
"""Label of a rollout -> colour, marker, the marker as a sign, words."""

KINDS = {
    "pool": "a pool: the mean of 64 or more rollouts of the same policy version",
    "posterior": "a belief: what the earlier steps of each prompt say, older ones fading; rates are expected shares",
    "small pool": "a small pool: the group itself, mostly, which cannot contradict it much",
}
"""Kind of reference -> words."""


def rates_head(kind: str, total: np.ndarray) -> str:
    """Legend of the rates over steps, with the rates over all of them."""
    hard = "hard flip, expected" if kind == "posterior" else "hard flip"
    words = {
        "hard": f"{hard}: pushed the wrong way",
        "vanish": "vanish: not pushed at all",
        "spurious": "spurious: pushed without cause",
    }
    keys = [
        key(COLORS[k], words[k], _share(float(rate(total, k))), "line")
        for k in RATES
        if k != "spurious" or kind != "posterior"
    ]
    return head("Signs over the steps", *keys)


def counted(kind: str, total: np.ndarray) -> str:
    """What the rates are over, and against what."""
    n, unclear, signed = (total[COUNTS.index(c)] for c in ("n", "unclear", "signed"))
    left = (
        "of prompts that were never asked before"
        if kind == "posterior"
        else f"within {2} standard errors of the reference, ambiguous"
    )
    text = f"Against {KINDS[kind]}. {count(n)} trained rollouts; {count(unclear)} {left}, stay outside."
    return f'<div class="quiet">{html(text, 600)}</div>' if signed or n else ""


def bins_table(rates: Rates, name: str, span: Span) -> str:
    """A rate by estimator and group size (rows) and difficulty (columns), shaded by its size. Sizes of which no rollout
    could be labelled, all too close to tell, have no row."""
    known, sums = rates.by("estimator", "size")
    keys = [k for k, of in zip(known, sums[:, COUNTS.index(RATES[name])], strict=True) if of]
    if not keys:
        return empty("Nothing to count yet", "Rates appear once trained rollouts have a reference of this kind.")
    width = (span.high - span.low) / BINS
    wraps = '<th class="n" style="white-space:normal">'  # or the last column would be out of sight
    top = "".join(f"{wraps}{span.low + k * width:.2f} to {span.low + (k + 1) * width:.2f}</th>" for k in range(BINS))
    lines = []
    for estimator, size in keys:
        mine = rates.take((rates.estimator == estimator) & (rates.size == size))
        at = dict(zip((k[0] for k in mine.by("bin")[0]), mine.by("bin")[1], strict=True))
        cells = "".join(_cell(at.get(k), name) for k in range(BINS))
        lines.append(
            f'<tr><td>{html(estimator, 60)}</td><td class="n">{size}</td>{cells}{_cell(mine.counts.sum(0), name)}</tr>'
        )
    return (
        f'<div style="overflow-x:auto"><table><tr><th>estimator</th>{wraps}group size</th>{top}<th class="n">all</th></tr>{"".join(lines)}</table></div>'
        f'<div class="quiet">Share of rollouts; below it, how many it is over. Columns: the reference, which is the mean reward of the prompt, hardest first. '
        f"Group size: its rollouts that reached the loss.</div>"
    )


def _cell(sums: np.ndarray | None, name: str) -> str:
    of = 0.0 if sums is None else float(sums[COUNTS.index(RATES[name])])
    if sums is None or not of:
        return '<td class="n quiet">–</td>'
    share = float(rate(sums, name))
    shade = f"background:color-mix(in srgb, {COLORS[name]} {min(70.0, 100 * share):.0f}%, transparent)"
    return f'<td class="n" style="{shade}">{_share(share)}<br><span class="quiet">{count(of)}</span></td>'


def _share(x: float) -> str:
    return "–" if x != x else "0 %" if x == 0 else f"{100 * x:.1f} %" if x < 0.1 else f"{100 * x:.0f} %"


def strip_head(found: Sequence[GroupReference], rows: Sequence[Sibling]) -> str:
    """Legend of the strip: what the lines are, and the labels that occur."""
    lines = [key(theme.MOVES, "baseline of the estimator", _first(rows), "line")]
    if found:
        a = found[0]
        lines.append(key(theme.LEARNING, f"reference: {a.kind}, with its 95 % interval", f"{a.value:.3f}", "line"))
        lines.append(key("color-mix(in srgb, #d4512a 22%, transparent)", "where advantages point the wrong way"))
    labels = [label for label in LABELS if found and label in found[0].labels]
    marks = "".join(
        f'<span class="key"><b style="color:{LABELS[n][0]}">{LABELS[n][2]}</b>{html(LABELS[n][3])} <b>{found[0].labels.count(n)}</b></span>'
        for n in labels
    )
    return f'<div class="head">{"".join(lines)}</div><div class="head" style="margin-top:3px">{marks}</div>'


def rollouts_table(rows: Sequence[Sibling], found: Sequence[GroupReference], most: int = 64) -> str:
    """Every rollout with its label, and the chance that its advantage points the wrong way."""
    lines = []
    for i, s in enumerate(rows[:most]):
        label = found[0].labels[i] if found else "ambiguous"
        chance = found[0].chance[i] if found else float("nan")
        color, _, sign, _ = LABELS[label]
        words = label.replace("_", " ") if found else "no reference"
        advantage = "–" if s.advantage is None or s.fate != "trained" else signed(s.advantage)
        mark = f'<b style="color:{color}">{sign}</b> {html(words)}'
        lines.append((f'<span class="mono">{html(s.id, 40)}</span>', fixed(s.reward), advantage, mark, percent(chance)))
    heads = ("rollout", "reward", "advantage", "label", "chance of the wrong way")
    rest = f'<div class="quiet">and {len(rows) - most:,} more rollouts</div>' if len(rows) > most else ""
    shown = table("tnntn", lines, heads)
    return f'<div style="max-height:340px;overflow:auto;margin-top:8px">{shown}{rest}</div>'


def _plain(x: float) -> str:
    return f"{x:.3f}".replace("-", "\u2212")


def _first(rows: Sequence[Sibling]) -> str:
    value = next((s.baseline for s in rows if s.baseline is not None and s.baseline == s.baseline), None)
    return "not recorded" if value is None else f"{value:.3f}"


def against_table(found: Sequence[GroupReference], rows: Sequence[Sibling]) -> str:
    """Every reference there is for the group, and what it says of its rollouts."""
    if not found:
        return empty(
            "No reference yet",
            "It takes scored rollouts of the same version, or of the same prompt in an earlier step.",
        )
    lines = []
    for i, a in enumerate(found):
        chance = [c for c in a.chance if c == c]
        expected = f"{sum(chance):.2f}" if chance else "–"
        kind = html(a.kind) if i else f"<b>{html(a.kind)}</b>, drawn"
        lines.append((kind, fixed(a.value), f"{_plain(a.low)} to {_plain(a.high)}", f"{a.n:.0f}", expected))
    heads = ("reference", "mean reward", "95 % interval", "rollouts", "hard flips")
    return f"{table('tnnnn', lines, heads)}<div class='quiet'>Hard flips: counted against a pool, expected under a belief, of {len(rows)} rollouts.</div>"


def explain(span: Span, rows: Sequence[Sibling], found: Sequence[GroupReference]) -> str:
    """Why signs flip here, or cannot, in words and with the numbers of this run and group."""
    kept = [s for s in rows if s.fate in ("trained", "carried") and s.reward is not None]
    g = max(len(kept), 1)
    lines = []
    if span.levels == 2:
        p = (found[0].value - span.low) / max(span.high - span.low, 1e-12) if found else 0.5
        v = binary_vanish(np.array(min(max(p, 0.0), 1.0)), g)
        lines += [
            f"Rewards of this run take two values, {span.low:g} and {span.high:g}. A baseline between them lies below the one and above the "
            "other, and so does the true mean: whoever has the higher reward is pushed up under both, whoever has the lower is pushed down. "
            "A hard flip cannot happen under any baseline between the two, so a rate of 0 is no merit here. It takes three or more reward "
            "levels, rewards shaped by length, or advantages whitened over a whole batch.",
            f"What can happen is that signs vanish: a group whose rewards are all equal teaches nothing. At a chance of solving of {percent(p)} "
            f"and {g} rollouts a group that meets {percent(float(v.mean))} of the rollouts under a mean, and {percent(float(v.median))} under a median baseline.",
        ]
    elif span.levels > 2:
        between = [
            s
            for s in kept
            if found
            and s.reward is not None
            and s.baseline is not None
            and min(s.baseline, found[0].value) < s.reward < max(s.baseline, found[0].value)
        ]
        lines.append(
            f"Rewards of this run take {span.levels:,} values, so a rollout may lie between the baseline of its group and the true mean of its "
            "prompt. It is then pushed the wrong way: a hard flip."
        )
        if found and _first(rows) != "not recorded":
            lines.append(f"In this group {len(between)} of {len(kept)} rollouts lie between the two lines.")
    if found and found[0].kind == "small pool":
        lines.append(
            "The reference here is the group's own mean over few rollouts: an estimator that compares with that mean agrees with it by "
            "construction. For a reference that can contradict it, record a probe set (<code>probe_set</code>), or let prompts come again."
        )
    if found and found[0].kind == "posterior":
        lines.append(
            "The reference is a belief from earlier steps, of earlier policies: where the prompt is being learned, it lags behind."
        )
    if any(abs(s.advantage or 0.0) <= TAU for s in kept):
        lines.append(
            f"{sum(abs(s.advantage or 0.0) <= TAU for s in kept)} of {len(kept)} rollouts of this group got advantage 0."
        )
    return "".join(f"<p>{line}</p>" for line in lines)
