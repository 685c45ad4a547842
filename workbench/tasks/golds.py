"""Reference answers judged by their own verifier, before anything is trained on them.

An answer that its verifier refuses is a prompt that nothing solves. Each is judged as it is, and in the form that its
prompt asks for: in a \\boxed{}, behind ####, between <answer> tags.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from workbench.tasks.tables import Cell
from workbench.tasks.verifiers import Verifier, gold_fault
from workbench.types import Pool

MOST = 0.05
"""Share of reference answers that may fail their own verifier; these rows are left out."""

SECONDS = 20.0
"""How long a verifier of one's own is tried on the reference answers."""

_FORMS = {"\\boxed": "\\boxed{%s}", "<answer>": "<answer>%s</answer>", "####": "#### %s"}


class Unfit(ValueError):
    """Too many reference answers fail their own verifier."""


class Failing(NamedTuple):
    """rows: of the judged ones, those that fail; why: for each, form and failure."""

    rows: list[int]
    why: list[str]
    judged: int

    def told(self, found: Sequence[Cell], label: str, verifier: str) -> str:
        """How many and which, in one sentence."""
        share = f"{len(self.rows)} of {self.judged} reference answers ({len(self.rows) / self.judged:.1%})"
        first = [
            f"row {found[r].row + 1} {found[r].answer[:40]!r}{w}" for r, w in zip(self.rows[:5], self.why, strict=False)
        ]
        more = f" and {len(self.rows) - 5} more" if len(self.rows) > 5 else ""
        return f"{label}: {share} fail their own verifier {verifier}: {'; '.join(first)}{more}"


def _asked(cell: Cell, system: str | None) -> str | None:
    """The form in which a prompt wants its answer; None where it names none, or the answer has it already."""
    if cell.prefix:
        return None
    shown = f"{system or ''}\n{cell.text}"
    return next((form for mark, form in _FORMS.items() if mark in shown and mark not in cell.answer), None)


def failing(found: Sequence[Cell], pool: Pool, verifier: Verifier, system: str | None, *, every: bool) -> Failing:
    """The rows whose answer is not judged correct in one of its forms.

    every=False is for verifiers of one's own, which may take any time: rows are judged until a verdict does not come,
    or for `SECONDS`, and one right form is enough."""
    forms = [_asked(c, system) for c in found]
    texts = [c.answer for c in found]
    rows, why, judged, deadline, size = [], [], 0, time.monotonic() + SECONDS, len(found) if every else 2
    while judged < len(found) and (judged == 0 or time.monotonic() < deadline):
        here = list(range(judged, min(judged + size, len(found))))
        judged, size = here[-1] + 1, size * 8
        formed = [i for i in here if forms[i] is not None]
        whole = [texts[i] for i in here] + [str(forms[i]) % texts[i] for i in formed]
        verdicts = verifier(whole, pool, np.array([*here, *formed]))
        right = dict(zip(here, verdicts.correct == 1, strict=False))
        asked = dict(zip(formed, verdicts.correct[len(here) :] == 1, strict=True))
        failure = verdicts.failure if verdicts.message is None else verdicts.message
        failures = dict(zip(here, failure, strict=False))
        for i in here:
            good = (right[i] and asked.get(i, True)) if every else (right[i] or asked.get(i, False))
            if fault := gold_fault(str(pool.extra["kind"][i]), texts[i]):
                why.append(f" {fault}")
            elif not good:
                why.append(f" ({failures[i]})" if failures[i] else f" as {forms[i]}" if right[i] else "")
            else:
                continue
            rows.append(i)
        if not every and any(f in ("verifier_timeout", "verifier_died") for f in verdicts.failure):
            break
    return Failing(rows, why, judged)
