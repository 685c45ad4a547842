"""Evaluation: pass@k and majority@k on questions never trained on, over steps, families and sets.

    evaluation.pass_at_k(store, run, ks=(1, 4, 8)).table("stratum")

Every value is a mean over prompts of an unbiased estimate from all samples of the prompt; its interval says how far the
mean would move with other prompts of the same kind. Curves of one run share their prompts: compare runs with `compare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from workbench.analysis.html import table
from workbench.analysis.intervals import Interval, paired
from workbench.numerics import pass_at_k as exact

if TYPE_CHECKING:
    from workbench.store import Store

By: TypeAlias = Literal["", "stratum", "set"]


@dataclass(frozen=True, eq=False)
class Scores:
    """One estimate per row (E,): of prompt `prompt` of family `stratum` and set `set` at `step`, for k samples.

    measure: "pass" or "majority". value is NaN where the prompt had fewer than k scored samples."""

    run: str
    measure: str
    set: np.ndarray
    step: np.ndarray
    prompt: np.ndarray
    stratum: np.ndarray
    k: np.ndarray
    value: np.ndarray
    sql: str = field(repr=False, default="")

    @property
    def steps(self) -> list[int]:
        """Steps at which the sets were scored."""
        return sorted(set(self.step.tolist()))

    @property
    def ks(self) -> list[int]:
        """Numbers of samples asked for."""
        return sorted(set(self.k.tolist()))

    def names(self, by: By) -> list[str]:
        """Families or sets, in alphabetical order; [""] for all together."""
        return sorted(set(getattr(self, by).tolist())) if by else [""]

    def at(self, step: int, k: int, by: By = "", name: str = "") -> Interval:
        """Mean over prompts with its 95 % interval; NaN where no prompt has k samples."""
        here = (self.step == step) & (self.k == k)
        if by:
            here &= getattr(self, by) == name
        return paired(self.value[here])

    def curve(self, k: int, by: By = "", name: str = "") -> tuple[np.ndarray, list[Interval]]:
        """(S,) steps and the mean at each."""
        return np.array(self.steps), [self.at(s, k, by, name) for s in self.steps]

    def gain(self, k: int, by: By = "", name: str = "") -> Interval:
        """From the first to the last evaluation, paired by prompt."""
        first, last = (self._of(s, k, by, name) for s in (self.steps[0], self.steps[-1]))
        both = sorted(set(first) & set(last))
        return paired([last[p] for p in both], [first[p] for p in both])

    def _of(self, step: int, k: int, by: By, name: str) -> dict[str, float]:
        here = (self.step == step) & (self.k == k)
        if by:
            here &= getattr(self, by) == name
        keys = zip(self.set[here], self.prompt[here], strict=True)
        return {f"{s}/{p}": v for (s, p), v in zip(keys, self.value[here].tolist(), strict=True)}

    def table(self, by: By = "") -> list[dict[str, object]]:
        """One row per family (or set), step and k: value, bounds of the interval, prompts."""
        rows = []
        for name in self.names(by):
            for step in self.steps:
                for k in self.ks:
                    made = self.at(step, k, by, name)
                    row = {by: name} if by else {}
                    rows.append(
                        {**row, "step": step, "k": k, self.measure: made.mean, "low": made.low, "high": made.high,
                         "prompts": made.n}
                    )  # fmt: skip
        return rows

    def _repr_html_(self) -> str:
        return table(self.table(), f"{self.measure}@k on the evaluation set of {self.run}")


def pass_at_k(
    store: Store, run: str | None = None, *, ks: Sequence[int] | None = None, steps: Iterable[int] | None = None,
    set: str | None = "",
) -> Scores:  # fmt: skip
    """Chance that k samples hold a right one, for each evaluation prompt.

    ks: default 1, 2, 4, ... up to the samples there are. steps: default all that were evaluated. set: "" is the first
    evaluation set, None all. Raises ValueError for what was not evaluated and for more samples than there are."""
    return _scores(store, run, "eval_tries", "pass", _passes, ks, steps, set)


def majority_at_k(
    store: Store, run: str | None = None, *, ks: Sequence[int] | None = None, steps: Iterable[int] | None = None,
    set: str | None = "",
) -> Scores:  # fmt: skip
    """Chance that the answer most of k samples give is right, for each evaluation prompt; parameters as `pass_at_k`.

    Answers are those the verifier took from the text; samples without one do not vote."""
    return _scores(store, run, "eval_answers", "majority", _majorities, ks, steps, set)


def _passes(rows: list[dict], k: int) -> float:
    return float(exact.pass_at_k(np.array([r["tried"] for r in rows]), np.array([r["solved"] for r in rows]), k)[0])


def _majorities(rows: list[dict], k: int) -> float:
    answered = [r for r in rows if r["answer"] is not None]
    silent = sum(r["tried"] for r in rows) - sum(r["tried"] for r in answered)
    return exact.majority_at_k([r["tried"] for r in answered], [r["solved"] / r["tried"] for r in answered], k, silent)


def _scores(
    store: Store, run: str | None, question: str, measure: str, of: Callable[[list[dict], int], float],
    ks: Sequence[int] | None, steps: Iterable[int] | None, set_: str | None,
) -> Scores:  # fmt: skip
    chosen = str(run or store.latest())
    rows = store.ask(question, run=chosen, set=set_).to_pylist()  # type: ignore[union-attr]
    wanted = None if steps is None else [int(s) for s in steps]
    there = sorted({r["step"] for r in rows})
    if not rows:
        sets = ", ".join(repr(s) for s in store.ask("eval_sets", run=chosen)["set"].to_pylist())  # type: ignore[union-attr]
        what = "the first set" if set_ == "" else "any set" if set_ is None else f"the set {set_!r}"
        raise ValueError(f"run {chosen} was not evaluated on {what}; it has {sets or 'no evaluation'}")
    if missing := sorted(set(wanted or ()) - set(there)):
        raise ValueError(f"{chosen} was not evaluated at step {missing[0]}; it was at {', '.join(map(str, there))}")
    groups: dict[tuple[str, int, str, str], list[dict]] = {}
    for r in rows:
        if wanted is None or r["step"] in wanted:
            groups.setdefault((r["set"], r["step"], r["prompt_id"], r["stratum"]), []).append(r)
    most = max(sum(r["tried"] for r in g) for g in groups.values())
    chosen_ks = [k for k in (1 << i for i in range(most.bit_length())) if k <= most] if ks is None else list(ks)
    if not chosen_ks or max(chosen_ks) > most or min(chosen_ks) < 1:
        raise ValueError(
            f"the evaluation of {chosen} has {most} samples of a prompt; k={chosen_ks} cannot be estimated from them "
            "(Experiment(eval_samples=...) sets how many there are)"
        )
    keys = [(*key, k) for key in groups for k in chosen_ks]
    value = [of(g, k) for g in groups.values() for k in chosen_ks]
    columns = [np.array(c, dtype=object) for c in zip(*keys, strict=True)]
    sets, step, prompt, stratum, k = columns
    return Scores(
        chosen, measure, sets, step.astype(np.int64), prompt, stratum, k.astype(np.int64), np.array(value, float),
        store.questions[question].sql,
    )  # fmt: skip
