"""Stores written by every earlier version of the schema open, read, go on and are compacted; newer ones are refused.

`versions/<n>.tar.xz` was written by the program of that version: a run "old" of two steps, one of them in the base.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from made_steps import made_beliefs, made_evaluation, made_pool, made_step
from same import rounded

from workbench.store import SCHEMA_VERSION, Store, StoreError, Writer, compact, schema
from workbench.store.questions import REQUIRED, load

OLD = sorted(Path(__file__).with_name("versions").glob("*.tar.xz"), key=lambda p: int(p.name.split(".")[0]))


@pytest.fixture(params=OLD, ids=lambda p: p.name.split(".")[0])
def old(request, tmp_path):
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


def everything(store) -> dict:
    """Every table and every question without a parameter that must be given."""
    asked = [q for q, found in load().items() if all(p.default is not REQUIRED for p in found.parameters.values())]
    seen = {t: sorted(map(str, store.sql(f"SELECT * FROM {t}").to_pylist())) for t in schema.tables()}
    return seen | {f"? {q}": rounded(store.ask(q)) for q in asked}


def test_there_is_a_store_of_every_earlier_version():
    assert [int(p.name.split(".")[0]) for p in OLD] == list(range(1, SCHEMA_VERSION))
    assert all(p.stat().st_size < 30_000 for p in OLD)


def test_an_old_store_opens_and_reads(old):
    before = {p: p.stat().st_mtime_ns for p in old.rglob("*") if p.is_file()}
    with Store.open(old) as store:
        one, two = store.steps("old")
        assert (one.step, two.step, len(one.rollouts), len(two.rollouts)) == (1, 2, 4, 4)
        assert float(one.rollouts.reward.sum()) == pytest.approx(0.9)
        assert two.rollouts.tokens.n_rows == 4 and two.plan.notes["cursor"] == 2**61 + 2
        assert store.runs()["status"].to_pylist() == ["finished"]
        assert store.sql("SELECT count(*) AS n FROM completions")["n"].to_pylist() == [10]
        assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True]
        assert store.sql("SELECT count(*) AS n FROM nodes")["n"].to_pylist() == [0]
        assert store.sql("SELECT DISTINCT node_id FROM advantages")["node_id"].to_pylist() == [None]
        for table, declared in schema.tables().items():
            assert set(store.sql(f"SELECT * FROM {table} LIMIT 0").column_names) == set(declared.names), table
    assert {p: p.stat().st_mtime_ns for p in old.rglob("*") if p.is_file()} == before  # a reader changes nothing


def test_an_old_store_goes_on_and_is_compacted(old):
    pool, evaluation, rng = made_pool(4), made_pool(2, "e"), np.random.default_rng(5)
    step = made_step(3, pool, rng, prompts=2, n=2)
    with Store.open(old) as early:
        before = list(early.steps("old"))
        with Writer(old, {"name": "old"}, pool, evaluation, run="old", compacting=False) as writer:
            assert (writer.step, writer.attempt) == (2, 1)
            writer.append(step, made_beliefs(pool, rng), made_evaluation(3, evaluation, rng))
        assert [s.step for s in early.steps("old")] == [1, 2, 3]
    assert json.loads((old / "STORE").read_text())["schema_version"] == SCHEMA_VERSION
    with Store.open(old) as store:
        seen = everything(store)
        assert compact(old) == 7
        assert everything(store) == seen
    with Store.open(old) as store:
        assert everything(store) == seen
        after = list(store.steps("old"))
    assert [s.rollouts.text.tolist() for s in after[:2]] == [s.rollouts.text.tolist() for s in before]
    assert after[2].rollouts.id.tolist() == step.rollouts.id.tolist()


def test_a_commit_of_a_newer_version_is_refused(old, monkeypatch):
    from workbench.store.rows import commit as writing

    monkeypatch.setattr(writing, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    Writer(old, {}, made_pool(4), run="new").close()
    with pytest.raises(StoreError, match=rf"schema version {SCHEMA_VERSION + 1}, this program knows up to .*Upgrade"):
        Store.open(old)
