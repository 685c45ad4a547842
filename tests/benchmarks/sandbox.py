"""The sandbox of verifiers: verdicts a second with and without it, and what 200 hostile completions win."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.benchmarks.figure import Figure
from workbench import tasks
from workbench.tasks import code
from workbench.tasks.isolated import Isolated
from workbench.tasks.verifiers import Verifier

ROUNDS, COMPLETIONS = 3, 64


def length(completion: str, answer: str) -> float:
    """A verifier that costs nothing."""
    return float(len(completion) == len(answer))


def lengths(completions: list[str], answer: list[str]) -> list[float]:
    """The same of lists."""
    return [float(len(c) == len(a)) for c, a in zip(completions, answer, strict=True)]


def _rate(verifier: Verifier, text: Callable[[str], str], rows: list[dict[str, str]], **options: object) -> float:
    """Verdicts a second in steps of 64, the best of some, once everything is loaded."""
    pool = tasks.load(rows, verifier="exact", evaluation=1, **options).pool
    row = np.arange(COMPLETIONS) % len(pool)
    given, taken = [text(str(pool.answer[i])) for i in row], []
    verifier(given, pool, row)
    for _ in range(ROUNDS):
        began = time.perf_counter()
        verifier(given, pool, row)
        taken.append(time.perf_counter() - began)
    close = getattr(verifier, "close", None)
    if close:
        close()
    return COMPLETIONS / min(taken)


def _cpu(make: Callable[[], Isolated], text: Callable[[str], str], rows: list[dict[str, str]]) -> float:
    """Milliseconds of processor time for a verdict, of the server and all it has started; a loaded machine changes little."""
    pool, used = tasks.load(rows, verifier="exact", evaluation=1).pool, []
    for n in (0, COMPLETIONS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        verifier, row = make().start(), np.arange(n) % len(pool)
        verifier([text(str(pool.answer[i])) for i in row], pool, row)
        verifier.close()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * (used[1] - used[0]) / COMPLETIONS


def _speed() -> Iterator[Figure]:
    rows = [{"prompt": f"{i} + {i}?", "answer": str(2 * i)} for i in range(40)]
    lasting = _rate(Isolated(length, workers=1, sandbox=False), str, rows)
    yield Figure("own", "verdicts", lasting, "1/s", note="sandbox=False: one lasting process")
    for case, verify in (("own", length), ("own, lists", lengths)):
        rate = _rate(Isolated(verify, workers=1), str, rows)
        yield Figure(case, "verdicts", rate, "1/s", "sandbox=False", rate / lasting, "sandbox, one server")
    light = _rate(Isolated("workbench.tasks.mathematics:verify", workers=1, sandbox=False), str, rows)
    yield Figure("math-verify", "verdicts", light, "1/s", note="as it is used: one lasting process")
    yield Figure("exact", "verdicts", _rate(tasks.load(rows, verifier="exact").verifier, str, rows), "1/s")
    repair = [{"prompt": q.text, "answer": q.answer} for q in _questions(40)]
    yield Figure("code", "verdicts", _rate(code.verifier(), str, repair), "1/s", note="functions with their tests")
    made = {"own": lambda: Isolated(length, workers=1), "code": code.verifier}
    for case, make in made.items():
        yield Figure(case, "processor", _cpu(make, str, repair if case == "code" else rows), "ms", note="for a verdict")
    lasting = _cpu(lambda: Isolated(length, workers=1, sandbox=False), str, rows)
    yield Figure("own", "processor", lasting, "ms", note="for a verdict, sandbox=False")


def _questions(n: int) -> list:
    from itertools import islice

    return list(islice(tasks.families()["repair"].stream(np.random.default_rng(0)), n))


def _hostile() -> Iterator[Figure]:
    from tests.tasks.hostile import HOSTILE
    from tests.tasks.test_sandbox import Outside, judged

    names = [name for _ in range(-(-200 // len(HOSTILE))) for name in HOSTILE][:200]
    with tempfile.TemporaryDirectory() as folder:
        outside = Outside(Path(folder))
        took = judged(names, outside, timeout=1.0)
        outside.victim.kill()
    yield Figure("hostile", "won", 0, "rewards", note=f"of {len(names)} completions of {len(HOSTILE)} kinds")
    yield Figure("hostile", "seconds", took / len(names), "s", note="for one and a right one, time limit 1 s")


def bench(case: str | None) -> Iterator[Figure]:
    """Speed with and without the sandbox; 200 hostile completions, which fails where one of them wins."""
    if case in (None, "speed"):
        for figure in _speed():  # a loaded machine forks slowly
            yield figure._replace(note=f"{figure.note}; load average {os.getloadavg()[0]:.1f}".lstrip("; "))
    if case in (None, "hostile"):
        yield from _hostile()
