"""Difficulty of prompts, calibration of beliefs and the frontier, for the difficulty page.

What grows with the run is kept per prompt and fed with the steps that are new, so that a look costs the same at step
10 and at step 10,000. One `Difficulty` per run, shared by all viewers of a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from workbench.views.data.binning import BinnedBeliefs
from workbench.views.data.records import EMPTY, Columns, column, wilson
from workbench.views.data.selection import OBSERVED

if TYPE_CHECKING:
    from workbench.views.data.run import RunData

BINS = 20
"""Bins of the frontier's histogram, over believed chances from 0 to 1."""

CALIBRATION_BINS = 10
"""Bins of the calibration plot."""

EDGE = 0.1
"""Believed chances below it are called too hard, above 1 - EDGE too easy; between lies the frontier."""

TRIES, LOSS, MANY = 4, 0.25, 8
"""Defaults of the questions `forgotten` (rollouts of a step that count, loss of pass rate) and `stuck` (rollouts)."""


class Calibration(NamedTuple):
    """(B,) bins with a belief: mean believed, share observed with its 95 % interval, rollouts tried."""

    believed: np.ndarray = EMPTY
    observed: np.ndarray = EMPTY
    low: np.ndarray = EMPTY
    high: np.ndarray = EMPTY
    tries: np.ndarray = EMPTY

    @property
    def error(self) -> float:
        """Mean distance between belief and outcome over the rollouts; NaN without any."""
        n = self.tries.sum()
        return float(np.sum(self.tries * np.abs(self.believed - self.observed)) / n) if n else float("nan")


class Asks(NamedTuple):
    """The asks of one prompt: columns of `outcomes_of_prompt` by step, and the scores behind each."""

    columns: Columns = Columns("step", "asked", "rollouts", "tried", "solved", "length")
    why: tuple[Mapping[str, float], ...] = ()


def difficulty(data: RunData) -> Difficulty:
    """What is known of a run's prompts, with the newest step taken in."""
    with data.source.lock:
        data.refresh()
        found = data.kept.get(Difficulty)
        if found is None or found.n != len(data.prompts):
            found = data.kept[Difficulty] = Difficulty(len(data.prompts))
        found.refresh(data)
        return found


def amount(data: RunData, order: str) -> np.ndarray:
    """(N,) what an order of prompts sorts by beside beliefs: tokens wasted, or rollouts asked."""
    return difficulty(data).wasted if order == "waste" else data.asked


class Difficulty:
    """Per prompt (N,), from plain training rollouts: tried, solved; best and last share of a step; tokens wasted."""

    def __init__(self, n: int) -> None:
        self.n, self.step = n, 0
        self.tried, self.solved = np.zeros((2, n))
        self.best, self.now = np.full((2, n), np.nan)
        self.best_step, self.last_step, self.wasted = np.zeros((3, n), np.int64)
        self._calibrations: dict[str, CalibrationSums] = {}
        self._frontiers: dict[str, Frontier] = {}
        self._asks: dict[str, tuple[int, Asks]] = {}
        self._seen: tuple[tuple[int, int], pa.Table] | None = None

    def refresh(self, data: RunData) -> None:
        """Take in the steps that are new."""
        if data.step == self.step or not self.n:
            return
        seen, spent = self._observed(data, self.step), data.ask("page_prompt_costs", since=self.step)
        row, n = column(seen, "position", np.int64), column(seen, "n")
        step, share = column(seen, "step", np.int64), column(seen, "share")
        self.tried += np.bincount(row, n, self.n)
        self.solved += np.bincount(row, n * share, self.n)
        on = n >= TRIES
        for r, s, p in zip(row[on].tolist(), step[on].tolist(), share[on].tolist(), strict=True):  # ascending in step
            self.now[r], self.last_step[r] = p, s
            if not p <= self.best[r]:
                self.best[r], self.best_step[r] = p, s
        lost = np.array([wasted(*r) for r in zip(*(spent[c].to_pylist() for c in ("purpose", "fate", "zero")), strict=True)], bool)  # fmt: skip
        tokens = column(spent, "tokens", np.int64)
        np.add.at(self.wasted, column(spent, "position", np.int64)[lost], tokens[lost])
        self.step = data.step

    def _observed(self, data: RunData, since: int) -> pa.Table:
        """Outcomes of the steps after one, asked once for prompts and calibration."""
        key = since, data.step
        if self._seen is None or self._seen[0] != key:
            self._seen = key, data.ask("page_observed", since=since)
        return self._seen[1]

    def forgotten(self, limit: int = 500) -> list[int]:
        """Places in the pool of prompts solved more often once than now, the largest loss first: the question `forgotten`;
        ties in pool order."""
        lost = self.best - self.now
        rows = np.flatnonzero(lost >= LOSS)
        return rows[np.argsort(-lost[rows], kind="stable")][:limit].tolist()

    def stuck(self, limit: int = 500) -> list[int]:
        """Places in the pool of prompts tried often and never solved, those tried most first: the question `stuck`."""
        rows = np.flatnonzero((self.tried >= MANY) & (self.solved == 0))
        return rows[np.argsort(-self.tried[rows], kind="stable")][:limit].tolist()

    def calibration(self, data: RunData, belief: str) -> Calibration:
        """Beliefs from before each step against its outcomes: the question `calibration`. None for OBSERVED."""
        if belief == OBSERVED or not self.n:
            return Calibration()
        with data.source.lock:
            sums = self._calibrations.get(belief)
            if sums is None:
                sums = CalibrationSums(data, belief)
            if sums.step != data.step:
                sums.refresh(data, belief, self._observed(data, sums.step))
            self._calibrations[belief] = sums
            return sums.calibration

    def frontier(self, data: RunData, belief: str) -> Frontier:
        """How believed chances were distributed after each step."""
        with data.source.lock:
            found = self._frontiers.setdefault(belief, Frontier(self.n))
            found.update(data.heat(belief))
            return found

    def asks(self, data: RunData, prompt: str) -> Asks:
        """What was asked of a prompt; asked again only once it was touched."""
        row = data.prompts.row(prompt)
        if row is None:
            return Asks()
        known = self._asks.get(prompt)
        if known is None or data.touched[row] > known[0]:
            if len(self._asks) > 50:
                self._asks.clear()
            answer = data.ask("outcomes_of_prompt", prompt=prompt)
            why = tuple(dict(w or ()) for w in answer["why"].to_pylist())
            known = self._asks[prompt] = data.step, Asks(Asks().columns.extended(answer), why)
        return known[1]


