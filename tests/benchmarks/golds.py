"""Reference answers of mathematics: are they judged right as they are, and is a part of one ever taken for the whole?"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.benchmarks.figure import Figure
from tests.tasks.golds import generated
from workbench.tasks.mathematics import verify


def bench(case: str | None) -> Iterator[Figure]:
    """1,000 generated answers (roots, intervals, matrices, units, mixed fractions, sets, expressions) and what was said of them."""
    if case not in (None, "math-verify"):
        return
    golds = generated(1000)
    wrong = {"refused": 0, "right forms refused": 0, "truncated accepted": 0}
    judged, began = 0, time.perf_counter()
    shown = []
    for gold in golds:
        for text in gold.right:
            judged += 1
            if verify(text, gold.answer)["correct"] != 1:
                wrong["right forms refused"] += 1
                wrong["refused"] += text == gold.answer
                shown.append(f"{gold.answer!r} refused {text!r}")
        for text in gold.truncated:
            judged += 1
            if verify(text, gold.answer)["correct"] == 1:
                wrong["truncated accepted"] += 1
                shown.append(f"{gold.answer!r} accepted {text!r}")
    seconds = time.perf_counter() - began
    for what, n in wrong.items():
        yield Figure(
            "math-verify",
            what,
            n,
            "completions",
            note=f"of 1,000 answers, {judged:,} completions; {shown[:3]}"
            if n
            else f"of 1,000 answers, {judged:,} completions",
        )
    yield Figure(
        "math-verify",
        "verdict",
        1e3 * seconds / judged,
        "ms",
        note="one process, parsing the reference answers included",
    )
