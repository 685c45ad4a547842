"""A run, or several side by side, as something to give away: one HTML file, a PDF, or Markdown with its figures.

>>> from tempfile import TemporaryDirectory
>>> from workbench import Store, report
>>> with Store.sample() as store, TemporaryDirectory() as folder:
...     [file.name for file in report.write(store, ["sample-tree"], f"{folder}/tree.html")]
['tree.html']
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.analysis.compare import Axis, Comparison, compare
from workbench.report import browser, comparison, html, markdown, sections
from workbench.report.document import Document, Section
from workbench.views.data.run import RunData, Source

if TYPE_CHECKING:
    from workbench.store import Store

__all__ = ["Document", "document", "write"]

FORMS = (".html", ".pdf", ".md")
CHAPTERS = 4
"""Runs of a comparison that get a chapter of their own where nobody says which: the first seed of every pipeline."""


def write(
    store: Store,
    runs: Sequence[str] | None,
    out: str | Path,
    *,
    axis: Axis = "tokens",
    baseline: str | None = None,
    measure: str = "pass@1",
    details: Sequence[str] | None = None,
    groups: Sequence[tuple[int, int]] = (),
    pictures: bool = True,
    date: str = "",
) -> list[Path]:
    """Write a report of runs (None: the newest) to a .html, .pdf or .md file; returns the files written.

    axis, baseline, measure: of the comparison, see `analysis.compare`. details: runs with a chapter of their own, in a
    report of several. groups: (step, group) of the trees to draw. pictures: PNG and PDF of every figure beside Markdown. date: default today's.
    Raises ValueError for unknown runs and endings, and OSError where Chromium is needed and missing."""
    path = Path(out)
    if path.suffix.lower() not in FORMS:
        raise ValueError(f"a report is written to a file that ends in {', '.join(FORMS)}, not {path.name!r}")
    if path.suffix.lower() == ".pdf" or (path.suffix.lower() == ".md" and pictures):
        browser.find()
    made = document(
        store, runs, axis=axis, baseline=baseline, measure=measure, details=details, groups=groups, date=date
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".md":
        return markdown.write(made, path, pictures=pictures)
    page = html.page(made)
    if path.suffix.lower() == ".pdf":
        browser.print_pdf(page, path)
    else:
        path.write_text(page, encoding="utf-8")
    return [path]


def document(
    store: Store, runs: Sequence[str] | None = None, *, axis: Axis = "tokens", baseline: str | None = None,
    measure: str = "pass@1", details: Sequence[str] | None = None, groups: Sequence[tuple[int, int]] = (), date: str = "",
) -> Document:  # fmt: skip
    """The report before it is written; parameters as `report`."""
    known = {r["run"]: r for r in store.runs().to_pylist()}
    chosen = list(dict.fromkeys(runs or [r for r in [store.latest()] if r]))
    missing = [r for r in (*chosen, *(details or ())) if r not in known]
    if missing or not chosen:
        raise ValueError(f"no run {', '.join(missing) or 'yet'} in the store; there are {', '.join(known) or 'none'}")
    source = Source.around(store)
    source.refresh(max_age=0)
    data = {r: source.run(r) for r in dict.fromkeys((*chosen, *(details or ())))}
    for d in data.values():
        d.refresh()
    when = date or datetime.date.today().isoformat()
    if len(chosen) == 1:
        d = data[chosen[0]]
        facts = d.facts
        made = sections.chapters(sections.Chapter(store, d, groups=groups))
        return Document(
            f"{facts.pipeline} on {facts.model}",
            f"Run {d.run}, seed {known[d.run]['seed']}, {facts.step:,} steps, {facts.status}.",
            when,
            made,
        )
    compared = compare(store, chosen, axis=axis, baseline=baseline, measure=measure)
    return _several(store, [data[r] for r in chosen], known, data, compared, details, groups, when)


def _several(
    store: Store, runs: Sequence[RunData], known: dict, data: dict[str, RunData], made: Comparison,
    details: Sequence[str] | None, groups: Sequence[tuple[int, int]], date: str,
) -> Document:  # fmt: skip
    parts = [
        Section("Summary", comparison.summary(made), name="summary"),
        Section("Comparison", [comparison.curves(made), *comparison.differences(made)], name="comparison"),
        Section("Runs", [comparison.overview(runs, [known[d.run]["seed"] for d in runs])], name="runs"),
    ]
    first: dict[str, RunData] = {}
    for d in runs:
        first.setdefault(d.facts.pipeline, d)
    chosen = [data[r] for r in details] if details is not None else list(first.values())[:CHAPTERS]
    methods = {}
    for d in first.values():
        pipeline = sections.pipeline_of(sections.Chapter(store, d).experiment())
        methods |= {repr(m): m for m in (pipeline.methods if pipeline is not None else ())}
    if methods:
        parts.append(Section("Methods", sections.cards(list(methods.values())), name="methods"))
    for i, d in enumerate(chosen, 1):
        title = f"{d.facts.pipeline}, seed {known[d.run]['seed']}"
        inner = sections.chapters(sections.Chapter(store, d, f"-{i}", 2, groups), methods=False)
        parts.append(Section(title, [], name=f"run-{i}"))
        parts += [replace(s, level=2) for s in inner]
    names = ", ".join(made.labels[:6])
    title = f"{len(made.labels)} pipelines compared on {runs[0].facts.model}"
    return Document(title, f"{names}; {len(runs)} runs.", date, parts)
