"""Source of a store and data of a run: named questions in, plain records out. No widgets, no drawing, no SQL.

One `Source` per store and process, shared by all viewers of a server. Questions that grow with the run are asked
for the steps after the last one known, so that a refresh costs the same at step 10 and at step 10,000; payloads
(texts) are asked for one group at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from workbench.analysis.diagnose import Diagnosis, examine
from workbench.analysis.health import SHARE
from workbench.store.urls import is_there
from workbench.views.data.binning import BinnedBeliefs
from workbench.views.data.records import (
    CURVES,
    Columns,
    Evaluation,
    Group,
    History,
    Prompts,
    RunFacts,
    Stack,
    column,
    parsed,
    wilson,
)
from workbench.views.data.selection import OBSERVED
from workbench.views.data.sql_processes import Workers
from workbench.views.data.text import ALL, CUT, count

if TYPE_CHECKING:
    from workbench.store import Store

_sources: dict[str, Source] = {}
_sources_lock = threading.Lock()

PHASES = ("generate", "update", "score", "decide", "estimate", "evaluate", "record")
"""Phases of a step that have a colour of their own; the rest is other."""

OTHER_FATES = {"carried": "carried to a later step"}
OUTCOMES = {
    "all solved": "zero advantage, all solved",
    "none solved": "zero advantage, none solved",
    "mixed": "zero advantage, equal rewards",
}


def kind_of(fate: str, reason: str, outcome: str) -> str:
    """The kind under which the budget view counts a rollout: see `theme.BUDGET`."""
    if fate == "trained":
        return OUTCOMES[outcome] if reason == "zero_advantage" else "trained, with signal"
    return OTHER_FATES.get(fate, fate)


class Source:
    """A store as the views see it. Opens when there is something to open; every question runs under one lock."""

    def __init__(self, url: str) -> None:
        self.url = str(url)
        self.lock = threading.RLock()
        self._store: Store | None = None
        self._given = False
        self.version = 0
        """Counts the refreshes that brought something: nobody asks again before it has moved."""
        self._asked = 0.0
        self._rows: list[dict[str, Any]] = []
        self._runs: list[dict[str, Any]] = []
        self._data: dict[str, RunData] = {}
        self.workers = Workers(self.url)

    @classmethod
    def of(cls, url: str) -> Source:
        """The shared source of a store."""
        with _sources_lock:
            return _sources.setdefault(str(url), cls(str(url)))

    @classmethod
    def around(cls, store: Store) -> Source:
        """A source of its own around a reader that is already open."""
        source = cls(store.url)
        source._store, source._given = store, True
        return source

    @property
    def where(self) -> str:
        """The URL as it may be shown: without a password."""
        from workbench.store.urls import redacted

        return redacted(self.url)

    @property
    def store(self) -> Store:
        """The open reader; raises what `Store.open` raises."""
        if self._store is None:
            from workbench.store import Store

            if not is_there(self.url):
                raise FileNotFoundError(f"there is no store at {self.where} {'any more' if self._rows else 'yet'}")
            self._store = Store.open(self.url, live=False)
        return self._store

    def ask(self, question: str, **params: Any) -> pa.Table:
        """A named question to the store as it was at the last `refresh`."""
        with self.lock:
            return self.store.ask(question, **params)

    def refresh(self, max_age: float = 0.3) -> None:
        """Take in what was committed; asked again within max_age seconds, by any viewer, it does nothing."""
        with self.lock:
            if time.monotonic() - self._asked < max_age:
                return
            if self._store is not None and not self._given and not is_there(self.url):
                self._store.close()
                self._store = None  # opened anew when it is back
                raise FileNotFoundError(f"there is no store at {self.where} any more")
            new = self.store.refresh()
            rows = self.store.runs().to_pylist()
            if new or rows != self._rows:
                self._runs = [row | {"status": self._status(row)} for row in rows]
                self._rows = rows
                self.version += 1
            self._asked = time.monotonic()

    def _status(self, row: Mapping[str, Any]) -> str:
        """The status of a run; its writer lives while it is paused, too, so that the record calls it running."""
        status = str(row["status"] or "")
        waits = status == "running" and self.store.ask("paused", run=row["run"])["paused"].to_pylist()[0]
        return "paused" if waits else status

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Rows of the runs, newest first, as the store's question `runs` has them; status may be paused, too."""
        return sorted(self._runs, key=lambda r: (str(r.get("started") or ""), r["run"]), reverse=True)

    def run(self, run: str) -> RunData:
        """What is known of one run, shared by the viewers; a new one, with all that is kept of it, once it was resumed:
        an earlier step may have been made again."""
        with self.lock:
            known = self._data.get(run)
            row = next((r for r in self._runs if r["run"] == run), None)
            if known is None or (row and known.attempt not in (None, row["attempt"])):
                known = self._data[run] = RunData(self, run)
            return known


