"""Messages in the place of a page: no run recorded yet, no such run, an error."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from workbench.store.errors import StoreError
from workbench.views.data.text import html, one_line
from workbench.views.parts import cards

OFFERED = 12
"""Runs that are named where an address names one that does not exist."""


def nothing_yet(where: str) -> str:
    """A store without runs."""
    return cards.empty(
        "No run yet",
        "Start one with <code>workbench demo</code>, or <code>workbench run experiment.toml</code>.",
        f"This page watches the store <code>{html(where)}</code> and shows the run as soon as its first step is recorded.",
    )


def no_such_run(run: str, runs: Sequence[str], where: str) -> str:
    """A run that the store does not have, and those that it has."""
    more = f" and {len(runs) - OFFERED:,} more" if len(runs) > OFFERED else ""
    named = ", ".join(f"<code>{html(r, 60)}</code>" for r in runs[:OFFERED])
    there = f"The store <code>{html(where)}</code> has {named}{more}."
    return cards.empty(f"There is no run {one_line(run, 60)!r}", there, "Choose one of them at the top.")


def wrong(title: str, problem: Exception) -> str:
    """A problem; the traceback only where it is a mistake of ours, and folded away."""
    known = isinstance(problem, (StoreError, OSError)) or "duckdb" in type(problem).__module__
    known |= type(problem) is LookupError  # a run that is not there; a missing key or index is a mistake of ours
    detail = "" if known else "".join(traceback.format_exception(problem))
    return cards.error(title, str(problem) if known else f"{type(problem).__name__}: {problem}", detail)
