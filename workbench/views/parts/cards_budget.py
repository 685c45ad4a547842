"""The budget page's cards as HTML text: its figures, the ledger, the savings. What comes from outside is escaped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.views.data.budget import Entry, Spending
from workbench.views.data.records import Columns
from workbench.views.data.text import count, html, percent
from workbench.views.parts.cards import empty, lately, stat, table
from workbench.views.parts.plots_budget import KINDS

LEFT_OUT = "carried to a later step"
"""Counted where the rollout ends; its line tells what was under way at the ends of steps."""


def figures(b: Spending, curves: Columns) -> str:
    """What was spent, what of it taught something, and what it saved."""
    tokens, rollouts = b.spent("tokens"), b.spent("rollouts")
    useful = sum(e.tokens for e in b.ledger if e.kind == "trained, with signal")
    evaluated = b.spent("tokens", ("eval",))
    seconds = float(np.nansum(curves.seconds))
    s, a = b.savings, b.asked
    flat, saved = float(s.flat_equivalent.sum()), float(s.saved.sum())
    asked, spent = lately(a.asked), lately(a.spent)
    stats = [
        stat("Tokens generated", count(tokens), f"{count(rollouts)} rollouts, evaluation left out"),
        stat("With signal", share(useful, tokens), f"{count(useful)} tokens trained on with an advantage"),
        stat("Asked, spent", f"{asked:,.0f}, {spent:,.0f}" if len(a.step) else "–", "rollouts a step, last 20 steps"),
        stat("Saved", share(saved, flat) if flat else "–", _against(saved)),
        stat("Evaluation", count(evaluated), "tokens besides, never trained on"),
        stat("Cost of signal", f"{tokens / max(a.useful.sum(), 1):,.0f}" if len(a.step) else "–", "tokens generated for each rollout with signal"),
        stat("Speed", f"{tokens / seconds:,.0f}" if seconds else "–", "tokens a second over whole steps"),
    ]  # fmt: skip
    return f'<div class="stats">{"".join(stats)}</div>'


def _against(saved: float) -> str:
    if saved < 0:
        return f"{count(-saved)} tokens more than the kept rollouts one by one"
    return f"{count(saved)} tokens less than the rollouts one by one"


def share(some: float, whole: float) -> str:
    """A share with a true minus; a dash without a whole."""
    return "–" if not whole else percent(some / whole).replace("-", "−")


def ledger(entries: Sequence[Entry], used_again: int) -> str:
    """Rollouts and tokens by purpose, fate and reason."""
    if not entries:
        return empty("Nothing spent yet", "No step is recorded yet.")
    rows, purpose = [], None
    for e in entries:
        whole = sum(x.tokens for x in entries if x.purpose == e.purpose and x.kind != LEFT_OUT) or 1
        if e.purpose != purpose:
            n = sum(x.rollouts for x in entries if x.purpose == e.purpose and x.kind != LEFT_OUT)
            name = {"train": "for training", "eval": "for evaluation"}.get(e.purpose, f"for {e.purpose}")
            rows.append((f"<b>{html(name, 40)}</b>", f"<b>{n:,}</b>", f"<b>{whole:,}</b>", ""))
            purpose = e.purpose
        if e.purpose != "train":
            continue
        patch = f'<span class="key"><i style="background:{KINDS.get(e.kind, "#8b949e")}"></i></span> '
        why = f'<div class="quiet">{html(e.reason.replace("_", " "), 60)}</div>' if e.reason else ""
        of = "" if e.kind == LEFT_OUT else f"{100 * e.tokens / whole:.1f} %"
        rows.append((f"{patch}{html(e.kind, 60)}{why}", f"{e.rollouts:,}", f"{e.tokens:,}", of))
    again = f'<div class="quiet">Besides, {used_again:,} rollouts of earlier steps or from elsewhere were used: no new tokens.</div>' if used_again else ""  # fmt: skip
    later = '<div class="quiet">Carried rollouts are counted in the step in which they end.</div>' if any(e.kind == LEFT_OUT for e in entries) else ""  # fmt: skip
    return f"{table('tnnn', rows, ('', 'rollouts', 'tokens', 'of them'), 'quiet')}{again}{later}"


def savings(s: Columns) -> str:
    """What trees and pruning saved, and what was given up for it."""
    if not len(s.step):
        return empty("Nothing generated yet", "No step is recorded yet.")
    made, kept, flat = (int(c.sum()) for c in (s.generated, s.kept, s.flat_equivalent))
    parts = [
        ("kept", kept, "on the path of a rollout that was not given up, shared prefixes once"),
        ("pruned", int(s.pruned.sum()), "on the paths of pruned rollouts alone"),
        ("discarded", int(s.discarded.sum()), "on the paths of discarded rollouts alone"),
        ("probes and the like", int(s.probe.sum()), "not for training"),
    ]
    parts = [part for part in parts if part[1] or part[0] == "kept"]
    parts.append(("one by one", flat, "what the kept rollouts would have cost alone"))
    rows = [(f'{name}<div class="quiet">{what}</div>', f"{n:,}", share(n, made)) for name, n, what in parts]
    factor = flat / kept if kept else 1.0
    note = (
        f"Each kept token stood for {factor:.2f} tokens of rollouts generated one by one."
        if factor > 1.005
        else "These rollouts share no prefix. Methods that grow trees, such as branchgrpo, would save tokens here."
    )
    spared = float(s.spared.sum())
    cut = (
        f" Pruning spared about {count(spared)} tokens more, had the given-up rollouts gone on." if spared >= 1 else ""
    )
    return f'{table("tnn", rows)}<div class="quiet">{note}{cut}</div>'
