"""Pieces of a page as HTML text: header, legends, budget table, prompt, notes. Every value from outside is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from workbench.analysis.diagnose import NO_DATA, TOO_SHORT, Diagnosis
from workbench.views.data.binning import per_row
from workbench.views.data.records import Columns, Evaluation, Group, History, Prompts, RunFacts, Stack
from workbench.views.data.selection import OBSERVED
from workbench.views.data.sql_text import Query
from workbench.views.data.steering import Command
from workbench.views.data.text import count, duration, fixed, html, percent
from workbench.views.parts import theme

STATUS = {
    "running": ("#13a082", "running"),
    "finished": ("#2f81d6", "finished"),
    "stopped": ("#8b949e", "stopped"),
    "paused": ("#d98200", "paused"),
    "failed": ("#d4512a", "failed"),
    "interrupted": ("#d4512a", "interrupted"),
}

LATELY = 20
"""Steps over which the header's "lately" figures are taken."""


def key(color: str, label: str, value: str = "", form: str = "") -> str:
    """One entry of a legend: a patch or a line of colour, what it stands for, its present value."""
    style = f"color:{color}" if form == "dots" else f"background:{color}"
    return f'<span class="key"><i class="{form}" style="{style}"></i>{html(label)}{f" <b>{html(value)}</b>" if value else ""}</span>'


def head(title: str, *keys: str) -> str:
    """The title line of a card with its legend."""
    return f'<div class="head"><h2>{html(title)}</h2>{"".join(keys)}</div>'


def stat(name: str, value: str, note: str = "") -> str:
    """One figure of the header; value may hold markup of ours."""
    return f'<div class="stat"><div class="name">{html(name)}</div><div class="value">{value}</div><div class="note">{note}</div></div>'


def table(forms: str, rows: Iterable[Sequence[str]], heads: Sequence[str] = (), look: str = "") -> str:
    """Rows of ready HTML as a table. forms: a letter for each column, n for numbers and t for text; look: class of the heads."""

    def line(tag: str, cells: Sequence[str], look: str = "") -> str:
        right = {"n": ' class="n"'}
        made = (f"<{tag}{right.get(form, '')}>{cell}</{tag}>" for form, cell in zip(forms, cells, strict=True))
        return f'<tr class="{look}">{"".join(made)}</tr>' if look else f"<tr>{''.join(made)}</tr>"

    return f"<table>{line('th', heads, look) if heads else ''}{''.join(line('td', r) for r in rows)}</table>"


def badge(status: str) -> str:
    """The status of a run as a coloured word."""
    color, word = STATUS.get(status, ("#8b949e", status or "unknown"))
    return f'<span class="badge" style="color:{color};background:color-mix(in srgb, {color} 16%, transparent)">{html(word)}</span>'


def lately(values: np.ndarray) -> float:
    """Mean of the last LATELY known values; NaN for none."""
    values = values[np.isfinite(values)][-LATELY:]
    return float(values.mean()) if len(values) else float("nan")


def header(facts: RunFacts, curves: Columns, evaluation: Evaluation, budget: Stack, warnings: int) -> str:
    """Status and the figures one looks at first, then who acts at each verb."""
    target = f" <small>of {facts.target:,}</small>" if facts.target else ""
    stats = [
        stat("Step", f"{facts.step:,}{target}", badge(facts.status)),
        stat("Evaluation solved", *_learning(evaluation)),
        stat("Training reward", fixed(lately(curves.reward)), f"last {LATELY} steps; moves with selection"),
        stat("Zero advantage", percent(lately(curves.zero_advantage)), f"of training rollouts, last {LATELY} steps"),
        stat(
            "Rollouts",
            count(sum(budget.totals().values())),
            f"{count(float(np.nansum(curves.tokens)))} tokens generated",
        ),
        stat("Time per step", duration(lately(curves.seconds)), _speed(curves)),
        stat("Warnings", f'<span class="{"warn" if warnings else ""}">{warnings:,}</span>', "see the notes at the end"),
    ]
    verbs = "".join(
        f'<span class="verb"><em>{html(verb)}</em> {html(" → ".join(names))}</span>'
        for verb, names in facts.who.items()
    )
    about = " · ".join(html(x) for x in (facts.model, f"{facts.n_prompts:,} prompts", facts.note) if x)
    return (
        f'<div class="stats">{"".join(stats)}</div>'
        f'<div class="who"><b>{html(facts.pipeline, 400)}</b><span class="quiet">{about}</span>{verbs}</div>'
    )


