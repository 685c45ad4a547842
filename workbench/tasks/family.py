"""A family of questions: one form, a difficulty, and a stream of questions with their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

LEVELS = ("easy", "middle", "hard", "out")
"""Pass rates: easy 0.75 and more, middle 0.3-0.5, hard 0.1-0.3, out (of reach) below 0.1."""

KINDS = ("number", "list", "word", "text", "code")
"""What an answer is: one number, numbers in order, one word, any text, a function with its tests (`tasks.code`)."""


class Question(NamedTuple):
    """What the user asks, how the answer is started, and what should follow."""

    text: str
    prefix: str
    answer: str

    @property
    def key(self) -> str:
        """What makes two questions the same: "Calculate 8 * 4." and "What is 8 * 4?" both start the answer "8 * 4 ="."""
        return self.prefix if any(c.isdigit() for c in self.prefix) else self.text


@dataclass(frozen=True)
class Family:
    """Questions of one form.

    stream(rng) yields questions, each at most once where `size` is known and for ever where it is None.
    pass_rate: SmolLM2-135M-Instruct, sampled, untrained; NaN where nobody measured it. max_tokens: of an answer.
    """

    name: str
    level: str
    kind: str
    pass_rate: float
    stream: Callable[[np.random.Generator], Iterator[Question]] = field(repr=False)
    size: int | None = None
    source: str = "workbench"
    max_tokens: int = 8


def counted(
    name: str, level: str, kind: str, pass_rate: float, questions: Sequence[Question], *, max_tokens: int = 8
) -> Family:
    """A family all of whose questions are known; its stream is a permutation."""

    def stream(rng: np.random.Generator) -> Iterator[Question]:
        return (questions[i] for i in rng.permutation(len(questions)))

    return Family(name, level, kind, pass_rate, stream, len(questions), max_tokens=max_tokens)
