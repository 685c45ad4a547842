"""Prompts as token ids: a rendered prompt, with the text that an answer begins after, all within the model's context."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from workbench.types import Pool, Text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Render: TypeAlias = "Callable[[Pool, int, PreTrainedTokenizerBase], list[int] | str]"
"""A prompt (row of a pool) as a task shows it: token ids, or text to be tokenized as it is."""

TOO_LONG = ("error", "drop", "truncate_left")
"""What becomes of prompts that leave no room for an answer in the model's context; see `fitted`."""


class Prefixes:
    """The prompts of a task in the tokens of one model. Those without a text are kept, by the ids of the prompts.

    evaluation: the pool whose prompts are kept apart from those of the other one, since two tables may number their rows
    alike. rows: ids that the model has an embedding for. most: tokens of a prompt that are kept, from its end."""

    def __init__(
        self,
        render: Render,
        tokenizer: PreTrainedTokenizerBase,
        evaluation: Pool,
        rows: int | None = None,
        most: int | None = None,
    ) -> None:
        self._render, self._tokenizer, self._evaluation, self._rows = render, tokenizer, evaluation, rows
        self.most = most
        self._kept: dict[tuple[bool, str], list[int]] = {}

    def of(self, evaluation: Pool, most: int | None) -> Prefixes:
        """The same prompts, rendered already, with another evaluation pool and at most so many tokens each."""
        other = Prefixes(self._render, self._tokenizer, evaluation, self._rows, most)
        other._kept = {key: ids[-most:] if most else ids for key, ids in self._kept.items()}
        return other

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
        try:
            ids = self._render(pool, row, self._tokenizer)
        except ValueError as error:
            raise ValueError(f"prompt {pool.ids[row]} ({pool.text[row][:40]!r}): {error}") from error
        if isinstance(ids, str):
            ids = self._tokenizer(ids, add_special_tokens=False).input_ids
        ids = [int(i) for i in ids][-(self.most or 0) :]
        if start is not None:
            ids += [int(i) for i in self._tokenizer(start.prefix, add_special_tokens=False).input_ids]
        if not ids:
            raise ValueError(f"prompt {pool.ids[row]} ({pool.text[row][:40]!r}) has no tokens for this tokenizer")
        if self._rows is not None and max(ids) >= self._rows:
            raise ValueError(
                f"prompt {pool.ids[row]} ({pool.text[row][:40]!r}) has the token {max(ids)}, and the model has "
                f"{self._rows} embeddings"
            )
        return ids


class Fitted(NamedTuple):
    """Rendered prompts that leave room for an answer. dropped, truncated: how many of both pools were longer."""

    prefix: Prefixes
    pool: Pool
    evaluation: Pool
    dropped: int = 0
    truncated: int = 0


def fitted(
    prefix: Prefixes, pool: Pool, evaluation: Pool, context: int | None, max_tokens: int, too_long: str
) -> Fitted:
    """All prompts rendered, and those that leave no room for max_tokens in a context refused, dropped or cut.

    too_long: "error", ValueError with their numbers and first ids; "drop", they leave both pools; "truncate_left", they
    keep their last tokens. context None bounds nothing."""
    lengths = [np.array([len(prefix(p, row)) for row in range(len(p))], int) for p in (pool, evaluation)]
    if context is None:
        return Fitted(prefix, pool, evaluation)
    room = context - max_tokens
    if room < 1:
        raise ValueError(
            f"answers of {max_tokens} tokens leave nothing of the model's context of {context} for a prompt; set max_tokens lower"
        )
    fits = [n <= room for n in lengths]
    n_long = sum(int((~f).sum()) for f in fits)
    if not n_long:
        return Fitted(prefix, pool, evaluation)
    if too_long == "truncate_left":
        cut = "1 prompt was" if n_long == 1 else f"{n_long} prompts were"
        _say(f"{cut} cut to the last {room} tokens", context, max_tokens)
        return Fitted(prefix.of(evaluation, room), pool, evaluation, truncated=n_long)
    longest = max(int(n.max(initial=0)) for n in lengths)
    counts = " and ".join(
        f"{int((~f).sum())} of {len(p)} {what} prompts"
        for f, p, what in zip(fits, (pool, evaluation), ("training", "evaluation"), strict=True)
        if not f.all()
    )
    first = [str(i) for f, p in zip(fits, (pool, evaluation), strict=True) for i in p.ids[~f][:3]][:3]
    said = (
        f"{counts} (first: {', '.join(first)}; the longest has {longest} tokens) and answers of {max_tokens} tokens do not "
        f"fit into the model's context of {context}"
    )
    if too_long == "error":
        lower = f"max_tokens to at most {context - longest}, or " if longest < context else ""
        raise ValueError(f'{said}; set {lower}too_long to "drop" or "truncate_left"')
    if not fits[0].any() or not fits[1].any():
        raise ValueError(f'{said}; with too_long="drop" none is left to {"evaluate" if fits[0].any() else "train"} on')
    _say(f"{counts} were left out", context, max_tokens)
    kept, asked = pool.take(fits[0]), evaluation.take(fits[1])
    return Fitted(prefix.of(asked, None), kept, asked, dropped=n_long)


def _say(what: str, context: int, max_tokens: int) -> None:
    warnings.warn(
        f"{what}: with answers of {max_tokens} tokens they do not fit into the model's context of {context}",
        RuntimeWarning,
        stacklevel=4,
    )