class RunData:
    """One run, kept up to date by `refresh`: columns by step, beliefs by prompt."""

    def __init__(self, source: Source, run: str) -> None:
        self.source, self.run = source, run
        self._begin(None)

    def _begin(self, attempt: int | None) -> None:
        """Nothing is known yet. attempt: how often the run was resumed."""
        run, self.attempt = self.run, attempt
        self._version = -1
        self.step = 0
        self.facts = RunFacts(run, "", 0, None, "", "", {}, 0)
        self.curves, self.evaluation = Columns(*CURVES), Evaluation()
        self.budget, self.seconds = Stack(), Stack()
        self.reasons: dict[tuple[str, str], float] = {}
        self.notes: list[dict[str, Any]] = []
        self.warnings = 0
        self.diagnosis = Diagnosis([], {})
        self._judged, self._judge_again = 0, 0.0
        self.prompts = Prompts()
        self.asked = np.zeros(0, np.int64)
        self.touched = np.zeros(0, np.int64)
        self.methods: list[str] = []
        self._heats: dict[str, tuple[BinnedBeliefs, int]] = {}
        self._histories: dict[tuple[str, str], tuple[int, History]] = {}
        self.kept: dict[Hashable, Any] = {}
        """What other modules made of the record, each under a key of its own: it goes when the run is read again."""

    def ask(self, question: str, **params: object) -> pa.Table:
        """A question about this run."""
        return self.source.ask(question, run=self.run, **params)

    def refresh(self) -> bool:
        """Take in the steps that are new; returns whether anything changed."""
        with self.source.lock:
            row = next((r for r in self.source.runs if r["run"] == self.run), None)
            if row is None:
                raise LookupError(f"there is no run {self.run!r} in {self.source.where}")
            if self._version == self.source.version:
                return self._judge()
            resumed = self.attempt not in (None, row["attempt"])
            if resumed or self.attempt is None:
                self._begin(row["attempt"])
            facts = self._facts(row["status"])
            if not len(self.prompts):
                self._read_prompts()
            changed = resumed or facts != self.facts
            if facts.step != self.step:
                self._read_steps()
            self.facts, self.step = facts, facts.step
            changed |= self._read_evaluation()
            self._read_notes()
            self._version = self.source.version
            return self._judge() or changed

    def _judge(self) -> bool:
        """Ask the rules of the diagnosis about new steps, for a twentieth of the time at most; whether they were asked."""
        began = time.monotonic()
        if self.step < 2 or self._judged == self.step or began < self._judge_again:
            return False
        self.diagnosis, self._judged = examine(self.source.store, self.run), self.step
        self._judge_again = time.monotonic() + (time.monotonic() - began) * (1 / SHARE - 1)
        return True

    def _facts(self, status: str) -> RunFacts:
        row = self.ask("page_run").to_pylist()[0]
        experiment, world, swapped = (parsed(row[c]) for c in ("experiment", "world", "swapped"))
        pipeline = swapped.get("to") or experiment.get("pipeline") or []
        return RunFacts(
            run=self.run,
            status=status,
            step=int(row["step"] or 0),
            target=row["target"],
            model=str(world.get("model") or experiment.get("model") or "?"),
            pipeline=pipeline_line(pipeline),
            who=swapped.get("who") or parsed(row["who"]),
            n_prompts=int(row["n_prompts"] or 0),
            note=machine(world),
        )

    def _read_prompts(self) -> None:
        t = self.ask("page_prompts")
        self.prompts = Prompts(*(column(t, c, object) for c in ("prompt_id", "text", "stratum")))
        self.asked, self.touched = np.zeros((2, len(self.prompts)), np.int64)

    def _read_steps(self) -> None:
        since = self.step
        questions = ("reward_by_step", "page_budget", "timings_by_step", "page_observed", "page_methods")
        batch, spent, laps, seen, methods = (self.ask(q, since=since) for q in questions)
        # all answers are here: from now on nothing fails halfway, and the next look starts after these steps
        self.curves, steps = self.curves.extended(batch), column(batch, "step")
        rows = spent.to_pylist()
        amounts = [(r["step"], kind_of(r["fate"], r["reason"], r["outcome"]), r["n"]) for r in rows]
        self.budget = stacked(self.budget, steps, amounts)
        for r in rows:
            if r["fate"] != "trained" and r["reason"]:
                key = str(OTHER_FATES.get(r["fate"], r["fate"])), str(r["reason"])
                self.reasons[key] = self.reasons.get(key, 0) + r["n"]
        phases = [(r["step"], r["phase"] if r["phase"] in PHASES else "other", r["seconds"]) for r in laps.to_pylist()]
        self.seconds = stacked(self.seconds, steps, phases)
        at = column(seen, "position", np.int64)
        self.asked = self.asked + np.bincount(at, column(seen, "n"), minlength=len(self.asked)).astype(np.int64)
        self.touched[at] = column(seen, "step", np.int64)
        self.methods += [m for m in methods["method"].to_pylist() if m not in self.methods]

    def _read_evaluation(self) -> bool:
        old = self.evaluation
        t = self.ask("page_evaluation", since=int(old.step[-1]) if len(old.step) else -1)
        if not len(t):
            return False
        solved, n = column(t, "solved"), column(t, "n")
        low, high = wilson(solved, n)
        share = np.divide(solved, n, out=np.full(len(n), np.nan), where=n > 0)
        fresh = Evaluation(column(t, "step"), share, low, high, column(t, "reward"), column(t, "tried"))
        self.evaluation = Evaluation(*(np.append(a, b) for a, b in zip(old, fresh, strict=True)))
        return True

    def _read_notes(self) -> None:
        self.notes = self.ask("events").to_pylist()
        counts = {r["kind"]: r["n"] for r in self.ask("page_event_counts").to_pylist()}
        self.warnings = counts.get("warning", 0) + counts.get("failure", 0)

    @property
    def beliefs(self) -> list[str]:
        """What the heat map can show: methods with beliefs, then what was observed."""
        return [*self.methods, OBSERVED]

    @property
    def believed(self) -> str:
        """What is shown before anything is chosen: the beliefs of who selects or allocates, where they are recorded."""
        acting = [*self.facts.who.get("select", []), *self.facts.who.get("allocate", [])]
        return next((m for m in reversed(acting) if m in self.methods), self.beliefs[0])

    def heat(self, belief: str) -> BinnedBeliefs:
        """The value of every prompt over the steps: a method's mean, or the share last observed."""
        with self.source.lock:
            heat, since = self._heats.get(belief) or (BinnedBeliefs(len(self.prompts)), -1)
            if since < self.step:
                if belief == OBSERVED:
                    t, name = self.ask("page_observed", since=since), "share"
                else:
                    t, name = self.ask("belief_map", method=belief, since=since), "mean"
                step = column(t, "step", np.int64)
                value = column(t, name)
                on = (step <= self.step) & np.isfinite(value)
                row = column(t, "position", np.int64)[on]
                heat.extend(row, step[on], value[on], self.step)
                np.maximum.at(self.touched, row, step[on])
                self._heats[belief] = heat, self.step
            return heat

    def history(self, prompt: str, belief: str) -> History:
        """One prompt's beliefs and outcomes over the steps, with its text; asked again only when it was touched."""
        row, key = self.prompts.row(prompt), (prompt, belief)
        known = self._histories.get(key)
        if known and row is not None and self.touched[row] <= known[0]:
            return known[1]
        if len(self._histories) > 50:
            self._histories.clear()
        self._histories[key] = self.step, self._history(prompt, belief)
        return self._histories[key][1]

    def _history(self, prompt: str, belief: str) -> History:
        found = self.ask("page_prompt", prompt=prompt).to_pylist()
        if not found:
            return History(prompt)
        p = found[0]
        came = self.ask("outcomes_of_prompt", prompt=prompt)
        outcomes = [column(came, c) for c in ("step", "tried", "solved")]
        if belief == OBSERVED:
            share = outcomes[2] / np.maximum(outcomes[1], 1)
            low, high = wilson(outcomes[2], outcomes[1])
            beliefs = [outcomes[0], share, low, high]
        else:
            t = self.ask("beliefs_of_prompt", prompt=prompt, method=belief)
            beliefs = [column(t, c) for c in ("step", "mean", "low", "high")]
        return History(prompt, _prompt_text(p), p["answer"], p["stratum"], *beliefs, *outcomes)

    def group(self, place: int = 0, prompt: str = "") -> Group:
        """A group of the last step by its place (those whose rewards differ first), or the last group of a prompt."""
        if prompt:
            last = self.ask("page_last_asked", prompt=prompt).to_pylist()
            if not last:
                return Group(prompt=prompt)
            step, rank, group, of, at = last[0]["step"], last[0]["rank"], last[0]["group_id"], 1, 0
        else:
            step = self.step
            groups = self.ask("groups_of_step", step=step).to_pylist()
            groups.sort(key=lambda g: not (g["spread"] or 0) > 1e-9)
            if not groups:
                return Group(step)
            of = len(groups)
            at = place % of
            rank, group, prompt = (groups[at][c] for c in ("rank", "group_id", "prompt_id"))
        found = self.ask("page_prompt", prompt=prompt).to_pylist()
        text, answer = (_prompt_text(found[0]), found[0]["answer"]) if found else ("", "")
        parts: dict[str, dict[str, float]] = {}
        for r in self.ask("page_parts", step=step, rank=rank, group=group).to_pylist():
            parts.setdefault(r["rollout_id"], {})[r["part"]] = r["value"]
        rows = self.ask("page_group", step=step, rank=rank, group=group, cut=CUT).to_pylist()
        made = tuple(r | {"parts": parts.get(r["rollout_id"], {})} for r in rows)
        return Group(step, prompt, text, answer, at, of, made, rank)

    def text(self, step: int, rollout: str, rank: int = 0) -> tuple[str, int]:
        """The whole text of one completion (at most `text.ALL` characters) and its length in characters."""
        found = self.ask("page_text", step=step, rank=rank, rollout=rollout, cut=ALL).to_pylist()
        return (found[0]["text"] or "", found[0]["characters"] or 0) if found else ("", 0)


