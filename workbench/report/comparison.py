"""Chapters about several runs: who learned more at equal cost, how sure that is, and what is unfair about it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.analysis.compare import AXES, Comparison, amount
from workbench.report import words
from workbench.report.curves import HUES
from workbench.report.document import Block, Figure, Prose, Table, columns, query
from workbench.report.svg import Panel, Ranged, Series, figure, intervals
from workbench.views.data.run import RunData


def summary(made: Comparison) -> list[Block]:
    """Who learned more, in sentences; nothing is called better whose interval holds zero."""
    runs = [c.run for c in made.curves]
    source = [query("compare_runs", runs=runs)]
    where = f"after {amount(made.x[-1], made.axis)}"
    rows = made.rows()
    base = next(r for r in rows if r["pipeline"] == made.baseline)
    out: list[Block] = [
        Prose(
            f"{len(runs)} runs of {words.plural(len(rows), 'pipeline')}; {where} the baseline {made.baseline} stands at "
            f"{words.share(float(base['final']))} ({made.what}, {words.plural(float(base['seeds']), 'seed')}).",
            source,
        )
    ]
    better, worse, unclear = [], [], []
    for r in rows:
        if r["pipeline"] == made.baseline:
            continue
        text = f"{r['pipeline']} ({words.points(float(r['difference']))}, {words.between(float(r['low']), float(r['high']))})"
        kind = unclear if r["pairs"] < 2 or r["low"] <= 0 <= r["high"] else better if r["low"] > 0 else worse
        kind.append(text)
    for names, verdict in (
        (better, "learned more than the baseline"),
        (worse, "learned less"),
        (unclear, "cannot be told apart from the baseline with these seeds"),
    ):
        if names:
            out.append(Prose(f"{'; '.join(names)}: {verdict}.", source))
    if not made.warnings:
        out.append(Prose("Nothing unfair was found: the runs share model, tasks, budget, evaluation set and seeds."))
    out += [Prose(f"Unfair: {w}.") for w in made.warnings]
    return out


def colors(made: Comparison) -> dict[str, str]:
    """A colour for every pipeline, the baseline's grey."""
    others = [n for n in made.labels if n != made.baseline]
    return {made.baseline: "#6e7781"} | {n: HUES[i % len(HUES)] for i, n in enumerate(others)}


def curves(made: Comparison) -> Figure:
    """Mean over seeds with its interval, and every seed thin."""
    hue, series = colors(made), []
    for label in made.labels:
        for c in made.of(label):
            series.append(Series("", hue[label], c.x, c.pass_rate, width=0.8))
    for label in made.labels:
        mean, low, high = made.band(label)
        known = np.isfinite(low).all()
        band = (np.clip(low, 0, 1), np.clip(high, 0, 1)) if known else (None, None)
        series.append(Series(label, hue[label], made.x, mean, *band, width=3.0))
    bands = [v for s in series for v in (s.y, s.low, s.high) if v is not None]
    seen = np.concatenate([v[np.isfinite(v)] for v in bands])
    pad = 0.08 * (seen.max() - seen.min()) or 0.05
    tall = (max(0.0, seen.min() - pad), min(1.0, seen.max() + pad))
    panel = Panel(series, x_label=AXES[made.axis], y_label=made.what, percent=True, y=tall)
    return Figure("comparison", figure([panel], "evaluation at equal cost", height=340),
                  f"{made.what.capitalize()} at equal cost: means over seeds with 95 % t intervals (thick), single seeds (thin).",
                  [query("compare_runs", runs=[c.run for c in made.curves])])  # fmt: skip


def differences(made: Comparison) -> list[Block]:
    """Differences to the baseline at the end and on the way, as figure and table."""
    rows, hue = made.rows(), colors(made)
    source = [query("compare_runs", runs=[c.run for c in made.curves])]
    marks = []
    for r in rows:
        if r["pipeline"] != made.baseline:
            for what, keys in (
                ("end", ("difference", "low", "high")),
                ("on the way", ("area_difference", "area_low", "area_high")),
            ):
                label, note = f"{r['pipeline']}, {what}", f"{r['pairs']} pairs"
                marks.append(Ranged(label, *(float(r[k]) for k in keys), color=hue[str(r["pipeline"])], note=note))
    best = max(float(r["final"]) for r in rows)
    own = ("difference", "low", "high", "area_difference", "area_low", "area_high")
    rows = [r | dict.fromkeys(own) if r["pipeline"] == made.baseline else r for r in rows]
    heads = columns(
        pipeline="", seeds=":n", final="at the end:f3", difference="to the baseline:signed", low=":signed", high=":signed",
        on_the_way="mean on the way:f3", area_difference="to the baseline:signed", area_low="low:signed",
        area_high="high:signed",
    )  # fmt: skip
    out: list[Block] = []
    if marks:
        label = f"difference to {made.baseline}, paired by seed"
        caption = "Differences to the baseline with 95 % intervals; one that holds zero decides nothing."
        out.append(Figure("differences", intervals(marks, caption, x_label=label, percent=True), caption, source))
    caption = f"{made.what.capitalize()} after {amount(made.x[-1], made.axis)}, differences paired by seed (95 %)."
    out.append(Table("comparison-table", heads, rows, caption, source))
    low = min(float(c.pass_rate[0]) for c in made.curves)
    target = low + 0.8 * (best - low)
    heads = columns(pipeline="", **{made.axis: f"{AXES[made.axis]}:n"}, reached="seeds that reached it:n", seeds="of:n")
    caption = (
        f"Cost to {made.what} {target:.3f} (four fifths of the way to the best), mean over the seeds that reached it."
    )
    return [*out, Table("to-target", heads, made.to_target(target), caption, source)]


def overview(data: Sequence[RunData], seeds: Sequence[int | None]) -> Table:
    """One row per run."""
    rows = []
    for d, seed in zip(data, seeds, strict=True):
        e, c = d.evaluation, d.curves
        rows.append({
            "run": d.run, "pipeline": d.facts.pipeline, "seed": seed, "status": d.facts.status, "steps": d.facts.step, "rollouts": float(np.nansum(c.rollouts)),
            "tokens": float(np.nansum(c.tokens)), "seconds": float(np.nansum(c.seconds)), "first": float(e.solved[0]) if len(e.step) else None,
            "last": float(e.solved[-1]) if len(e.step) else None, "zero": float(np.nanmean(c.zero_advantage)) if len(c.zero_advantage) else None,
        })  # fmt: skip
    status = {} if all(d.facts.status == "finished" for d in data) else {"status": ""}
    heads = columns(
        run=":code", pipeline="", seed=":n", **status, steps=":n", rollouts=":n", tokens=":n", seconds="time:s",
        first="evaluation first:f3", last=":f3", zero="zero advantage:%",
    )  # fmt: skip
    sources = [query("runs"), query("reward_by_step", run=data[0].run), query("page_evaluation", run=data[0].run)]
    return Table("runs", heads, rows, "The runs of this report.", sources)