def judgement(found: Diagnosis) -> str:
    """What the rules of the diagnosis say of the run, first on its page: findings with texts to look at, or that it is well."""
    if not found.verdicts:
        return ""
    if not found.findings:
        open_ = sum(verdict in (NO_DATA, TOO_SHORT) for verdict in found.verdicts.values())
        rest = f"; {open_} have too little to read yet" if open_ else ""
        return f'<div class="quiet">None of {len(found.verdicts)} rules found anything wrong{rest}.</div>'
    shown = [
        f'<div class="error" role="alert"><b>{html(f.what, 400)}</b> <span class="quiet">{html(f.rule)}</span><br>'
        f"Try: {html(f.way_out, 400)}"
        + "".join(f"<br><code>{html(text, 200)}</code>" for text in (f.texts if f is found.findings[0] else ()))
        + "</div>"
        for f in found.findings[:3]
    ]
    more = len(found.findings) - len(shown)
    return "".join(shown) + (f'<div class="quiet">and {more} more: workbench diagnose</div>' if more > 0 else "")


def _learning(e: Evaluation) -> tuple[str, str]:
    if not len(e.step):
        return "–", "no evaluation yet"
    if len(e.step) == 1:
        return percent(e.solved[0]), f"before learning; ± {50 * (e.high[0] - e.low[0]):.0f} points (95 %)"
    gain = 100 * (e.solved[-1] - e.solved[0])
    arrow = f'<small class="{"up" if gain >= 0 else "down"}">{"+" if gain >= 0 else "−"}{abs(gain):.0f} points</small>'
    return (
        f"{percent(e.solved[-1])} {arrow}",
        f"step {e.step[-1]:.0f}, from {percent(e.solved[0])} at step {e.step[0]:.0f}",
    )


def _speed(curves: Columns) -> str:
    seconds, tokens = lately(curves.seconds), lately(curves.tokens)
    return f"{count(tokens / seconds)} tokens/s over the whole step" if seconds > 0 else ""


def curves_head(curves: Columns, evaluation: Evaluation) -> str:
    """Legend of the learning card, with present values."""
    last = evaluation.solved[-1] if len(evaluation.solved) else float("nan")
    return head(
        "Learning",
        key(theme.LEARNING, "evaluation solved: learning", percent(last), "line"),
        key(theme.MOVES, "training reward: moves with selection", fixed(lately(curves.reward)), "dots"),
        key(theme.PASS, "training pass rate", percent(lately(curves.pass_rate)), "line"),
        key(theme.ZERO, "zero advantage", percent(lately(curves.zero_advantage)), "line"),
    )


def totals(stack: Stack, colors: Mapping[str, str], unit: str, reasons: Mapping[tuple[str, str], float] = {}) -> str:
    """A bar of shares and a table of amounts over the whole run; reasons of what was not trained stand under it."""
    amount = {k: v for k, v in stack.totals().items() if v > 0}
    whole = sum(amount.values())
    if not whole:
        return ""
    order = [k for k in colors if k in amount] + [k for k in amount if k not in colors]
    bar = "".join(
        f'<i style="width:{100 * amount[k] / whole:.3f}%;background:{colors.get(k, "#8b949e")}" title="{html(k)}"></i>'
        for k in order
    )
    rows = []
    for k in order:
        why = [(reason, n) for (kind, reason), n in reasons.items() if kind == k]
        note = ", ".join(f"{reason.replace('_', ' ')} {n:,.0f}" for reason, n in sorted(why, key=lambda r: -r[1])[:3])
        much = duration(amount[k]) if unit == "s" else f"{amount[k]:,.0f}"
        under = f"<br><span class=quiet>{html(note)}</span>" if note else ""
        rows.append((key(colors.get(k, "#8b949e"), k) + under, much, f"{100 * amount[k] / whole:.0f} %"))
    return f'<div class="bar">{bar}</div>{table("tnn", rows)}'


def legend(stack: Stack, colors: Mapping[str, str]) -> list[str]:
    """Legend entries of the kinds that occur."""
    got = stack.totals()
    whole = sum(got.values()) or 1.0
    return [key(c, k, percent(got[k] / whole)) for k, c in colors.items() if got.get(k)]


def prompt(history: History, belief: str) -> str:
    """What the chosen prompt is, and how it fared."""
    if not history.text:
        return empty("No prompt chosen", "Click a row of the heat map to see one prompt's history.")
    asked, solved, times = int(np.sum(history.asked)), int(np.sum(history.solved)), len(history.asked_step)
    now, band = "–", ""
    if len(history.mean):
        now, band = percent(history.mean[-1]), f"{percent(history.low[-1])} to {percent(history.high[-1])}"
    share = percent(solved / asked) if asked else "–"
    answer = html(history.answer, 60) or "–"
    stats = [
        stat(f"Now, {belief}", now, band),
        stat("Asked", f"{asked:,}", f"rollouts in {times:,} step{'s' * (times != 1)}; {share} solved"),
        stat("Reference answer", f"<small>{answer}</small>", html(history.stratum, 40)),
    ]
    return f'<pre dir="auto">{html(history.text, 1500)}</pre><div class="stats">{"".join(stats)}</div>'