def wasted(purpose: str, fate: str, zero: bool) -> bool:
    """Whether tokens taught nothing: not trained on, or with advantage zero. Probes are no waste: they were asked for."""
    return purpose == "train" and (fate != "trained" or zero)


class CalibrationSums:
    """Calibration of one method's beliefs: sums per bin, and each prompt's belief after the last step taken in."""

    def __init__(self, data: RunData, belief: str) -> None:
        self.step = data.step
        self.before = np.full(len(data.prompts), np.nan)
        now = data.ask("beliefs_now", method=belief)
        self.before[column(now, "position", np.int64)] = column(now, "mean")
        self.believed, self.solved, self.tries = np.zeros((3, CALIBRATION_BINS))
        for r in data.ask("calibration", method=belief, bins=CALIBRATION_BINS).to_pylist():
            self.tries[r["bin"]] = r["tries"]
            self.believed[r["bin"]], self.solved[r["bin"]] = r["believed"] * r["tries"], r["observed"] * r["tries"]

    def refresh(self, data: RunData, belief: str, outcomes: pa.Table) -> None:
        """Take in the steps that are new, one by one: outcomes, which outcomes, meet the beliefs from before them."""
        beliefs = data.ask("belief_map", method=belief, since=self.step)
        row, n, share = column(outcomes, "position", np.int64), column(outcomes, "n"), column(outcomes, "share")
        step, of = column(outcomes, "step", np.int64), column(beliefs, "step", np.int64)
        moved, mean = column(beliefs, "position", np.int64), column(beliefs, "mean")
        for s in np.unique(np.append(step, of)):
            now = step == s
            p = self.before[row[now]]
            known = np.isfinite(p)
            p, tried, rate = p[known], n[now][known], share[now][known]
            at = np.minimum(p * CALIBRATION_BINS, CALIBRATION_BINS - 1).astype(np.int64)
            self.believed += np.bincount(at, p * tried, CALIBRATION_BINS)
            self.solved += np.bincount(at, rate * tried, CALIBRATION_BINS)
            self.tries += np.bincount(at, tried, CALIBRATION_BINS)
            self.before[moved[of == s]] = mean[of == s]
        self.step = data.step

    @property
    def calibration(self) -> Calibration:
        """The bins in which something was tried."""
        on = self.tries > 0
        solved, tries = self.solved[on], self.tries[on]
        return Calibration(self.believed[on] / tries, solved / tries, *wilson(solved, tries), tries)


class Frontier:
    """Prompts by believed chance after each column of a heat map: counts (BINS + 1, C), the last row not known."""

    def __init__(self, n: int) -> None:
        self.n, self.width, self.last_step = n, 1, 0
        self.counts = np.zeros((BINS + 1, 0), np.int64)

    def update(self, heat: BinnedBeliefs) -> None:
        """Count what is new; a column that was still open at the last look is counted again."""
        while self.width < heat.width:
            pairs = self.counts.shape[1] // 2
            self.counts, self.width = self.counts[:, 1 : 2 * pairs : 2], 2 * self.width
        done = self.last_step // self.width  # columns that were complete
        fresh = [histogram(heat.values[:, c]) for c in range(done, heat.n_columns)]
        self.counts = np.column_stack([self.counts[:, :done], *fresh]) if fresh else self.counts[:, :done]
        self.last_step = heat.last_step

    @property
    def step(self) -> np.ndarray:
        """(C,) the last step that each column stands for."""
        return np.minimum((np.arange(self.counts.shape[1]) + 1) * self.width, self.last_step)

    def at(self, step: int) -> np.ndarray:
        """(BINS + 1,) the histogram after a step; zeros before anything is known."""
        n = self.counts.shape[1]
        return self.counts[:, min(max(step - 1, 0) // self.width, n - 1)] if n else np.zeros(BINS + 1, np.int64)

    @property
    def zones(self) -> dict[str, np.ndarray]:
        """Shares of the pool (C,) by zone: too hard, frontier, too easy, not known."""
        low = round(EDGE * BINS)
        part = {
            "too hard": self.counts[:low].sum(0),
            "frontier": self.counts[low : BINS - low].sum(0),
            "too easy": self.counts[BINS - low : BINS].sum(0),
            "not known": self.counts[BINS],
        }
        return {k: v / max(self.n, 1) for k, v in part.items()}


def histogram(p: np.ndarray) -> np.ndarray:
    """(BINS + 1,) how many of p (N,) lie in each bin of [0, 1], then how many are NaN."""
    known = p[np.isfinite(p)]
    at = np.clip(known * np.float32(BINS), 0, BINS - 1).astype(np.int64)
    return np.append(np.bincount(at, minlength=BINS), len(p) - len(known))
