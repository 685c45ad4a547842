"""Built-in verifiers (reward functions): what was answered, how near it is, and whether it is right.

With rewards of 0 and 1 and a baseline inside that range the sign of an advantage cannot flip hard: a small group's
mean never passes a reward. So the built-in rewards are graded, a weighted sum of three parts in [0, 1]:
format (an answer of the expected form was found), closeness (how near it is) and exactness. `correct` stays
binary beside them and is the evidence of difficulty.

Completions are untrusted: no more than LOOK characters of one are looked at, every pattern reads its text once
from left to right, and nothing is evaluated. 128 short completions take about a millisecond.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np

from workbench.tasks import values
from workbench.types import Pool

LOOK = 4000
"""Characters of a completion that are looked at: the last ones where the answer is expected at the end."""

PARTS = ("format", "closeness", "exactness")
WEIGHTS: Mapping[str, float] = {"format": 0.1, "closeness": 0.2, "exactness": 0.7}
"""reward = 0.1 format + 0.2 closeness + 0.7 exactness, each part in [0, 1]."""

REWARDS = ("graded", "binary")


class Verdicts(NamedTuple):
    """What a verifier says of R completions.

    answer (R,) object: the text taken for the answer, None where there is none; answers of equal value are spelled
    alike, since votes count them. reward, correct (R,) float64, NaN =
    null. parts maps names to (R,) float64. failure (R,) object: "" or verifier_raised, verifier_timeout (no verdict in
    time), verifier_died (its process ended), verifier_memory, verifier_invalid (what it returned is no verdict),
    verifier_nan (a number that is not finite); message (R,) object: what is known of it, None = nothing of any.
    """

    answer: np.ndarray
    reward: np.ndarray
    correct: np.ndarray
    parts: Mapping[str, np.ndarray]
    failure: np.ndarray
    message: np.ndarray | None = None


class Verifier(Protocol):
    """Judges completions `text` (R,) of the pool's `rows` (R,)."""

    def __call__(self, text: Sequence[str], pool: Pool, rows: np.ndarray) -> Verdicts:
        """R verdicts, in order."""
        ...


_NUMBER = re.compile(r"(?:(?<![0-9])-)?(?:[0-9]+(?:\.[0-9]+)?|(?<![0-9.])\.[0-9]+)")
_GROUPS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_LIST = re.compile(r"\s*[\[({]?\s*[-\u2212]?[0-9.]+(?:(?:\s*[,;]\s*|\s+)[-\u2212]?[0-9.]+)*\s*[\])}]?\.?\s*")
_WORD = re.compile(r"[^\W\d_]+")


def numbers(text: str, *, groups: bool = True) -> list[str]:
    """The numbers of a text, in order: commas between groups of digits dropped, the typographic minus read as minus.

    >>> numbers("1,234 and −5.50, 3-4")
    ['1234', '-5.50', '3', '4']
    """
    text = text.replace("\u2212", "-")
    return _NUMBER.findall(_GROUPS.sub("", text) if groups else text)


def _head(text: str) -> str:
    return text[:LOOK]


