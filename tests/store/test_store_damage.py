"""Damaged files: what is damaged is named and closed, everything else goes on, and a repair deletes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from made_steps import made_beliefs, made_pool, made_step

from workbench.cli import store as commands
from workbench.store import Store, StoreError, Writer, compact
from workbench.store.care.check import check
from workbench.store.care.prune import prune
from workbench.store.care.repair import repair
from workbench.store.folder import files
from workbench.store.open import sizes
from workbench.store.schema import tables


def record(folder, run, n=1):
    pool, rng = made_pool(8), np.random.default_rng(n)
    with Writer(folder, {"name": run}, pool, run=run, compacting=False) as writer:
        for s in range(writer.step + 1, writer.step + n + 1):
            writer.append(made_step(s, pool, rng), made_beliefs(pool, rng))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two generations of runs a and b, and commits of a, b and c that wait; large completions stand in files of their own."""
    where = tmp_path_factory.mktemp("made") / "store"
    small, files.SMALL = files.SMALL, 0
    for runs in ("ab", "ab", "abc"):
        for run in runs:
            record(where, run)
        if runs == "ab":
            compact(where)
    files.SMALL = small
    return where, rows(where)


@pytest.fixture
def folder(made, tmp_path):
    return Path(shutil.copytree(made[0], tmp_path / "store"))


def rows(folder) -> dict:
    """Run -> everything that is recorded of it."""
    found = {}
    with Store.open(folder) as store:
        for table in tables():
            query = f"SELECT run, count(*) || ' ' || bit_xor(hash(t)) AS h FROM {store.source(table)} t GROUP BY run"
            for row in store.sql(query).to_pylist():
                found.setdefault(row["run"], {})[table] = row["h"]
    return found


def flip(path: Path, at: float = 0.5) -> None:
    held = bytearray(path.read_bytes())
    held[int(at * len(held))] ^= 4
    path.write_bytes(held)