def _prompt_text(prompt: Mapping[str, str]) -> str:
    """A prompt as the model saw it: the question, and under it the start of the answer."""
    return "\n".join(x for x in (prompt["text"], prompt["prefix"]) if x)


def machine(world: Mapping[str, Any]) -> str:
    """What a world told about itself, in words: 1.4M parameters · cpu, 2 threads · transformers engine."""
    n, threads = world.get("parameters"), world.get("threads")
    where = [str(world.get("device") or ""), f"{threads} thread{'s' * (threads != 1)}" if threads else ""]
    engine = str(world.get("engine") or "").removesuffix("Engine").lower()
    size = (f"{count(n)} parameters" if isinstance(n, int) else "", str(world.get("dtype") or ""))
    return " · ".join(filter(None, (*size, ", ".join(filter(None, where)), f"{engine} engine" if engine else "")))


def pipeline_line(spec: object) -> str:
    """A pipeline's recorded rows as a short line: `grpo + mopps(batch_size=8)`."""
    if isinstance(spec, str):
        return spec
    parts = []
    for row in spec if isinstance(spec, list) else []:
        row = dict(row) if isinstance(row, Mapping) else {"method": row}
        name = str(row.pop("method", row.pop("slug", row.pop("name", "?"))))
        settings = row.pop("settings", row)
        shown = ", ".join(f"{k}={v}" for k, v in settings.items())
        parts.append(f"{name}({shown})" if shown else name)
    return " + ".join(parts)


def stacked(old: Stack, steps: np.ndarray, amounts: list[tuple[int, str, float]]) -> Stack:
    """The old bars and those of new steps: amounts (step, kind, how much) summed by step and kind."""
    at = {int(s): i for i, s in enumerate(steps)}
    fresh: dict[str, np.ndarray] = {}
    for step, kind, much in amounts:
        if step in at:
            fresh.setdefault(kind, np.zeros(len(steps)))[at[step]] += much or 0
    nothing_old, nothing_new = np.zeros(len(old.step)), np.zeros(len(steps))
    kinds = [*old.amount, *(k for k in fresh if k not in old.amount)]
    return Stack(
        np.append(old.step, steps),
        {k: np.append(old.amount.get(k, nothing_old), fresh.get(k, nothing_new)) for k in kinds},
    )