def group_line(group: Group) -> str:
    """Which group the completions belong to."""
    if not group.rows:
        return ""
    right = sum(r["correct"] == 1 for r in group.rows)
    return (
        f'<div class="quiet">step {group.step:,} · {right} of {len(group.rows)} correct · reference answer '
        f"<code>{html(group.answer, 60)}</code></div><pre dir='auto'>{html(group.text, 600)}</pre>"
    )


def notes(rows: Sequence[Mapping[str, Any]], shown: int = 6) -> str:
    """The latest warnings, failures and remarks; those of one kind about one thing are one line."""
    if not rows:
        return '<div class="quiet">Nothing to tell: no warning, no failure.</div>'
    alike: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for r in rows:
        alike.setdefault((r["kind"], r["subject"]), []).append(r)
    lines = []
    for (kind, subject), same in list(alike.items())[:shown]:
        times = f' <span class="quiet">×{len(same):,}, last:</span>' if len(same) > 1 else ""
        word = html(kind, 20) if kind == "note" else f'<span class="warn">{html(kind, 20)}</span>'
        about = f"<b>{html(subject, 40)}</b>{times}<br>{html(same[0]['message'], 300)}"
        lines.append((f"{same[0]['step'] or 0:,}", word, about))
    rest = len(alike) - shown
    more = f'<div class="quiet">and {rest:,} more kinds, in the store\'s table events</div>' if rest > 0 else ""
    return table("ntt", lines) + more


def empty(title: str, *lines: str) -> str:
    """An empty state that says what to do; lines may hold markup of ours."""
    return f'<div class="empty"><b>{html(title)}</b>{"<br>".join(lines)}</div>'


def error(title: str, message: str, detail: str = "") -> str:
    """An error as a message: what happened, what to do, and the traceback folded away."""
    more = (
        f"<details><summary class='quiet'>details</summary><pre>{html(detail, 6000)}</pre></details>" if detail else ""
    )
    return f'<div class="error" role="alert"><b>{html(title)}</b><br>{html(message, 1000)}{more}</div>'


def command_table(told: Sequence[Command], shown: int = 12) -> str:
    """What was asked of the run, by whom, and what became of it; the newest first."""
    if not told:
        return '<div class="quiet">Nothing was asked of this run yet.</div>'
    lines = [
        (
            f"{t.step:,}" if t.step or t.state != "asked" else "–",
            f"<b>{html(t.what, 200)}</b>",
            html(t.who, 60),
            f'<span class="{"warn" if t.state == "refused" else ""}">{html(t.line, 400)}</span>',
        )
        for t in told[:shown]
    ]
    rest = len(told) - shown
    more = f'<div class="quiet">and {rest:,} more, in the store\'s table commands</div>' if rest > 0 else ""
    return table("nttt", lines, ("step", "what", "who", "outcome")) + more


def query_list(questions: Sequence[Query]) -> str:
    """The questions behind the views of a page, each as a call and as SQL to be copied."""
    if not questions:
        return empty("No question", "What this page shows was not asked of the store.")
    parts = "".join(
        f"<details><summary><b>{html(q.view)}</b> <code>{html(q.call, 300)}</code></summary>"
        f'<pre class="sql">{html(q.sql, 20_000)}</pre></details>'
        for q in questions
    )
    note = "The SQL page takes each of them, and so do <code>store.sql</code> and <code>store.ask</code> in a notebook."
    return head("The questions behind this page", f"<span>{note}</span>") + parts


def difficulty_note(prompts: Prompts, asked: np.ndarray, belief: str) -> str:
    """What the heat map's colours and rows are."""
    k = per_row(len(prompts))
    rows = f"; each row is the mean of {k} neighbouring prompts" if k > 1 else ""
    what = "share solved when last asked" if belief == OBSERVED else "believed chance of solving"
    seen = f"{int((asked > 0).sum()):,} of {len(prompts):,} prompts asked so far"
    return f"{what}; {seen}; grey is not known{rows}. Click a row."


def prompt_head(belief: str) -> str:
    """Legend of the prompt card."""
    name = "share solved" if belief == OBSERVED else f"{belief}: mean, low to high"
    return head(
        "One prompt",
        key(theme.LEARNING, name, form="line"),
        key(theme.MOVES, "solved share when asked (size: rollouts)"),
    )
