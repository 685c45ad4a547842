"""Rules that read completions: loops, another script, leaked answers, one answer to everything, words of the verifier."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import pyarrow as pa

from workbench.analysis.rules import Read, TooShort, rule

ENOUGH = 16
"""Completions below which nothing is said."""

LOOP = re.compile(r"(.{2,40}?)\1{5,}\s*$", re.DOTALL)
"""The same 2 to 40 characters six times or more at the end of a text."""

VERIFIER = ("reward", "verifier", "sys.exit", "os._exit", "__eq__", "monkeypatch", "return true", "exit(0)", "grader")
"""Words of a verifier rather than of an answer."""


def _parts(rows: pa.Table) -> tuple[list[dict], list[dict]]:
    """Completions of the first and of the last steps."""
    every = rows.to_pylist()
    return [r for r in every if r["early"]], [r for r in every if r["late"]]


def _enough(*parts: Sequence[dict]) -> None:
    """Raise TooShort where one of these has too few completions."""
    if min(map(len, parts)) < ENOUGH:
        raise TooShort


def _share(rows: Sequence[dict], which: Callable[[dict], bool]) -> float:
    return sum(map(which, rows)) / max(len(rows), 1)


def quote(text: str, most: int = 80) -> str:
    """A completion as it is quoted in a finding: one line, its end where it is long."""
    line = " ".join(text.split())
    return f'"{line if len(line) <= most else "…" + line[-most:]}"'


@rule("what the verifier gives for no answer at all, and end tokens or stop strings at the start of an answer")
def empty_texts(rows: pa.Table) -> Read:
    """Half of the late completions or more are empty."""
    _, late = _parts(rows)
    _enough(late)
    share = _share(late, lambda r: not r["text"].strip())
    return None if share < 0.5 else (f"{share:.0%} of the late completions are empty", {"share": share})


@rule("a lower temperature, a repetition penalty in the reward, or a stop string")
def loops(rows: pa.Table) -> Read:
    """A fifth of the late completions or more end in the same words over and over."""
    _, late = _parts(rows)
    _enough(late)
    looping = [r["text"] for r in late if LOOP.search(r["text"][-400:]) and r["text"].strip("0 .")]
    share = len(looping) / len(late)
    if share < 0.2:
        return None
    return f"{share:.0%} of the late completions end in a loop, such as {quote(looping[0])}", {"share": share}


def _foreign(row: dict) -> bool:
    letters = [c for c in row["text"] if c.isalpha()]
    return sum(c > "\u024f" for c in letters) > len(letters) / 2


@rule("a KL penalty to the initial weights, a lower learning rate, or a reward for the language of the question")
def script_change(rows: pa.Table) -> Read:
    """Completions went over to another script than that of the first steps."""
    early, late = _parts(rows)
    _enough(early, late)
    before, now = _share(early, _foreign), _share(late, _foreign)
    if abs(now - before) < 0.5:
        return None
    example = next(r["text"] for r in late if _foreign(r) == (now > before))
    what = f"completions went over to another script, such as {quote(example)}"
    return what, {"not latin at first": before, "not latin now": now}


@rule("the format that the prompt asks for, and what the verifier accepts of it")
def format_collapse(rows: pa.Table) -> Read:
    """An answer was found in most completions at first, and is in few now."""
    early, late = _parts(rows)
    _enough(early, late)
    before, now = (_share(part, lambda r: bool(r["answer"])) for part in (early, late))
    if before < 0.5 or now > before / 3:
        return None
    example = next(r["text"] for r in late if not r["answer"])
    what = f"an answer is found in {now:.0%} of the completions, {before:.0%} at first; now {quote(example)}"
    return what, {"at first": before, "now": now}


@rule("prompts, hints and tools that show the reference answer to the model")
def leaked_answer(rows: pa.Table) -> Read:
    """The whole reference answer, of 24 characters or more, stands inside late completions that say more than it."""
    _, late = _parts(rows)
    long = [r for r in late if len(r["gold"] or "") >= 24]
    _enough(late)
    if len(long) < ENOUGH:
        return None
    leaked = [r["text"] for r in long if r["gold"] in r["text"] and r["gold"].strip() != r["text"].strip()]
    share = len(leaked) / len(long)
    if share < 0.1:
        return None
    return f"{share:.0%} of the late completions hold the reference answer word for word: {quote(leaked[0])}", {
        "share": share
    }


@rule("those completions: does the verifier reward what they say, or what they do to it?")
def verifier_words(rows: pa.Table) -> Read:
    """Rewarded completions came to speak of rewards, of the verifier, or of ending its process."""
    early, late = ([r for r in part if r["correct"]] for part in _parts(rows))
    _enough(late)

    def speaks(row: dict) -> bool:
        return any(word in row["text"].lower() for word in VERIFIER)

    before, now = _share(early, speaks), _share(late, speaks)
    if now < 0.1 or now < before + 0.1:
        return None
    example = next(r["text"] for r in late if speaks(r))
    return f"{now:.0%} of the rewarded completions speak of the verifier: {quote(example)}", {
        "at first": before,
        "now": now,
    }


@rule("what the verifier accepts: one text is right for prompts with different answers")
def one_answer(rows: pa.Table) -> Read:
    """Most rewarded completions hold one same line, which is right for prompts whose answers differ."""
    early, late = ([r for r in part if r["correct"]] for part in _parts(rows))
    _enough(late)
    if len({r["gold"] for r in late}) < 4:
        raise TooShort

    def lines(row: dict) -> set[str]:
        return {line for line in map(str.strip, row["text"].splitlines()) if len(line) > 1}

    counts = Counter(line for row in late for line in lines(row))
    for line, n in counts.most_common(3):
        golds = {r["gold"] for r in late if line in lines(r)}
        before = _share(early, lambda r, line=line: line in lines(r))
        whole = sum(r["text"].strip() == line for r in late)
        if n / len(late) > 0.5 and len(golds) >= 4 and (whole > n / 2 or before < 0.1):
            what = f"one string is in {n / len(late):.0%} of the rewarded completions, to {len(golds)} answers: {quote(line)}"
            return what, {"rewarded": len(late), "with it": n}
    return None