def listing(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def errors(folder) -> list[str]:
    return [f"{f.where}: {f.text}" for f in check(folder) if f.kind == "error"]


@pytest.mark.parametrize("file", ["tables.bundle", "completions.parquet"])
def test_a_damaged_commit_closes_its_run_alone(folder, made, file, capsys):
    [path] = [p for p in folder.glob(f"commits/b/r0/*/{file}") if p.parent.name == "000000007"]
    flip(path)
    [wrong] = errors(folder)
    assert wrong.startswith(f"commits/b/r0/000000007/{file}: damaged: ")
    seen = rows(folder)
    assert seen["a"] == made[1]["a"] and seen["c"] == made[1]["c"]
    with Store.open(folder) as store:
        if file == "tables.bundle":
            assert [*store.damaged] == ["b/r0"]
            assert store.runs()["run"].to_pylist() == ["c", "b", "a"]  # it ends before the damage
            commands._info(commands_of("info", folder))
            assert "damaged: b: commit 000000007 is damaged: tables.bundle: " in capsys.readouterr().out
            with pytest.raises(StoreError, match=r"commit 000000007 is damaged.*--repair"):
                record(folder, "b")
            with pytest.raises(StoreError, match="commit 000000007 is damaged"):
                compact(folder)  # and folds the others
            assert sizes(folder).waiting == {"a/r0": 0, "b/r0": 2, "c/r0": 0}
        record(folder, "a")
    assert any(f.kind == "lost" and "commit 000000007 is damaged" in f.text for f in repair(folder))
    assert errors(folder) == []
    assert [p for p in listing(folder) if p.startswith("damaged/") and p.endswith(f"000000007/{file}")]
    record(folder, "b")


def commands_of(verb, folder, *words):
    import argparse

    parser = argparse.ArgumentParser()
    commands.add_parser(parser.add_subparsers())
    return parser.parse_args(["store", verb, str(folder), *words])


def test_a_commit_that_is_put_back_is_read_again(folder, made):
    path = folder / "commits/b/r0/000000007/tables.bundle"
    whole = path.read_bytes()
    flip(path)
    with Store.open(folder) as store:
        assert store.damaged and store.sql("SELECT max(step) AS s FROM steps WHERE run = 'b'")["s"].to_pylist() == [2]
        path.write_bytes(whole)
        assert store.sql("SELECT max(step) AS s FROM steps WHERE run = 'b'")["s"].to_pylist() == [3]
        assert not store.damaged
    assert rows(folder) == made[1]


def test_a_missing_commit_is_named_and_nothing_is_written_after_it(folder):
    shutil.rmtree(folder / "commits/b/r0/000000007")
    with Store.open(folder) as store:
        assert "commit 000000007 is missing, and 000000008 is there" in store.damaged["b/r0"]
    with pytest.raises(StoreError, match="commit 000000007 is missing"):
        record(folder, "b")
    repair(folder)
    record(folder, "b")
    assert errors(folder) == []


def test_a_store_that_lost_CURRENT_is_damaged_for_every_door_and_comes_back_whole(folder, made):
    (folder / "CURRENT").unlink()
    before = listing(folder)
    doors = (
        lambda: Store.open(folder), lambda: compact(folder), lambda: prune(folder, {"a"}), lambda: sizes(folder),
        lambda: record(folder, "a"), lambda: record(folder, "new"),
    )  # fmt: skip
    for door in doors:
        with pytest.raises(
            StoreError, match=r"CURRENT of the store .* is missing.*nothing was touched.*check --repair"
        ):
            door()
    assert [p for p in listing(folder) if p in before] == before  # nothing is gone
    assert commands._check(commands_of("check", folder, "--repair")) == 0
    assert rows(folder) == made[1]
    record(folder, "a")
    compact(folder)
    compact(folder)
    assert errors(folder) == [] and len(rows(folder)["b"]) == len(made[1]["b"])


def test_a_store_from_before_generations_were_kept_comes_back_from_its_bases(folder, made):
    for path in folder.glob("CURRENT*"):
        path.unlink()
    repair(folder)
    assert rows(folder) == made[1] and errors(folder) == []


@pytest.mark.parametrize("at", [0.6, *(pytest.param(at, marks=pytest.mark.slow) for at in (0.0, 0.004, 0.1))])
def test_a_damaged_base_is_an_error_with_a_way_out_and_comes_back_from_the_one_before(folder, made, at):
    flip(folder / "base/gen-000002.duckdb", at)
    assert "base/gen-000002.duckdb: damaged: " in errors(folder)[0]
    try:
        rows(folder)  # what is damaged may be empty room
    except StoreError as error:
        assert "base/gen-000002.duckdb" in str(error) and "check --repair" in str(error)
    found = repair(folder)
    assert [f.kind for f in found] == ["repaired", "repaired"] and rows(folder) == made[1]
    record(folder, "a")
    compact(folder)
    assert errors(folder) == [] and not list(folder.glob("base/gen-000002.duckdb"))


def test_a_damaged_part_takes_the_texts_of_one_run(folder, made):
    flip(folder / "payload/part-000001-0.parquet")
    assert "payload/part-000001-0.parquet: damaged: " in errors(folder)[0]
    found = repair(folder)
    assert ("lost", "a", "the texts of 16 rollouts of step 1") in [tuple(f) for f in found]
    assert errors(folder) == [] and rows(folder)["b"] == made[1]["b"]
    assert {t: h for t, h in rows(folder)["a"].items() if t != "completions"}.items() <= made[1]["a"].items()
    with (
        Store.open(folder) as store,
        pytest.raises(StoreError, match="the texts of 16 rollouts of step 1 of a are lost"),
    ):
        list(store.steps("a"))


def test_the_newest_part_comes_back_from_its_commits(folder, made):
    flip(folder / "payload/part-000002-1.parquet")
    assert not any(f.kind == "lost" for f in repair(folder))
    assert rows(folder) == made[1] and errors(folder) == []


def test_compaction_leaves_a_generation_that_it_did_not_read(folder):
    shutil.copy(folder / "base/gen-000002.duckdb", folder / "base/gen-000009.duckdb")
    shutil.copy(folder / "CURRENT.000002", folder / "CURRENT.000009")
    compact(folder)
    assert (folder / "base/gen-000009.duckdb").exists() and (folder / "CURRENT.000009").exists()


@pytest.mark.parametrize(
    "forged",
    [
        {"base": "../../out.duckdb"}, {"base": "/tmp/out.duckdb"}, {"parts": ["payload/../../out.parquet"]},
        {"mark": {"../../out/r0": 9}}, {"mark": {"a/r0/..": 9}}, {"mark": {"/a/r0": 9}},
    ],
)  # fmt: skip
def test_a_forged_CURRENT_leads_nowhere(folder, tmp_path, forged):
    victim = tmp_path / "out/r0/000000001"
    victim.mkdir(parents=True)
    found = {"generation": 2, "base": "", "parts": [], "mark": {}} | forged
    (folder / "CURRENT").write_text(files.sealed({**found, "sums": {}}))
    for door in (Store.open, compact):
        with pytest.raises(StoreError, match=r"CURRENT of the store .* is damaged"):
            door(folder)
    assert victim.is_dir()


def test_links_in_commits_are_no_runs(folder, tmp_path):
    victim = tmp_path / "out"
    shutil.copytree(folder / "commits/a", victim)
    shutil.rmtree(folder / "commits/a")
    (folder / "commits/a").symlink_to(victim)
    before = listing(victim)
    compact(folder)
    compact(folder)
    assert listing(victim) == before


def test_a_store_without_checksums_opens_and_check_says_so(made, tmp_path):
    import tarfile

    from test_store_versions import OLD

    with tarfile.open(OLD[-1]) as archive:
        archive.extractall(tmp_path, filter="data")
    [note] = check(tmp_path / "store")
    assert note.kind == "note" and "written before there were checksums" in note.text
    assert not [f for f in check(made[0]) if "checksums" in f.text]


def test_bits_of_each_kind_of_file_are_found(made, folder):
    """A sample of `python -m tests.benchmarks store --case damage`."""
    kinds = ["STORE", "CURRENT", "CURRENT.000001", "base/gen-000001.duckdb", "payload/part-000002-0.parquet"]
    for kind in kinds:
        whole = (folder / kind).read_bytes()
        flip(folder / kind, 0.7)
        assert [e.partition(":")[0] for e in errors(folder)] == [kind]
        (folder / kind).write_bytes(whole)
    assert errors(folder) == []
