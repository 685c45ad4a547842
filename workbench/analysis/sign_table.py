"""A table of sign-flip rates, by estimator and group size, with paired intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import NamedTuple

import numpy as np

from workbench.analysis.sign_labels import RATES, Kind, Rate, rates


class Interval(NamedTuple):
    """A rate, or a difference of two, with the bounds of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Signs:
    """Rates of every estimator at every group size against one kind of reference.

    sums (estimator, size) -> (C, 13), summed over draws within C clusters (prompts). Intervals resample the clusters, the
    same ones for all estimators and sizes, so that differences are paired.
    """

    kind: Kind
    sums: Mapping[tuple[str, int], np.ndarray] = field(repr=False)
    note: str = ""
    levels: int = 0
    """Distinct rewards seen; with two, no baseline between them can flip a sign hard."""

    @property
    def estimators(self) -> list[str]:
        """Names, in the order given."""
        return list(dict.fromkeys(e for e, _ in self.sums))

    @property
    def sizes(self) -> list[int]:
        """Group sizes, ascending."""
        return sorted({g for _, g in self.sums})

    def _resampled(self, estimator: str, size: int, resamples: int = 2000) -> np.ndarray:
        """(resamples, 7) rates of resampled clusters; the first row of weights is the same for every estimator."""
        if (estimator, size) not in self.sums:
            raise ValueError(
                f"no {estimator!r} at {size}; there are {', '.join(self.estimators)} at {', '.join(map(str, self.sizes))}"
            )
        sums = self.sums[estimator, size]
        weight = np.random.default_rng(0).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), resamples)
        return rates(weight @ sums)

    def rate(self, estimator: str, size: int, rate: Rate = "hard", level: float = 0.95) -> Interval:
        """A rate with its bootstrap interval over clusters."""
        k = RATES.index(rate)
        low, high = np.quantile(self._resampled(estimator, size)[:, k], [(1 - level) / 2, (1 + level) / 2])
        return Interval(float(rates(self.sums[estimator, size].sum(0))[k]), float(low), float(high))

    def difference(
        self, ours: tuple[str, int], theirs: tuple[str, int], rate: Rate = "hard", level: float = 0.95
    ) -> Interval:
        """Rate of ours minus that of theirs, each (estimator, size), paired by cluster."""
        k = RATES.index(rate)
        spread = self._resampled(*ours)[:, k] - self._resampled(*theirs)[:, k]
        low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2])
        value = rates(self.sums[ours].sum(0))[k] - rates(self.sums[theirs].sum(0))[k]
        return Interval(float(value), float(low), float(high))

    def rows(self, level: float = 0.95) -> list[dict[str, object]]:
        """One row per estimator and size: kind, clusters, every rate, intervals of hard and vanish."""
        out: list[dict[str, object]] = []
        for (estimator, size), sums in self.sums.items():
            row: dict[str, object] = {"estimator": estimator, "size": size, "kind": self.kind, "clusters": len(sums)}
            for name, value in zip(RATES, rates(sums.sum(0)), strict=True):
                row[name] = float(value)
                if name in ("hard", "vanish"):
                    made = self.rate(estimator, size, name, level)
                    row |= {f"{name}_low": made.low, f"{name}_high": made.high}
            out.append(row)
        return out

    def join(self, other: Signs) -> Signs:
        """Both tables, of one kind over the same clusters; ValueError where the kinds differ."""
        if self.kind != other.kind:
            raise ValueError(f"rates against a {self.kind} and against a {other.kind} reference do not belong together")
        if {len(s) for s in self.sums.values()} != {len(s) for s in other.sums.values()}:
            raise ValueError("the tables were made over different prompts and cannot be paired")
        return replace(self, sums={**self.sums, **other.sums}, levels=max(self.levels, other.levels))

    @staticmethod
    def pool(tables: Sequence[Signs]) -> Signs:
        """One table over the prompts of several runs; ValueError where the kinds or the rows differ."""
        first = tables[0]
        for other in tables[1:]:
            if other.kind != first.kind or list(other.sums) != list(first.sums):
                raise ValueError(f"a {first.kind} and a {other.kind} table of other rows cannot be pooled")
        sums = {key: np.concatenate([t.sums[key] for t in tables]) for key in first.sums}
        return Signs(first.kind, sums, "; ".join(t.note for t in tables), max(t.levels for t in tables))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(n)}</th>" for n in ("estimator", "size", *RATES))
        body = ""
        for row in self.rows():
            cells = "".join(f"<td>{row[n]:.3f}</td>" for n in RATES)
            body += f"<tr><td>{escape(str(row['estimator']))}</td><td>{row['size']}</td>{cells}</tr>"
        caption = f"reference: {self.kind}. {self.note}."
        if self.levels == 2:
            caption += " Two reward levels: signs can only vanish, a hard flip needs a baseline outside them."
        return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table>"
