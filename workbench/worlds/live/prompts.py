"""Prompts as token ids: a rendered prompt, with the text that an answer begins after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from workbench.types import Pool, Text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Render: TypeAlias = "Callable[[Pool, int, PreTrainedTokenizerBase], list[int] | str]"
"""A prompt (row of a pool) as a task shows it: token ids, or text to be tokenized as it is."""


class Prefixes:
    """The prompts of a task in the tokens of one model. Those without a text are kept, by the ids of the prompts.

    evaluation: the pool whose prompts are kept apart from those of the other one, since two tables may number their rows
    alike."""

    def __init__(self, render: Render, tokenizer: PreTrainedTokenizerBase, evaluation: Pool) -> None:
        self._render, self._tokenizer, self._evaluation = render, tokenizer, evaluation
        self._kept: dict[tuple[bool, str], list[int]] = {}

    def __call__(self, pool: Pool, row: int, start: Text | None = None) -> list[int]:
        """Token ids that a rollout of a prompt continues: the rendered prompt, with the extra text of a `Text` start.

        Text in the role of the assistant follows the prefilled answer; in any other role it follows the question, in
        the same turn.
        """
        if start is not None:  # there is no end to the texts of hints
            return self._rendered(pool, row, start)
        key = (pool is self._evaluation, str(pool.ids[row]))
        if key not in self._kept:
            self._kept[key] = self._rendered(pool, row, None)
        return self._kept[key]

    def _rendered(self, pool: Pool, row: int, start: Text | None) -> list[int]:
        if start is not None and start.role != "assistant":
            one = pool.take(np.array([row]))
            text = np.array([f"{one.text[0]}\n{start.prefix}"], dtype=object)
            return self._rendered(replace(one, text=text), 0, None)
        ids = self._render(pool, row, self._tokenizer)
        if isinstance(ids, str):
            ids = self._tokenizer(ids, add_special_tokens=False).input_ids
        extra = self._tokenizer(start.prefix, add_special_tokens=False).input_ids if start is not None else []
        return [int(i) for i in [*ids, *extra]]
