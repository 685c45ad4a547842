"""The charts of a run: learning, families, budget, time, difficulty, calibration, signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from workbench.analysis.evaluation import Scores
from workbench.report.document import Figure, query
from workbench.report.heat import heatmap
from workbench.report.svg import Panel, Series, figure
from workbench.views.data.records import WINDOW, Stack, binned, smooth, thinned
from workbench.views.data.run import RunData
from workbench.views.data.text import one_line
from workbench.views.parts import theme

HUES = ("#2f81d6", "#d98200", "#13a082", "#a9669f", "#d4512a", "#5c7cba", "#b8a02c", "#7fbdea")
"""Colours of things without a meaning of their own, in order: pipelines, numbers of samples."""

POINTS = 700
"""Points of a training curve that are drawn at most; more are averaged."""


def learning(data: RunData, name: str) -> Figure:
    """Evaluation with its interval, over the training curves."""
    e, c = data.evaluation, data.curves
    step, reward, rate, zero = thinned(
        POINTS, c.step, *(smooth(values, WINDOW) for values in (c.reward, c.pass_rate, c.zero_advantage))
    )
    series = [
        Series("training reward (moves with selection)", theme.MOVES, step, reward, dash="6 4"),
        Series("training pass rate", theme.PASS, step, rate),
        Series("zero advantage", theme.ZERO, step, zero),
    ]
    if len(e.step):
        series.append(
            Series("evaluation solved: learning", theme.LEARNING, e.step, e.solved, e.low, e.high, "both", width=3.2)
        )
    top = max(1.02, float(np.nanmax(reward, initial=1.0)))
    bottom = min(0.0, float(np.nanmin(reward, initial=0.0)))
    return Figure(
        f"learning{name}",
        figure([Panel(series, x_label="training step", y_label="share, or mean reward", y=(bottom, top))], "learning and training curves", height=300),
        "The fixed evaluation set with the 95 % interval for prompts like these, and the training batches (means of nine steps).",
        [query("page_evaluation", run=data.run), query("reward_by_step", run=data.run)],
    )  # fmt: skip


def samples(passes: Scores, majority: Scores | None, name: str) -> Figure:
    """pass@k over steps for every k, and majority@k of the largest."""
    series = []
    for i, k in enumerate(passes.ks):
        step, rows = passes.curve(k)
        values, style = np.array([r.mean for r in rows]), "both" if len(step) < 40 else "line"
        series.append(Series(f"pass@{k}", HUES[i % len(HUES)], step, values, style=style))
    if majority is not None:
        k = majority.ks[-1]
        step, rows = majority.curve(k)
        values = np.array([r.mean for r in rows])
        series.append(Series(f"majority@{k}", "#8b949e", step, values, style="both", dash="5 4"))
    sources = [query("eval_tries", run=passes.run)]
    sources += [query("eval_answers", run=passes.run)] if majority is not None else []
    return Figure(
        f"pass-at-k{name}",
        figure([Panel(series, x_label="training step", y_label="evaluation prompts", percent=True)], "pass at k over steps", height=260),
        "Chance that k samples hold a right answer, and that the answer most of them give is right; unbiased estimates from all samples.",
        sources,
    )  # fmt: skip


def families(passes: Scores, name: str, most: int = 16) -> Figure:
    """Small panels, one per family: pass@1 with its interval over steps."""
    every = sorted(passes.names("stratum"), key=lambda n: -passes.gain(1, "stratum", n).n)
    names = every[:most]
    panels = []
    for n in sorted(names):
        step, rows = passes.curve(1, "stratum", n)
        mean, low, high = (np.array([getattr(r, f) for r in rows]) for f in ("mean", "low", "high"))
        low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
        known = np.isfinite(low)
        band = (np.where(known, low, mean), np.where(known, high, mean))
        series = Series("pass@1", theme.LEARNING, step, mean, *band, "both" if len(step) < 20 else "line")
        panels.append(Panel([series], title=one_line(n, 22), y=(0, 1), percent=True))
    return Figure(
        f"families{name}",
        figure(panels, "evaluation by family", columns=4, height=128),
        f"Evaluation by family, with 95 % intervals over its prompts{'' if len(every) <= most else f'; the {most} with the most prompts'}.",
        [query("eval_tries", run=passes.run)],
    )


def budget(data: RunData, name: str) -> Figure:
    """Fates of the rollouts by step."""
    return _stack(
        binned(data.budget), theme.BUDGET, f"budget{name}", "rollouts a step",
        "What became of every rollout made for training.", [query("page_budget", run=data.run)],
    )  # fmt: skip


def seconds(data: RunData, name: str) -> Figure:
    """Phases by step."""
    return _stack(
        binned(data.seconds), theme.SECONDS, f"seconds{name}", "seconds a step", "Where the time went.",
        [query("timings_by_step", run=data.run)],
    )  # fmt: skip


def _stack(stack: Stack, colors: Mapping[str, str], name: str, label: str, caption: str, sources: Sequence) -> Figure:
    """Bars on top of each other, in the order of the colours."""
    kinds = [k for k in colors if np.nansum(stack.amount.get(k, 0)) > 0]
    kinds += [k for k in stack.amount if k not in colors and np.nansum(stack.amount[k]) > 0]
    base = np.zeros(len(stack.step))
    series = []
    for k in kinds:
        amount = np.nan_to_num(stack.amount[k])
        series.append(Series(k, colors.get(k, "#8b949e"), stack.step, amount, base, base + amount, "bars"))
        base = base + amount
    panel = Panel(series, x_label="training step", y_label=label, bar=float(stack.width))
    more = f" Each bar is the mean of {stack.width} steps." if stack.width > 1 else ""
    return Figure(name, figure([panel], caption, height=240), caption + more, sources)


def difficulty(data: RunData, belief: str, name: str) -> Figure | None:
    """The heat map of prompts over steps, by a method's beliefs or as observed."""
    heat = data.heat(belief)
    if not heat.n_columns:
        return None
    pixels = heat.pixels(heat.order("difficulty", data.prompts.stratum), rows=300)
    observed = belief not in data.methods
    value = "share solved when last asked" if observed else f"chance of solving, believed by {belief}"
    question = query("page_observed", run=data.run) if observed else query("belief_map", run=data.run, method=belief)
    picture = heatmap(
        pixels, "difficulty of prompts over steps", steps=(0.5, heat.n_columns * heat.width + 0.5), rows=len(data.prompts),
        value="share solved" if observed else "believed", y_label="prompts, hardest below",
    )  # fmt: skip
    return Figure(
        f"difficulty-{'observed' if observed else belief}{name}",
        picture,
        f"Every prompt over the run: {value}; grey is not known. Ordered by the last column.",
        [question],
    )