def near(value: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Closeness of numbers: 1 - |x - a| / (1 + |a| / 10), and 0 from there on, (R,) in [0, 1].

    18 for 17 gives 0.63, 130 for 136 gives 0.59; NaN and inf give 0. It ends because far answers shall be alike: a
    long tail would leave no group of wrong answers without variance, and normalisation would train on that noise.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(value - target) / (1 + np.abs(target) / 10)
    return np.maximum(0.0, 1 - np.where(np.isfinite(off), off, np.inf))


def _share(got: Sequence, expected: Sequence) -> float:
    """Share that is right before the first wrong item; the longer sequence counts.

    Not place by place: a word copied instead of reversed has its middle letter right by accident.
    """
    longest = max(len(got), len(expected))
    right = next(
        (i for i, (g, e) in enumerate(zip(got, expected, strict=False)) if g != e), min(len(got), len(expected))
    )
    return right / longest if longest else 1.0


class Comparison(NamedTuple):
    """Answers found and their three parts, (R,) each."""

    answer: list[str | None]
    format: np.ndarray
    closeness: np.ndarray
    exactness: np.ndarray


def number(text: Sequence[str], expected: Sequence[str], prefilled: Sequence[bool]) -> Comparison:
    """One number, see `values`; whole numbers must be equal to the last digit, others within 1e-9 of their size.

    The number is the first after a prefilled start; else that of the last \\boxed{} or ####, or the last one of the text.
    50% is 0.5; where 50 is expected, it is 50 as well. A reference answer that is no number is met by nothing."""
    answer: list[str | None] = []
    got, target = np.full((2, len(text)), np.nan)
    exactness = np.zeros(len(text))
    for i, (t, e, p) in enumerate(zip(text, expected, prefilled, strict=True)):
        found, gold = values.answer(_head(t) if p else t[-LOOK:], first=p), values.whole(e)
        if found is None:
            answer.append(None)
            continue
        value = found.value
        if gold is not None:
            if found.percent and not gold.percent and values.equal(100 * value, gold.value):
                value = 100 * value
            exactness[i] = values.equal(value, gold.value)
            target[i] = values.size(gold.value)
        got[i] = values.size(value)
        answer.append(values.spelled(value))
    closeness = np.where(exactness == 1, 1.0, near(got, target))
    return Comparison(answer, np.array([a is not None for a in answer], float), closeness, exactness)


def in_order(text: Sequence[str], expected: Sequence[str], prefilled: Sequence[bool]) -> Comparison:
    """Numbers in order: the first k found against the k expected; closeness = share right before the first wrong."""
    answer, form, close = [], [], []
    for t, e in zip(text, expected, strict=True):
        target = [Fraction(x) for x in numbers(e, groups=False)]
        got = [Fraction(x) for x in numbers(_head(t), groups=False)[: len(target)]]
        answer.append(", ".join(map(values.spelled, got)) if got else None)
        form.append(float(len(got) == len(target)))
        close.append(_share(got, target))
    closeness = np.array(close, float)
    return Comparison(answer, np.array(form, float), closeness, (closeness == 1).astype(float))


def word(text: Sequence[str], expected: Sequence[str], prefilled: Sequence[bool]) -> Comparison:
    """The first word, whatever its case; closeness = share of right characters."""
    found = [_WORD.search(_head(t)) for t in text]
    answer = [f.group().casefold() if f else None for f in found]
    close = [_share(a or "", e.strip().casefold()) for a, e in zip(answer, expected, strict=True)]
    closeness = np.array(close, float)
    return Comparison(
        answer, np.array([a is not None for a in answer], float), closeness, (closeness == 1).astype(float)
    )


def whole_text(text: Sequence[str], expected: Sequence[str], prefilled: Sequence[bool]) -> Comparison:
    """The whole completion, white space at the ends and its amount aside; closeness = share of right characters."""
    # a completion longer than what is looked at must not be cut into a right one
    answer = [" ".join(t[: max(LOOK, 2 * len(e))].split()) or None for t, e in zip(text, expected, strict=True)]
    target = [" ".join(e.split()) for e in expected]
    close = [_share(a or "", e) for a, e in zip(answer, target, strict=True)]
    exact = [float((a or "") == e) for a, e in zip(answer, target, strict=True)]
    return Comparison(answer, np.array([a is not None for a in answer], float), np.array(close, float), np.array(exact))


def gold_fault(kind: str, answer: str) -> str:
    """Why a reference answer cannot be compared as its kind: one number, or numbers in order; "" where it can."""
    if kind == "number" and values.whole(answer) is None:
        return "is not one number"
    if kind == "list" and (_LIST.fullmatch(answer) is None or (", " in answer and _GROUPS.search(answer))):
        return "is no list of plain numbers with one separator"
    return ""


_BY_KIND: dict[str, Callable[[Sequence[str], Sequence[str], Sequence[bool]], Comparison]] = {
    "number": number,
    "list": in_order,
    "word": word,
    "text": whole_text,
}


@dataclass(frozen=True)
class Graded:
    """Judges each row by the kind of its answer, `pool.extra["kind"]`: number, list, word or text.

    rewards="binary" makes the reward equal to `correct`; the parts are reported all the same.
    """

    rewards: str = "graded"

    def __post_init__(self) -> None:
        if self.rewards not in REWARDS:
            raise ValueError(f"rewards={self.rewards!r}; it is one of {', '.join(REWARDS)}")

    def __call__(self, text: Sequence[str], pool: Pool, rows: np.ndarray) -> Verdicts:
        """Verdicts on R completions of the pool's rows."""
        r = len(rows)
        answer = np.full(r, None, dtype=object)
        parts = {name: np.full(r, np.nan) for name in PARTS}
        kind = pool.extra["kind"][rows]
        for k in dict.fromkeys(kind):
            here = np.flatnonzero(kind == k)
            source = rows[here]
            prefilled = [p != "" for p in pool.prefix[source]]
            found = _BY_KIND[k]([text[int(i)] for i in here], pool.answer[source].tolist(), prefilled)
            answer[here] = found.answer
            for name in PARTS:
                parts[name][here] = getattr(found, name)
        correct = parts["exactness"].copy()
        graded = sum(WEIGHTS[name] * parts[name] for name in PARTS)
        reward = graded if self.rewards == "graded" else correct.copy()
        return Verdicts(answer, np.asarray(reward, float).reshape(r), correct, parts, np.full(r, "", dtype=object))
