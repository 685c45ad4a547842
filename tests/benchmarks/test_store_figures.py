"""The store's bench gives its figures; sizes are cut, and nothing is said about speed."""

from __future__ import annotations

import pytest

from tests.benchmarks import store, store_damage, store_kill, store_long, store_search


def figures(case):
    return {f.metric: f for f in store.bench(case)}


def test_recording_is_measured_against_plain_parquet():
    found = figures("tiny")
    assert set(found) == {
        "hand_over", "durable_commit", "share_of_a_5_s_step", "cost_per_row", "cpu_per_row", "bytes_per_rollout",
    }  # fmt: skip
    assert found["cost_per_row"].peer and found["cost_per_row"].ratio > 0
    assert 0 < found["hand_over"].value <= found["durable_commit"].value


def test_a_long_run_is_asked_in_a_fresh_process(monkeypatch):
    monkeypatch.setattr(store_long, "STEPS", 160)
    monkeypatch.setattr(store_long, "GROUPS", 4)
    monkeypatch.setattr(store_long, "GROUP", 2)
    found = figures("long")
    assert set(store_long.QUESTIONS) < set(found)
    assert {"durable_commit_at_step_100", "mean_commit_of_last_decile", "cpu_per_step_of_last_decile"} < set(found)
    assert found["cpu_per_step_of_last_decile"].value > 0 and found["refresh_after_a_step"].value > 0
    assert found["reader_peak_memory"].note.startswith("1,280 rollouts")


def test_searches_are_timed(monkeypatch):
    for name, n in {"STEPS": 3, "GROUPS": 2, "GROUP": 4}.items():
        monkeypatch.setattr(store_search, name, n)
    found = figures("search")
    assert set(found) == set(store_search.QUERIES)
    assert "0 shown of 24 completions" in found["nothing"].note and "0 shown" not in found["common_words"].note


@pytest.mark.slow
def test_kills_are_counted(monkeypatch):
    monkeypatch.setattr(store_kill, "KILLS", 2)
    found = figures("kill")
    assert (found["acknowledged_steps_lost"].value, found["steps_torn"].value) == (0, 0)


@pytest.mark.slow
def test_damage_is_counted(monkeypatch):
    monkeypatch.setattr(store_damage, "FLIPS", 1)
    monkeypatch.setattr(store_damage, "FORGED", 10)
    assert figures("forged")["writes_outside"].value == 0
    found = list(store.bench("damage"))
    assert all(f.value == 100 for f in found if f.metric in ("found_by_check", "other_runs_intact_after_repair"))


def test_cases_are_named():
    with pytest.raises(ValueError, match="no case 'x'; there are tiny, wide, long, search, kill, damage, forged"):
        list(store.bench("x"))
