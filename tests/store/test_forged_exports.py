"""Exports whose manifest or rows are forged write nothing outside of the store that takes them in."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_steps import made_pool, made_step

from tests.benchmarks.store_damage import NAMES, forged
from workbench.store import Store, StoreError, Writer
from workbench.store.care.check import check
from workbench.store.care.export import MANIFEST, export, import_
from workbench.store.care.prune import prune
from workbench.store.folder.files import sealed
from workbench.store.schema import tables

IDS = st.sampled_from(NAMES) | st.text(max_size=20) | st.sampled_from(["c", "d", "mine"])
ANY = st.recursive(st.none() | st.integers() | IDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(IDS, inner, max_size=3),
                   max_leaves=6)  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """An export of a run of two steps."""
    where = tmp_path_factory.mktemp("exported")
    pool, rng = made_pool(8), np.random.default_rng(0)
    with Writer(where / "store", {}, pool, run="c") as writer:
        for number in (1, 2):
            writer.append(made_step(number, pool, rng))
    with Store.open(where / "store") as store:
        export(store, where / "out")
    return where / "out"


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    runs=st.lists(IDS, max_size=3) | ANY,
    rows=st.dictionaries(IDS | st.sampled_from(list(tables())), st.integers() | ANY, max_size=3) | ANY,
    version=st.sampled_from([1, 5, 99, None, "5", -1]),
    sums=st.none() | ANY,
)
def test_200_mutated_manifests_touch_nothing(source, tmp_path_factory, runs, rows, version, sums):
    where = tmp_path_factory.getbasetemp() / "forged"
    lies, kept = where / "lies", where / "out" / "kept"
    if not lies.exists():
        lies.mkdir(parents=True)
        for path in source.glob("*.parquet"):
            (lies / path.name).symlink_to(path)
        kept.parent.mkdir()
        kept.write_text("kept")
    before = sorted(where.rglob("*"))
    manifest = {"schema_version": version, "runs": runs, "rows": rows} | ({} if sums is None else {"sums": sums})
    (lies / MANIFEST).write_text(json.dumps(manifest) if sums is None else sealed(manifest))
    with pytest.raises(StoreError):
        import_(lies, where / "store")
        raise StoreError(f"taken in: {runs}")  # only the run that is there
    (lies / MANIFEST).unlink()
    taken = [p for p in where.rglob("*") if p not in before]
    assert not taken and kept.read_text() == "kept"


def test_forged_rows_touch_nothing(source, tmp_path):
    """A sample of `python -m tests.benchmarks store --case forged`."""
    said = [forged(source, tmp_path / "forged", random.Random(point)) for point in range(12)]
    assert sum(wrote for wrote, _ in said) == 0 and sum(bool(why) for _, why in said) >= 10


def test_an_export_that_rots_is_refused(source, tmp_path):
    import shutil

    lies = shutil.copytree(source, tmp_path / "lies")
    held = bytearray((lies / "completions.parquet").read_bytes())
    held[len(held) // 2] ^= 1
    (lies / "completions.parquet").write_bytes(held)
    with pytest.raises(StoreError, match=r"completions.parquet is damaged: it does not have the checksum"):
        import_(lies, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_run_that_leads_out_of_the_store_is_not_pruned(source, tmp_path):
    import_(source, tmp_path / "store")
    (tmp_path / "out").mkdir()
    for run in ("../out", str(tmp_path / "out"), "../../out"):
        with pytest.raises(StoreError, match="must be letters, digits"):
            prune(tmp_path / "store", {run})
    assert (tmp_path / "out").is_dir() and check(tmp_path / "store") == []
