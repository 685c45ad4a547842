"""A task: training prompts, evaluation prompts, and the verifier (reward function) of their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from html import escape

import numpy as np

from workbench.tasks.prompts import Tokenizer, encode, stop_ids
from workbench.tasks.verifiers import Verdicts, Verifier
from workbench.types import Pool, Rollouts


@dataclass(frozen=True, eq=False)
class Task:
    """A pool with its verifier.

    pool and evaluation share no prompt; evaluation is the same under every seed. max_tokens bounds an answer, stop
    are the strings that end it. timeout: seconds a verifier that runs outside may take for one completion.
    notes: what a researcher should know of how the pool was made, one sentence each. system, template_kwargs: how the
    prompts of both are rendered, see `render`. as_table: how the table it came from is judged, and its answers end, as
    options of `load` for tables beside it; empty for families.
    """

    name: str
    pool: Pool
    evaluation: Pool
    max_tokens: int
    stop: tuple[str, ...]
    verifier: Verifier
    timeout: float = 5.0
    notes: tuple[str, ...] = ()
    system: str | None = None
    template_kwargs: Mapping[str, object] = field(default_factory=dict)
    as_table: Mapping[str, object] = field(default_factory=dict)

    def render(self, pool: Pool, row: int, tokenizer: Tokenizer) -> list[int]:
        """Token ids of a prompt: its chat turns, then the prefilled start of the answer.

        Where the turns bring no system message, system is it: None leaves the model's own default line, if its template
        has one, and "" takes it away. template_kwargs go to the chat template ({"enable_thinking": False}). A tokenizer
        without chat template gets the plain form: text, newline, prefix. ValueError where the template refuses."""
        messages = pool.extra["messages"][row] if "messages" in pool.extra else ""
        return encode(pool.text[row], pool.prefix[row], messages, tokenizer, self.system, self.template_kwargs)

    def stop_ids(self, tokenizer: Tokenizer) -> list[int]:
        """Ids of the tokens that end an answer: end of turn, and all whose text holds a string of `stop`."""
        return stop_ids(tokenizer, self.stop)

    def score(self, rollouts: Rollouts, pool: Pool) -> Rollouts:
        """The rollouts with answer, reward, correct, rewards and failure filled.

        Rows that failed before (an engine's failure) keep their failure and stay null. Where the verifier fails the
        row is null too, with a failure (see `Verdicts`); where any did, extra failure_text (R,) str says what it told.
        """
        rows = np.flatnonzero(rollouts.failure == "")
        return self._judged(rollouts, rows, self.verifier(*self._asked(rollouts, rows, pool)))

    def score_each(self, parts: Iterable[Rollouts], pool: Pool) -> list[Rollouts]:
        """As `score` of every part, in order; a part is judged while the iterator makes the next ones.

        Parts are judged one after the other, each by all processes of the verifier; built-in verifiers take about a
        millisecond and run at the end. Whatever the verifier does, every part comes back with all its rows.
        """
        submit = getattr(self.verifier, "submit", None)
        waiting: list[tuple[Rollouts, np.ndarray, Callable[[], Verdicts]]] = []
        for part in parts:
            rows = np.flatnonzero(part.failure == "")
            asked = self._asked(part, rows, pool)
            verdicts = partial(self.verifier, *asked) if submit is None else submit(*asked).result
            waiting.append((part, rows, verdicts))
        return [self._judged(part, rows, verdicts()) for part, rows, verdicts in waiting]

    @staticmethod
    def _asked(rollouts: Rollouts, rows: np.ndarray, pool: Pool) -> tuple[list[str], Pool, np.ndarray]:
        return [str(t) for t in rollouts.text[rows]], pool, rollouts.prompt[rows]

    @staticmethod
    def _judged(rollouts: Rollouts, rows: np.ndarray, verdicts: Verdicts) -> Rollouts:
        r = len(rollouts)
        answer, failure = np.full(r, None, dtype=object), rollouts.failure.copy()
        answer[rows], failure[rows] = verdicts.answer, verdicts.failure

        def spread(column: np.ndarray) -> np.ndarray:
            whole = np.full(r, np.nan)
            whole[rows] = np.where(verdicts.failure == "", column, np.nan)
            return whole

        extra = dict(rollouts.extra)
        if verdicts.message is not None and (verdicts.failure != "").any():
            extra["failure_text"] = np.full(r, "", dtype=object)
            extra["failure_text"][rows] = verdicts.message
        return rollouts.with_(
            answer=answer,
            reward=spread(verdicts.reward),
            correct=spread(verdicts.correct),
            rewards={**rollouts.rewards, **{name: spread(part) for name, part in verdicts.parts.items()}},
            failure=failure,
            extra=extra,
        )

    def _strata(self) -> list[tuple[str, str, int, int]]:
        """(name, level, prompts in the pool, prompts in the evaluation set) of each stratum."""
        both = np.concatenate([self.pool.stratum, self.evaluation.stratum])
        level = {}
        for p in (self.evaluation, self.pool):
            level |= dict(zip(p.stratum, p.extra.get("level", np.full(len(p), "")), strict=True))
        return [
            (n, level[n], int((self.pool.stratum == n).sum()), int((self.evaluation.stratum == n).sum()))
            for n in dict.fromkeys(both)
        ]

    def __repr__(self) -> str:
        known = self._strata()
        strata = ", ".join(f"{name} {n}" for name, _, n, _ in known[:6])
        more = ", ..." if len(known) > 6 else ""
        return (
            f"Task({self.name!r}: {len(self.pool)} prompts, {len(self.evaluation)} for evaluation, "
            f"{self.max_tokens} tokens at most; {strata}{more})"
        )

    def _repr_html_(self) -> str:
        strata = self._strata()
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(level)}</td><td>{n}</td><td>{held_out}</td></tr>"
            for name, level, n, held_out in strata[:40]
        )
        if len(strata) > 40:
            rows += f"<tr><td>and {len(strata) - 40} more</td><td></td><td></td><td></td></tr>"
        examples = "".join(
            f"<li><code>{escape(_short(self.pool.text[i]))}</code> → <code>{escape(_short(self.pool.prefix[i]))} "
            f"<b>{escape(_short(self.pool.answer[i]))}</b></code></li>"
            for i in range(min(2, len(self.pool)))
        )
        notes = "".join(f"<br>{escape(n)}" for n in self.notes)
        return (
            f"<b>{escape(self.name)}</b>: {len(self.pool)} prompts, {len(self.evaluation)} for evaluation, "
            f"{self.max_tokens} tokens at most{notes}<table><tr><th>stratum</th><th>level</th><th>prompts</th>"
            f"<th>evaluation</th></tr>{rows}</table><ul>{examples}</ul>"
        )


def _short(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[:most] + "…"