def calibration(rows: Sequence[dict], run: str, method: str, name: str) -> Figure | None:
    """Believed against observed success, by tenth of the belief."""
    if len(rows) < 2:
        return None
    x = np.array([r["believed"] for r in rows], float)
    y = np.array([r["observed"] for r in rows], float)
    n = np.array([r["tries"] for r in rows], float)
    half = 1.96 * np.sqrt(np.clip(y * (1 - y), 1e-4, None) / np.maximum(n, 1))
    panel = Panel(
        [Series("as believed", "#8b949e", np.array([0.0, 1.0]), np.array([0.0, 1.0]), dash="5 4", width=1.4),
         Series("observed", theme.LEARNING, x, y, np.clip(y - half, 0, 1), np.clip(y + half, 0, 1), "both")],
        x_label=f"success believed by {method} before the step", y_label="success observed", y=(0, 1),
    )  # fmt: skip
    return Figure(
        f"calibration{name}", figure([panel], "calibration of beliefs", height=250),
        f"Beliefs of {method} against what came: on the dashed line they would be right. The band is that of the rollouts.",
        [query("calibration", run=run, method=method)],
    )  # fmt: skip


def signs(rows: Sequence[dict], run: str, name: str) -> Figure:
    """Share of wrong signs by step, beside what the size of the groups explains."""
    step = np.array([r["step"] for r in rows], float)
    n = np.array([r["rollouts"] for r in rows], float)

    def rate(column: str) -> np.ndarray:
        return smooth(np.array([r[column] for r in rows], float), 9) / np.maximum(smooth(n, 9), 1e-9)

    x, hard, explained, vanish = thinned(POINTS, step, rate("hard"), rate("explained"), rate("vanish"))
    series = [
        Series("zero though not average", theme.ZERO, x, vanish),
        Series("explained by group size", "#8b949e", x, explained, dash="5 4"),
        Series("wrong sign", theme.BUDGET["failed"], x, hard),
    ]
    return Figure(
        f"signs{name}",
        figure(
            [Panel(series, x_label="training step", y_label="advantages", percent=True)],
            "signs of advantages",
            height=230,
        ),
        "Advantages whose sign contradicts the prompt's neighbouring groups (at most ten steps away), means of nine steps; rollouts "
        "within two standard errors of that reference are left out.",
        [query("sign_excess", run=run)],
    )


def histogram(rows: Sequence[dict], run: str, name: str) -> Figure:
    """Prompts by their pass rate over the run."""
    rate = np.array([r["pass_rate"] for r in rows if r["tried"]], float)
    counts = np.histogram(rate, np.linspace(0, 1, 11))[0]
    edges = np.linspace(0.1, 1.0, 10)
    series = [Series("", theme.LEARNING, edges, counts.astype(float), np.zeros(10), counts.astype(float), "bars")]
    return Figure(
        f"pass-rates{name}",
        figure([Panel(series, x_label="share solved over the whole run", y_label="prompts", bar=0.092)], "prompts by pass rate", height=190),
        "How hard the prompts were that were tried.", [query("prompts_by_difficulty", run=run)],
    )  # fmt: skip
