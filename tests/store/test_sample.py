"""The sample store that is shipped: whole, readable where it lies, and with something to say to every question."""

from __future__ import annotations

import json
import stat

import pytest

from workbench.store import Store
from workbench.store import sample as sample_module
from workbench.store.care.check import check
from workbench.store.errors import StoreError
from workbench.store.questions import REQUIRED, load
from workbench.store.sample import SAMPLE, copy_sample

RUNS = ["sample-pruned", "sample-tree", "sample-mopps-then-vade", "sample-uniform"]


@pytest.fixture(scope="module")
def store():
    with Store.sample() as opened:
        yield opened


def test_four_finished_runs_in_less_than_three_megabytes(store):
    assert store.runs()["run"].to_pylist() == RUNS
    assert set(store.runs()["status"].to_pylist()) == {"finished"}
    assert sum(p.stat().st_size for p in SAMPLE.rglob("*") if p.is_file()) < 3_000_000


def test_it_is_whole():
    assert check(SAMPLE) == []


def test_reading_it_writes_nothing(tmp_path):
    folder = copy_sample(tmp_path / "copy")
    assert not list(folder.rglob("*.py"))  # the script that makes the sample lies beside it and is no part of it
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    before = sorted(folder.rglob("*"))
    with Store.open(folder) as opened:
        assert opened.latest() == "sample-pruned"
        assert len(list(opened.steps("sample-tree"))) == 10
    assert sorted(folder.rglob("*")) == before
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


@pytest.fixture(scope="module")
def known(store):
    """A value for every parameter that must be given: a trained rollout of the tree."""
    row = store.sql(
        "SELECT prompt_id AS prompt, step, row, rollout_id AS rollout, group_id AS group FROM rollouts "
        "WHERE run = 'sample-tree' AND fork_at >= 0 ORDER BY step DESC, row LIMIT 1"
    ).to_pylist()[0]
    return {**row, "text": "1"}


def test_every_question_is_answered(store, known):
    known = {**known, "run": "sample-tree"}
    for name, question in load().items():
        asked = {
            p.name: known[p.name] for p in question.parameters.values() if p.name == "run" or p.default is REQUIRED
        }
        assert store.ask(name, **asked).column_names, name


def test_it_holds_a_swap_a_tree_cuts_and_tokens(store):
    swap = store.sql("SELECT step, payload FROM commands WHERE kind = 'swap'").to_pylist()
    assert [s["step"] for s in swap] == [29]
    assert [m["method"] for m in json.loads(swap[0]["payload"])["to"]] == ["grpo", "vade"]
    count = store.sql(
        "SELECT count(*) FILTER (fork_at >= 0) AS forked, count(*) FILTER (finish = 'pruned') AS pruned FROM rollouts"
    ).to_pylist()[0]
    assert count["forked"] > 100
    assert count["pruned"] > 100
    tokens = store.sql("SELECT count(*) AS n FROM completions WHERE len(tokens) > 0").to_pylist()[0]["n"]
    assert tokens > 500


def test_it_says_nothing_of_the_machine(store):
    machine = json.loads(store.sql("SELECT machine FROM attempts LIMIT 1")["machine"][0].as_py())
    assert sorted(machine) == ["packages", "processors", "python"]
    assert store.sql("SELECT DISTINCT experiment->>'store' AS store FROM runs")["store"].to_pylist() == ["store/sample"]


def test_a_wheel_without_it_says_how_to_make_one(monkeypatch, tmp_path):
    monkeypatch.setattr(sample_module, "SAMPLE", tmp_path)
    with pytest.raises(StoreError, match="in a clone"):
        Store.sample()
