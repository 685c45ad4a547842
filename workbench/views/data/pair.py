"""Comparison of two estimators on the same recorded rollouts: their sign flips at several group sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from workbench.analysis import signs
from workbench.pipeline import catalog
from workbench.stages import Method

if TYPE_CHECKING:
    from workbench.views.data.run import RunData

PAIR = ("grpo", "mc_grpo")
"""Looked at before anything is chosen: the mean against the median."""

SIZES = (2, 4, 8, 16)

COUNTED, BEFORE = 24, 20
"""Steps that are counted, the last ones, and steps before them from which beliefs are formed."""


class Pair(NamedTuple):
    """Rows estimator, size and each rate with its bounds (`hard`, `hard_low`, `hard_high`, ...); against which reference;
    note: over what, and what was left out."""

    names: tuple[str, ...]
    rows: tuple[dict[str, object], ...]
    kind: str
    note: str


def estimators() -> list[str]:
    """Slugs of the methods that give an advantage."""
    return catalog.find("estimate")


def compared(data: RunData, pair: Sequence[str]) -> Pair:
    """Both estimators on groups drawn from the newest steps, against a pool where there is one, else a belief.

    Takes seconds: every group of every size is drawn anew and estimated. Raises ValueError where the run holds nothing that a reference could be made of."""
    from workbench.store import Store

    named = {name: _whole(name) for name in pair}
    first = max(data.step - COUNTED - BEFORE, 0)
    since = max(data.step - COUNTED, first)
    with Store.open(data.source.url, live=False) as store:
        pool, _ = store.pool(data.run)
        steps = list(takewhile(lambda s: s.step <= data.step, store.steps(data.run, pool, since=first)))
    rewards = [r for s in steps for r in s.rollouts.reward.tolist() if r == r]
    low, high = min([0.0, *rewards]), max([0.0, *rewards])
    how = signs.Settings(draws=4, since=since, reward_range=(low, high if high > low else low + 1.0))
    try:
        made = signs.measure(steps, pool, named, SIZES, how)
    except ValueError:  # no prompt has a pool
        made = signs.measure(steps, pool, named, SIZES, replace(how, reference="posterior", n_ref=1))
    rows = tuple(_row(made, name, size) for name, size in made.sums)
    note = f"steps {since + 1:,} to {data.step:,}; {made.note}"
    return Pair(tuple(pair), rows, made.kind, note)


def _whole(name: str) -> tuple[Method, ...]:
    """An estimator as it stands in a pipeline, behind GRPO: most replace what stands before them, some only refine it."""
    grpo = catalog.make("grpo")
    return (grpo,) if name == grpo.name else (grpo, catalog.make(name))


def _row(made: signs.Signs, name: str, size: int) -> dict[str, object]:
    row: dict[str, object] = {"estimator": name, "size": size}
    for of in ("hard", "vanish", "spurious"):
        if of == "spurious" and made.kind == "posterior":  # a continuous belief: no reward equals it
            row |= {of: 0.0, f"{of}_low": 0.0, f"{of}_high": 0.0}
            continue
        value, low, high = made.rate(name, size, of)
        row |= {of: value, f"{of}_low": low, f"{of}_high": high}
    return row
