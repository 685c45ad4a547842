"""A bench writes one JSON object a figure, with all that is needed to compare it later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as benches
from tests.benchmarks import demo, figure


def test_a_figure_is_a_line_with_machine_date_and_versions(tmp_path, monkeypatch) -> None:
    figures = [figure.Figure("a", "seconds", 0.5, "s", "other", 0.25), figure.Figure("b", "gain", 0.2, "pass rate")]
    monkeypatch.setattr(demo, "bench", lambda case: iter(figures))
    assert benches.run("demo", case=None, out=tmp_path) == 0
    assert benches.run("demo", case=None, out=tmp_path) == 0  # appended, never overwritten
    rows = [json.loads(line) for line in (tmp_path / "demo.jsonl").read_text().splitlines()]
    assert [(r["case"], r["metric"], r["value"], r["peer"], r["ratio"]) for r in rows[:2]] == [
        ("a", "seconds", 0.5, "other", 0.25),
        ("b", "gain", 0.2, "", None),
    ]
    assert len(rows) == 4
    assert {"bench", "unit", "machine", "card", "date", "versions"} <= rows[0].keys()
    assert {"torch", "transformers", "duckdb"} <= rows[0]["versions"].keys()


def test_an_unknown_bench_names_the_known_ones(tmp_path) -> None:
    with pytest.raises(
        ValueError,
        match=r"no bench 'spede'; there are dashboard, demo, engine, golds, lake, loop, methods, peers, replay, report, sandbox, start, store, study, trees and all",
    ):
        benches.run("spede", case=None, out=tmp_path)


def test_recorded_figures_are_whole() -> None:
    results = Path(__file__).parent / "results"
    for path in sorted(results.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            assert row["bench"] == path.stem
            assert row["value"] == row["value"]
            assert row["date"] >= "2026-11-28"
