"""How fast completions are searched: the case `search` of `python -m tests.benchmarks store`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.benchmarks.figure import Figure
from workbench.store import Store, Writer
from workbench.types import Step

STEPS, GROUPS, GROUP = 200, 64, 8

WORDS = np.array(
    ["the", "sum", "of", "both", "is", "carry", "one", "then", "so", "we", "have", "digits", "+", "=", "hence"]
    + [str(n) for n in range(10, 1500)],
    object,
)
"""Common words first: the n-th is drawn in proportion to 1 / (n + 2)."""

QUERIES = {"rare_words": "1402 879 sum", "common_words": "the sum", "phrase": '"sum of" carry', "nothing": "zebra"}


def with_text(step: Step, rng: np.random.Generator, characters: int = 300) -> Step:
    """The step with completions of so many characters, of words as frequent as in a language."""
    chance = 1 / np.arange(2, len(WORDS) + 2)
    lines = rng.choice(WORDS, (len(step.rollouts), characters // 3), p=chance / chance.sum())
    text = np.array([" ".join(line)[:characters] for line in lines], object)
    return replace(step, rollouts=step.rollouts.with_(text=text))


def search() -> Iterator[Figure]:
    """Milliseconds of `search_completions`, by what is looked for."""
    from tests.benchmarks.store import make_pool, make_step

    pool, rng = make_pool(1000), np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as where:
        with Writer(where, {}, pool, run="search") as writer:
            for number in range(1, STEPS + 1):
                writer.append(with_text(make_step(number, pool, rng, GROUPS, GROUP, 0), rng))
                print(f"search {number}/{STEPS} steps", end="\r", file=sys.stderr, flush=True)
        with Store.open(where) as store:
            for name, text in QUERIES.items():
                taken, found = [], 0
                for _ in range(5):
                    began = time.perf_counter()
                    found = store.ask("search_completions", text=text).num_rows
                    taken.append(time.perf_counter() - began)
                note = f"{text}: {found} shown of {STEPS * GROUPS * GROUP:,} completions x 300 characters, median of 5"
                yield Figure("search", name, 1000 * float(np.median(taken)), "ms", note=note)
